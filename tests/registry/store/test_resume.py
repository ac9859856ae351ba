"""Large blobs on their way in: cut off, garbled, torn, fetched by two at once."""

import errno
import io
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.registries import owner
from support.sampling import sampled
from support.servers.faults import Plan, Proxy

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Release
from onnxreg.registry.store import directory, requests
from onnxreg.registry.store.protocol import blob_path
from onnxreg.registry.store.streams import PieceHasher
from onnxreg.registry.system import Disk
from onnxreg.schema.core.bounds import MAX_PIECES
from onnxreg.schema.core.canonical import PIECE_BYTES, Digest, piece_size
from onnxreg.schema.core.errors import HostError, IntegrityError, RemoteError
from onnxreg.schema.core.units import Progress
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

MIB = 2**20
SIZE = 12 * MIB + 5
DATA = random.Random(1).randbytes(SIZE)


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    monkeypatch.setattr(directory, "MIN_RESUMABLE_BYTES", 2 * MIB)
    monkeypatch.setattr(requests, "MAX_TRIES", 2)


@pytest.fixture
def made(registry, tmp_path) -> Release:
    """A version with one large file."""
    (tmp_path / "model.onnx").write_bytes(DATA)
    return registry.add(Draft("acme/large", tmp_path, (DraftArtifact("onnx", "float32", "model.onnx"),)))


@pytest.fixture
def weights(made) -> Digest:
    return made.manifest.artifacts[0].digest


def unpublished(other: Registry, site: Proxy, plan: Plan) -> None:
    """A pull that meets these faults, and makes nothing visible; then the weather is good."""
    site.plan = plan
    with pytest.raises(RemoteError):
        other.pull("acme/large", site.url)
    assert list(other.names()) == []
    site.heal()


def halved(part: str, then: str) -> Plan:
    """Half of the file with this path arrives, then every GET of it meets a fault."""
    faults = itertools.chain(["faltering"], itertools.repeat(then))
    return lambda method, path: next(faults) if method == "GET" and part in path else None


class Counted(Progress):
    """Adds up what it is told of each file."""

    def __init__(self) -> None:
        self.moved: Counter[str] = Counter()

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda count: self.moved.update({path: count})


@pytest.fixture
def arriving(other, weights) -> Path:
    """The file into which the weights are fetched."""
    path = other.store.root / "local" / "partial" / weights.hex
    path.parent.mkdir(parents=True)
    return path


def is_pulled(other: Registry, site: Proxy, made: Release, fetched: int = 1) -> bool:
    """Pull; the weights are asked for so many times, and what is there then is right and whole."""
    weights = blob_path(made.manifest.artifacts[0].digest)
    before, counted = site.requests("GET", weights), Counted()
    other.pull("acme/large", site.url, counted)
    assert site.requests("GET", weights) - before == fetched
    assert counted.moved["model.onnx"] == SIZE
    assert not (other.store.root / "local" / "partial" / weights.rpartition("/")[2]).exists()
    return other.get(made.ref).digest == made.digest and not owner.verify(other).damages


def test_goes_on_where_it_was_cut_off(other, site, made, weights, arriving):
    unpublished(other, site, halved(blob_path(weights), "reset"))
    assert arriving.stat().st_size == 6 * MIB
    assert is_pulled(other, site, made)


KILLED = """
import sys
from onnxreg.registry import Registry
from onnxreg.registry.store import directory
directory.MIN_RESUMABLE_BYTES = 2**21
Registry(sys.argv[1]).pull("acme/large", sys.argv[2])
"""


def test_goes_on_after_a_kill(other, site, made, weights, arriving):
    site.plan = halved(blob_path(weights), "stalled")
    process = subprocess.Popen([sys.executable, "-c", KILLED, other.place, site.url])
    while "stalled" not in site.met:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert arriving.stat().st_size == 6 * MIB
    site.heal()
    assert is_pulled(other, site, made)


class FullDisk(Disk):
    """A disk on which a partial download has room for so many more bytes."""

    room = 7 * MIB

    def extend(self, path: Path) -> Any:
        disk = self

        class Limited(io.FileIO):
            def write(self, data: Any, /) -> int:
                disk.room -= len(data)
                if disk.room < 0:
                    raise OSError(errno.ENOSPC, "")
                return super().write(data)

        path.touch()
        return Limited(path, "r+")


def test_goes_on_after_a_full_disk_as_the_hint_says(other, site, made, arriving):
    other.store.disk = FullDisk()
    with pytest.raises(HostError) as caught:
        other.pull("acme/large", site.url)
    assert "run the same command again" in str(caught.value.hint)
    assert 6 * MIB <= arriving.stat().st_size <= 7 * MIB
    other.store.disk = Disk()
    assert is_pulled(other, site, made)


