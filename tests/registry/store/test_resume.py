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
from typing import Any, BinaryIO, cast

import pytest
from filelock import FileLock
from support.registries import owner
from support.servers import static
from support.servers.faults import Proxy, proxy

from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import Release
from onnxreg.registry.store import directory, requests
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.streams import PieceHasher
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.bounds import MAX_PIECES
from onnxreg.schema.core.digest import PIECE_BYTES, Digest, piece_size
from onnxreg.schema.core.errors import HostError, IntegrityError, RemoteError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

MIB = 2**20
SIZE = 12 * MIB + 5


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MIN_RESUMABLE_BYTES", 2 * MIB)
    monkeypatch.setattr(requests, "MAX_TRIES", 2)


@pytest.fixture
def made(registry: Registry, tmp_path: Path) -> Release:
    """A version with one large file."""
    root = tmp_path / "large"
    root.mkdir()
    (root / "model.onnx").write_bytes(random.Random(1).randbytes(SIZE))
    return registry.add(Draft("acme/large", root, (DraftArtifact("onnx", "float32", "model.onnx"),)))


@pytest.fixture
def weights(made: Release) -> Digest:
    return made.manifest.artifacts[0].digest


@pytest.fixture
def site(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


def cut(part: str, then: str) -> Callable[[str, str], str | None]:
    """A plan: half of the file with this path arrives, then every GET of it meets a fault."""
    count = itertools.count()

    def plan(method: str, path: str) -> str | None:
        if method != "GET" or part not in path:
            return None
        return then if next(count) else "faltering"

    return plan


def once(fault: str, part: str) -> Callable[[str, str], str | None]:
    """A plan: the fault meets the first GET of this path."""
    count = itertools.count()
    return lambda method, path: fault if method == "GET" and part in path and not next(count) else None


class Counted(Progress):
    """Adds up what it is told of each file."""

    def __init__(self) -> None:
        self.moved: Counter[str] = Counter()

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda count: self.moved.update({path: count})


def arriving(registry: Registry, digest: Digest) -> Path:
    return registry.store.root / "local" / "partial" / digest.hex


def is_intact(registry: Registry, made: Release) -> bool:
    found = registry.get(made.ref)
    return found.digest == made.digest and not owner.verify(registry).damages


def test_goes_on_where_it_was_cut_off(other: Registry, site: Proxy, made: Release, weights: Digest) -> None:
    site.plan = cut(blob_path(weights), "reset")
    with pytest.raises(RemoteError):
        other.pull("acme/large", site.url)
    assert arriving(other, weights).stat().st_size == 6 * MIB
    assert list(other.names()) == []
    site.plan = lambda method, path: None
    site.seen.clear()
    counted = Counted()
    other.pull("acme/large", site.url, counted)
    assert counted.moved["model.onnx"] == SIZE
    assert site.requests("GET", blob_path(weights)) == 1
    assert is_intact(other, made)
    assert not arriving(other, weights).exists()


KILLED = """
import sys
from onnxreg.registry import Registry
from onnxreg.registry.store import directory
directory.MIN_RESUMABLE_BYTES = 2**21
Registry(sys.argv[1]).pull("acme/large", sys.argv[2])
"""


def test_goes_on_after_a_kill(other: Registry, site: Proxy, made: Release, weights: Digest) -> None:
    site.plan = cut(blob_path(weights), "stalled")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(other.store.root), site.url])
    while "stalled" not in site.met:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert arriving(other, weights).stat().st_size == 6 * MIB
    site.plan = lambda method, path: None
    site.seen.clear()
    other.pull("acme/large", site.url)
    assert site.requests("GET", blob_path(weights)) == 1
    assert is_intact(other, made)


