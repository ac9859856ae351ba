"""Repair: good copies come back verified, logs only from a copy of the same registry, no readable line is lost."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registries import owner
from support.registries.home import Home
from support.sampling import sampled

from onnxreg.registry.maintain import VerifyReport, repair
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

INDEX = Path("index/acme/pii.jsonl")


def run_repair(registry: Home, source: Home | None = None) -> VerifyReport:
    return repair(registry.store, source.store if source else None, KnownHeads())


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.fixture
def filled(registry) -> Home:
    for seed in "abc":
        registry.make(seed=seed)
    registry.tag("acme/pii:0.1.1", "stable")
    return registry


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "short": lambda path: overwrite(path, path.read_bytes()[:-1]),
    "damaged": lambda path: overwrite(path, path.read_bytes()[:-1] + b"#"),
    "link": lambda path: (path.unlink(), path.symlink_to("/dev/null"))[1],
}


@pytest.mark.parametrize("kind", sampled(DAMAGES, 2))
@pytest.mark.parametrize("what", ["artifact", "companion", "manifest"])
def test_a_bad_blob_is_replaced_from_any_registry_that_has_it(filled, other, kind, what):
    for version in ("0.1.0", "0.1.1", "0.1.2"):
        filled.push(f"acme/pii:{version}", other.place)
    published = filled.get("acme/pii:0.1.1")
    digests = {
        "artifact": published.manifest.artifacts[0].digest,
        "companion": published.manifest.files[0].digest,
        "manifest": published.digest,
    }
    path = filled.store.blob_path(digests[what])
    good = path.read_bytes()
    DAMAGES[kind](path)
    assert owner.verify(filled).damages
    done = run_repair(filled, other)
    assert not done.damages
    assert [damage.digest for damage in done.repaired] == [digests[what]]
    assert path.read_bytes() == good and not path.is_symlink()


def test_blobs_of_a_lost_manifest_are_repaired_too(filled, other):
    filled.push("acme/pii:0.1.2", other.place)
    published = filled.get("acme/pii:0.1.2")
    lost = [published.digest, published.manifest.artifacts[0].digest]
    for digest in lost:
        filled.store.blob_path(digest).unlink()
    done = run_repair(filled, other)
    assert [damage.digest for damage in done.repaired] == lost
    assert not done.damages


def test_a_bad_copy_there_is_named_and_the_others_are_repaired(filled, other):
    filled.push("acme/pii:0.1.2", other.place)
    bad, good = (artifact.digest for artifact in filled.get("acme/pii:0.1.2").manifest.artifacts)
    for digest in (bad, good):
        overwrite(filled.store.blob_path(digest), b"rotten")
    overwrite(other.store.blob_path(bad), b"rotten, too")
    done = run_repair(filled, other)
    assert [damage.digest for damage in done.repaired] == [good]
    (left,) = done.damages
    assert left.digest == bad and "has no good copy" in left.detail
    assert filled.store.blob_path(bad).read_bytes() == b"rotten"


def test_a_blob_under_a_generation_key_is_repaired_in_its_place(filled, other):
    filled.push("acme/pii:0.1.2", other.place)
    digest = filled.get("acme/pii:0.1.2").manifest.artifacts[0].digest
    plain, second = (filled.store.root / BlobKey(digest, generation).path for generation in (0, 1))
    plain.rename(second)
    overwrite(second, b"rotten")
    done = run_repair(filled, other)
    assert not done.damages
    assert Digest.of(second.read_bytes()) == digest and not plain.exists()


def test_a_bad_blob_that_nothing_readable_refers_to_is_left_to_a_collection(filled):
    path = filled.store.blob_path(Digest.of(b"forgotten"))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"for")
    done = run_repair(filled)
    assert not done.repaired and "`reg gc` deletes it" in done.damages[0].detail
    overwrite(filled.store.root / INDEX, b"rotten")
    assert "only a copy of this very registry" in run_repair(filled).damages[0].detail
    assert path.exists()


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_a_checkpoint_is_made_again_from_the_log(sealed, kind):
    checkpoint = sealed.state("acme/pii").checkpoint
    assert checkpoint is not None
    DAMAGES[kind](sealed.store.blob_path(checkpoint))
    assert owner.verify(sealed).damages
    assert not run_repair(sealed).damages


def test_a_sealed_segment_comes_from_a_mirror_alone(sealed, other):
    copied = sealed.copied("mirror")
    sealed.push("acme/pii", other.place)
    (segment,) = sealed.state("acme/pii").segments
    overwrite(sealed.store.blob_path(segment), b"rotten")
    before = (sealed.store.root / INDEX).read_bytes()
    assert not run_repair(sealed, other).repaired
    assert not run_repair(sealed, copied).damages
    assert (sealed.store.root / INDEX).read_bytes() == before


def test_a_log_is_rebuilt_with_a_copy_of_what_the_disk_does_not_read(filled, monkeypatch):
    copied, path = filled.copied("mirror"), filled.store.root / INDEX
    manifest, open_blob = filled.get("acme/pii:0.1.1").digest, filled.store.open_blob
    good = path.read_bytes()

    def read(digest: Digest, start: int = 0) -> BinaryIO:
        if digest == manifest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_blob(digest, start)

    overwrite(path, good.replace(b"publish", b"publosh", 1))
    monkeypatch.setattr(filled.store, "open_blob", read)
    assert [damage.kind for damage in run_repair(filled, copied).repaired] == ["log"]
    assert path.read_bytes() == good


@pytest.mark.parametrize(
    ("line", "right", "rotten"),
    [(0, b"{", b"#"), (2, b"publish", b"publosh"), (2, b'"time":"20', b'"time":"21')],
)
def test_a_rotten_line_comes_from_the_mirror(filled, line, right, rotten):
    """Also one that can still be read: the next line has another digest for it. A line that the mirror lacks stays."""
    copied = filled.copied("mirror")
    filled.make(seed="d")
    path = filled.store.root / INDEX
    good = path.read_bytes()
    lines = good.split(b"\n")
    lines[line] = lines[line].replace(right, rotten, 1)
    overwrite(path, b"\n".join(lines))
    assert path.read_bytes() != good
    done = run_repair(filled, copied)
    assert not done.damages
    assert path.read_bytes() == good
    assert "4 lines were taken" in done.repaired[0].detail and "1 were saved" in done.repaired[0].detail


@pytest.mark.parametrize(("rotten", "kept_lines"), [(5, 4), (6, 5)])
def test_lines_that_nothing_joins_are_named_and_the_file_is_kept(filled, rotten, kept_lines):
    copied = filled.copied("mirror")
    filled.make(seed="d")
    filled.make(seed="e")
    path = filled.store.root / INDEX
    lines = path.read_bytes().split(b"\n")
    lines[rotten] = b"rotten"
    overwrite(path, b"\n".join(lines))
    (repaired,) = [
        damage for damage in owner.repair(filled, source=copied.place).repaired if damage.digest is None
    ]
    assert f"lines {rotten} to 6 could not be saved" in repaired.detail
    (kept,) = (filled.store.root / "local/damaged/acme").iterdir()
    assert kept.read_bytes() == b"\n".join(lines)
    assert len(filled.log("acme/pii")) == kept_lines
    assert [damage.kind for damage in owner.verify(filled).damages] == ["history"], "lines are lost"
    filled.heads.reset(filled.id)
    filled.check()


def test_a_fork_is_not_repaired(filled):
    copied = filled.copied("mirror")
    for place in (filled, copied):
        place.yank("acme/pii:0.1.0")
        place.heads.reset(filled.id)
    path = filled.store.root / INDEX
    overwrite(path, b"#" + path.read_bytes()[1:])
    before = path.read_bytes()
    done = run_repair(filled, copied)
    assert not done.repaired and "different histories" in done.damages[0].detail
    assert path.read_bytes() == before


def test_a_broken_mirror_and_another_registry_give_no_log(filled, other):
    filled.push("acme/pii", other.place)
    copied = filled.copied("mirror")
    for place in (filled, copied):
        overwrite(place.store.root / INDEX, b"rotten")
    assert not run_repair(filled, copied).repaired
    done = run_repair(filled, other)
    assert not done.repaired
    assert "only a copy of this very registry" in done.damages[0].detail


def test_a_model_that_is_gone_comes_back_from_a_mirror(filled):
    copied = filled.copied("mirror")
    good = (filled.store.root / INDEX).read_bytes()
    (filled.store.root / INDEX).unlink()
    filled.heads.reset(filled.id)
    assert not owner.verify(filled).damages, "nothing here says that there was such a model"
    assert not run_repair(filled, copied).damages
    assert (filled.store.root / INDEX).read_bytes() == good


def test_stray_files_are_left_alone(filled):
    (filled.store.root / "index" / "notes.txt").write_bytes(b"mine")
    done = run_repair(filled)
    assert [damage.kind for damage in done.damages] == ["stray"] and not done.repaired


def test_a_registry_does_not_repair_itself_from_itself(filled):
    with pytest.raises(ConflictError, match="this registry itself"):
        owner.repair(filled, source=filled.place)


def test_without_a_remote_a_wrong_state_line_is_made_again_from_the_log(filled):
    path = filled.store.root / INDEX
    good = path.read_bytes()
    overwrite(path, good.replace(b'"seq":3,"size"', b'"seq":2,"size"'))
    assert [damage.kind for damage in owner.verify(filled).damages] == ["state"]
    filled.store.blob_path(filled.get("acme/pii:0.1.1").manifest.artifacts[0].digest).unlink()
    done = owner.repair(filled)
    assert len(done.repaired) == 1 and path.read_bytes() == good
    assert "no remote is named" in done.damages[0].detail


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> tuple[Path, Path]:
    """A registry with six lines and its mirror of the first three."""
    root = tmp_path_factory.mktemp("grown")
    registry = Home(root / "ours")
    for number in range(6):
        if number == 3:
            shutil.copytree(root / "ours", root / "mirror")
        workspace = root / f"workspace{number}"
        workspace.mkdir()
        (workspace / "model.onnx").write_bytes(b"weights %d" % number)
        registry.add(Draft("acme/pii", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    return root / "ours", root / "mirror"


@given(data=st.data())
def test_repair_of_any_damaged_index_forges_no_line(grown, data):
    """After any one damage the registry is clean, and its lines are those of the good log from the first one on."""
    ours, copied = DirectoryRegistry.open(grown[0]), DirectoryRegistry.open(grown[1])
    path = grown[0] / INDEX
    good = path.read_bytes()
    damaged = bytearray(good)
    position = data.draw(st.integers(0, len(damaged) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "drop"])):
        case "flip":
            damaged[position] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del damaged[position:]
        case "drop":
            del damaged[position : position + data.draw(st.integers(1, 3000))]
    try:
        path.write_bytes(damaged)
        with TemporaryDirectory() as heads:  # of a user who knows no lines that the damage took away
            assert not repair(ours, copied, KnownHeads(Path(heads))).damages
        kept = path.read_bytes().split(b"\n")[1:-1]
        assert len(kept) >= 3
        assert kept == good.split(b"\n")[1:-1][: len(kept)]
    finally:
        path.write_bytes(good)