def test_small_files_that_arrived_are_not_fetched_again(registry, other, site, tmp_path):
    names = [f"model-{number}.onnx" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode() * 100)
    artifacts = tuple(DraftArtifact("onnx", "float32", name) for name in names)
    registry.add(Draft("acme/large", tmp_path, artifacts))
    served = itertools.count()
    unpublished(
        other, site, lambda method, path: "error" if "/blobs/" in path and next(served) >= 12 else None
    )
    other.check()
    other.pull("acme/large", site.url)
    assert 0 < len([path for _, path in site.seen if "/blobs/" in path]) < 18
    other.check()


TORN = {
    "empty": b"",
    "zeros": bytes(3 * MIB),
    "short": b"\xff" * (SIZE - 1),
    "same size": b"\xff" * SIZE,
    "too long": b"\xff" * (SIZE + 1),
    "complete": DATA,
}


@pytest.mark.parametrize("torn", sampled(TORN, 2))
def test_a_torn_file_is_not_believed_and_a_complete_one_is(other, site, made, arriving, torn):
    arriving.write_bytes(TORN[torn])
    arriving.chmod(0o444)
    assert is_pulled(other, site, made, 1 if torn in ("empty", "too long", "complete") else 2)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_link_in_its_place_leads_no_write_elsewhere(other, site, made, arriving, tmp_path, link):
    victim = tmp_path / "tool"
    victim.write_bytes(b"somebody else's")
    victim.chmod(0o755)
    getattr(arriving, link)(victim)
    assert is_pulled(other, site, made)
    assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"somebody else's", 0o755)


def test_a_file_with_garbled_bytes_is_fetched_again(other, site, weights, made):
    faults = itertools.chain(["garbled"], itertools.repeat(None))
    part = blob_path(weights)
    site.plan = lambda method, path: next(faults) if method == "GET" and part in path else None
    assert is_pulled(other, site, made, 2)


def test_the_manifest_has_the_pieces_of_large_files(made):
    pieces = made.manifest.artifacts[0].pieces
    assert pieces is not None
    assert pieces.size == PIECE_BYTES
    assert list(pieces.digests) == [Digest.of(DATA[:PIECE_BYTES]), Digest.of(DATA[PIECE_BYTES:])]


@pytest.mark.parametrize("total", [1, 9, 10, 11, 20, 25])
@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_pieces_are_hashed_whatever_the_blocks(total, step):
    data = random.Random(total).randbytes(total)
    hasher = PieceHasher(10)
    for start in range(0, total, step):
        hasher.update(memoryview(data)[start : start + step])
    assert list(hasher.pieces().digests) == [Digest.of(data[i : i + 10]) for i in range(0, total, 10)]
    assert hasher.hexdigest() == Digest.of(data).hex


def test_no_file_has_too_many_pieces():
    for total in (PIECE_BYTES, PIECE_BYTES * MAX_PIECES, PIECE_BYTES * MAX_PIECES + 1, 2**45):
        size = piece_size(total)
        assert -(-total // size) <= MAX_PIECES and size % PIECE_BYTES == 0
        assert size == PIECE_BYTES or total > size // 2 * MAX_PIECES


def test_a_source_that_is_damaged_is_given_up(registry, other, site, made, weights, arriving):
    path = registry.store.root / blob_path(weights)
    path.chmod(0o644)
    path.write_bytes(bytes(SIZE))
    with pytest.raises(IntegrityError, match="is damaged"):
        other.pull("acme/large", site.url)
    assert list(other.names()) == []
    assert not list(arriving.parent.iterdir())


def test_two_pulls_at_once_neither_share_a_file_nor_wait(other, site, made, arriving, monkeypatch):
    acquire, waits = FileLock.acquire, list[float]()

    def acquired(lock: Any, timeout: float, **more: Any) -> Any:
        if lock.lock_file == f"{arriving}.lock":
            waits.append(timeout)
        return acquire(lock, timeout, **more)

    with FileLock(f"{arriving}.lock"):
        monkeypatch.setattr(FileLock, "acquire", acquired)
        assert is_pulled(other, site, made)
    assert waits == [0]


def test_a_collection_clears_what_nobody_goes_on_with(other, site, weights, arriving):
    unpublished(other, site, halved(blob_path(weights), "reset"))
    with FileLock(f"{arriving}.lock"):
        owner.gc(other)
    assert arriving.exists()
    owner.gc(other, dry_run=True)
    assert arriving.exists()
    owner.gc(other)
    assert not list(arriving.parent.iterdir())


def test_a_full_disk_is_noticed_before_anything_is_fetched(site, weights, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with pytest.raises(HostError, match="No space left"):
            Registry(small / "home").pull("acme/large", site.url)
        assert site.requests("GET", blob_path(weights)) == 0
    finally:
        subprocess.run(["umount", small], check=True)