class FullDisk(Disk):
    """A disk on which a partial download has room for so many more bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def extend(self, path: Path) -> BinaryIO:
        path.touch()
        return cast(BinaryIO, Limited(path, self))


class Limited(io.FileIO):
    """A file on a full disk."""

    def __init__(self, path: Path, disk: FullDisk) -> None:
        super().__init__(path, "r+")
        self._disk = disk

    def write(self, data: Any, /) -> int:
        self._disk.room -= len(data)
        if self._disk.room < 0:
            raise OSError(errno.ENOSPC, "")
        return super().write(data)


def test_goes_on_after_a_full_disk_as_the_hint_says(
    other: Registry, site: Proxy, made: Release, weights: Digest
) -> None:
    other.store.disk = FullDisk(7 * MIB)
    with pytest.raises(HostError) as caught:
        other.pull("acme/large", site.url)
    assert "a large download continues where it stopped" in str(caught.value.hint)
    assert 6 * MIB <= arriving(other, weights).stat().st_size <= 7 * MIB
    other.store.disk = Disk()
    site.seen.clear()
    other.pull("acme/large", site.url)
    assert site.requests("GET", blob_path(weights)) == 1
    assert is_intact(other, made)


def test_small_files_that_arrived_are_not_fetched_again(
    registry: Registry, other: Registry, site: Proxy, tmp_path: Path
) -> None:
    root = tmp_path / "many"
    root.mkdir()
    names = [f"model-{number}.onnx" for number in range(20)]
    for name in names:
        (root / name).write_bytes(name.encode() * 100)
    registry.add(Draft("acme/many", root, tuple(DraftArtifact("onnx", "float32", name) for name in names)))
    served = itertools.count()

    def plan(method: str, path: str) -> str | None:
        return "error" if "/blobs/" in path and next(served) >= 12 else None

    site.plan = plan
    with pytest.raises(RemoteError):
        other.pull("acme/many", site.url)
    assert list(other.names()) == []
    assert not owner.verify(other).damages
    site.plan = lambda method, path: None
    before = {path for path, answer in zip(site.seen, site.answers, strict=False) if answer in (200, 206)}
    site.seen.clear()
    other.pull("acme/many", site.url)
    again = [path for path in site.seen if "/blobs/" in path[1]]
    assert 0 < len(again) < 18
    assert len(before) >= 5
    assert not owner.verify(other).damages


@pytest.mark.parametrize(
    ("byte", "size"),
    [(b"\0", 0), (b"\0", 3 * MIB), (b"\xff", SIZE - 1), (b"\xff", SIZE), (b"\xff", SIZE + 1)],
    ids=["empty", "zeros", "short", "same size", "too long"],
)
def test_a_torn_file_is_not_believed(
    other: Registry, site: Proxy, made: Release, weights: Digest, byte: bytes, size: int
) -> None:
    arriving(other, weights).parent.mkdir(parents=True)
    arriving(other, weights).write_bytes(byte * size)
    arriving(other, weights).chmod(0o444)
    other.pull("acme/large", site.url)
    assert is_intact(other, made)


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_link_in_its_place_leads_no_write_elsewhere(
    other: Registry, site: Proxy, made: Release, weights: Digest, tmp_path: Path, link: str
) -> None:
    victim = tmp_path / "tool"
    victim.write_bytes(b"somebody else's")
    victim.chmod(0o755)
    arriving(other, weights).parent.mkdir(parents=True)
    if link == "hard":
        arriving(other, weights).hardlink_to(victim)
    else:
        arriving(other, weights).symlink_to(victim)
    other.pull("acme/large", site.url)
    assert is_intact(other, made)
    assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"somebody else's", 0o755)


def test_a_complete_unpublished_file_is_not_fetched_again(
    other: Registry, site: Proxy, made: Release, weights: Digest
) -> None:
    site.plan = lambda method, path: "error" if blob_path(made.digest) in path else None
    with pytest.raises(RemoteError):
        other.pull("acme/large", site.url)
    other.store.store.make_scratch()
    arriving(other, weights).parent.mkdir(exist_ok=True)
    arriving(other, weights).write_bytes(random.Random(1).randbytes(SIZE))
    site.plan = lambda method, path: None
    site.seen.clear()
    other.pull("acme/large", site.url)
    assert site.requests("GET", blob_path(weights)) <= 1
    assert is_intact(other, made)


def test_a_file_with_garbled_bytes_is_fetched_again(
    other: Registry, site: Proxy, weights: Digest, made: Release
) -> None:
    site.plan = once("garbled", blob_path(weights))
    other.pull("acme/large", site.url)
    assert site.requests("GET", blob_path(weights)) == 2
    assert is_intact(other, made)


def test_the_manifest_has_the_pieces_of_large_files(made: Release) -> None:
    data = random.Random(1).randbytes(SIZE)
    pieces = made.manifest.artifacts[0].pieces
    assert pieces is not None
    assert pieces.size == PIECE_BYTES
    assert list(pieces.digests) == [Digest.of(data[:PIECE_BYTES]), Digest.of(data[PIECE_BYTES:])]


@pytest.mark.parametrize("total", [1, 9, 10, 11, 20, 25])
@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_pieces_are_hashed_whatever_the_blocks(total: int, step: int) -> None:
    data = random.Random(total).randbytes(total)
    hasher = PieceHasher(10)
    for start in range(0, total, step):
        hasher.update(memoryview(data)[start : start + step])
    assert list(hasher.pieces().digests) == [Digest.of(data[i : i + 10]) for i in range(0, total, 10)]
    assert hasher.hexdigest() == Digest.of(data).hex


def test_no_file_has_too_many_pieces() -> None:
    for total in (PIECE_BYTES, PIECE_BYTES * MAX_PIECES, PIECE_BYTES * MAX_PIECES + 1, 2**45):
        size = piece_size(total)
        assert -(-total // size) <= MAX_PIECES and size % PIECE_BYTES == 0
        assert size == PIECE_BYTES or total > size // 2 * MAX_PIECES


def test_a_source_that_is_damaged_is_given_up(
    registry: Registry, other: Registry, site: Proxy, made: Release, weights: Digest
) -> None:
    path = registry.store.root / blob_path(weights)
    path.chmod(0o644)
    path.write_bytes(bytes(SIZE))
    with pytest.raises(IntegrityError, match="is damaged"):
        other.pull("acme/large", site.url)
    assert list(other.names()) == []
    assert not list(arriving(other, weights).parent.iterdir())


def test_two_pulls_at_once_do_not_share_a_file(
    other: Registry, site: Proxy, made: Release, weights: Digest
) -> None:
    arriving(other, weights).parent.mkdir(parents=True)
    with FileLock(f"{arriving(other, weights)}.lock"):
        other.pull("acme/large", site.url)
    assert is_intact(other, made)


def test_a_collection_clears_what_nobody_goes_on_with(
    other: Registry, site: Proxy, made: Release, weights: Digest
) -> None:
    site.plan = cut(blob_path(weights), "reset")
    with pytest.raises(RemoteError):
        other.pull("acme/large", site.url)
    with FileLock(f"{arriving(other, weights)}.lock"):
        owner.gc(other)
    assert arriving(other, weights).exists()
    owner.gc(other, dry_run=True)
    assert arriving(other, weights).exists()
    owner.gc(other)
    assert not list(arriving(other, weights).parent.iterdir())


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    registry: Registry, site: Proxy, made: Release, weights: Digest, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with pytest.raises(HostError, match="No space left"):
            Registry(small / "home").pull("acme/large", site.url)
        assert site.requests("GET", blob_path(weights)) == 0
    finally:
        subprocess.run(["umount", str(small)], check=True)
