"""Archives: the same bytes for the same versions, read in place as any registry, and every damage found."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.home import Home

from onnxreg.registry import Registry
from onnxreg.registry import archive as archives
from onnxreg.registry.archive import ABOUT, choose, create_archive, open_archive
from onnxreg.registry.log.contents import Selection
from onnxreg.registry.maintain import VerifyReport, verify
from onnxreg.registry.resolution import NoAnswerError
from onnxreg.registry.store import directory
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import errors
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RemoteError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import Progress
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

FROZEN = Path(__file__).parents[2] / "fixtures" / "registry-v1" / "tree"
FROZEN_ARCHIVE = "1d322167af6c63951e5659e65c0e28b0b815086936f1c93d763f06bcefd2ce44"
"""SHA-256 of the archive of the whole frozen tree, whatever release of Python writes it."""
PII = "acme/pii:0.1.0"
INDEX = index_path("acme/pii")


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("three")
    registry = Registry(root / "home")
    for seed in "abc":
        registry.add(write_draft(root / seed, "acme/pii", seed, 100))
    registry.tag(PII, "stable", "first")
    registry.yank("acme/pii:0.1.1", "wrong")
    registry.add(write_draft(root / "t", "tiny", "t", 100))
    return registry.store.root


@pytest.fixture
def three(template, tmp_path) -> Home:
    """Three versions of one model, the first held by a channel, the second yanked; and another model."""
    return Home(shutil.copytree(template, tmp_path / "home"))


@pytest.fixture
def path(tmp_path) -> Path:
    """Where archives are written."""
    return tmp_path / "a.onnxreg"


@pytest.fixture
def made(three, path) -> Path:
    """An archive of the first version."""
    archive(three, path, PII)
    return path


def archive(registry: Registry, target: Path, *refs: str, every: bool = False) -> tuple[int, int]:
    return create_archive(registry.store, choose(registry.store, refs, every), target)


def check(path: Path) -> VerifyReport:
    return verify(open_archive(path))


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as found:
        return {name: found.read(name) for name in found.namelist()}


def rewrite(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as made:
        for name in sorted(files):
            made.writestr(name, files[name])


def weights(registry: Registry, ref: str = PII) -> str:
    """The path of the blob of the first artifact."""
    return blob_path(registry.get(ref).manifest.artifacts[0].digest)


# What is carried, and read


def test_chosen_versions_are_carried_with_the_whole_history(three, path):
    blobs, size = archive(three, path, PII)
    assert (open_archive(path).carried, size) == ({"acme/pii": {Version(0, 1, 0)}}, path.stat().st_size)
    found = entries(path)
    assert found[INDEX] == (three.store.root / INDEX).read_bytes()
    assert all(blob_path(file.digest) in found for file in three.get(PII).manifest.all_files())
    assert blob_path(three.get("acme/pii:0.1.2").digest) in found
    assert weights(three, "acme/pii:0.1.2") not in found
    assert len(found) == blobs + 3
    report = check(path)
    assert (report.damages, report.versions, report.blobs) == ([], 1, blobs)


def test_the_same_versions_give_the_same_bytes_of_a_plain_zip(three, tmp_path):
    one, two, copy = (tmp_path / f"{number}.onnxreg" for number in range(3))
    archive(three, one, "tiny", PII)
    archive(three, two, PII, "tiny")
    create_archive(open_archive(one), open_archive(one).carried or {}, copy)
    assert one.read_bytes() == two.read_bytes() == copy.read_bytes()
    with zipfile.ZipFile(one) as found:
        assert found.namelist() == sorted(found.namelist()) and found.testzip() is None
        assert {each.date_time for each in found.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_an_archive_is_a_registry_to_read_from(three, other, path):
    archive(three, path, PII, "acme/pii:0.1.1")
    done = other.pull(PII, str(path), channels=["stable"])
    assert [str(tag.version) for tag in done.channels] == ["0.1.0"]
    assert other.get(PII).data == three.get(PII).data
    other.check()
    line = other.log("acme/pii")[0]
    assert line.via is not None and line.via.registry == three.id
    again = other.pull(PII, str(path))
    assert (again.events, again.blobs) == (0, 0)
    assert list(open_archive(path).names()) == ["acme/pii"]
    assert owner.verify(other, "acme/pii", remote=open_archive(path)).versions == 2
    assert not owner.verify(other, remote=open_archive(path)).damages
    artifact = three.get(PII).manifest.artifacts[0]
    whole = (three.store.root / blob_path(artifact.digest)).read_bytes()
    for start in (0, 1, artifact.size - 1, artifact.size, artifact.size + 5):
        with open_archive(path).open_blob(artifact.digest, start) as stream:
            assert stream.read() == whole[start:]


def test_an_archive_that_is_cut_off_while_it_is_read(three, path, tmp_path):
    three.add(write_draft(tmp_path / "large", "large", "l", 2**20))
    archive(three, path, "large")
    remote, digest = open_archive(path), three.get("large").manifest.artifacts[0].digest
    with remote.open_blob(digest) as stream:
        stream.read(100)
        os.truncate(path, 10_000)
        with pytest.raises(IntegrityError, match="cut off"):
            stream.read()
    with pytest.raises(IntegrityError):
        remote.open_blob(digest)


def test_no_answer_is_a_version_that_is_not_carried(three, other, made):
    """The newest is 0.1.2, and the archive has the files of 0.1.0."""
    with pytest.raises(NotFoundError, match=r"carries the files of acme/pii:0\.1\.0"):
        other.pull("acme/pii:0.1.2", str(made))
    assert other.names() == []
    found = three.resolve("acme/pii", remote=open_archive(made))
    assert found.located.version == Version(0, 1, 0)
    assert {each.code for each in found.outcome.rejected if each.version == Version(0, 1, 2)} == {"not-held"}
    with pytest.raises(NoAnswerError) as refused:
        three.resolve("acme/pii:0.1.2", remote=open_archive(made))
    assert "is not held here" in refused.value.hint


def test_nothing_is_written_to_an_archive(three, made, tmp_path):
    before = made.read_bytes()
    for act in (
        lambda: three.push("tiny", str(made)),
        lambda: three.push(PII, str(made)),  # which it carries
        lambda: owner.gc(three, remote=open_archive(made)),
    ):
        with pytest.raises(RemoteError, match="an archive is only read"):
            act()
    assert made.read_bytes() == before
    with pytest.raises(InputError, match="would be an archive"):
        three.push("tiny", str(tmp_path / "new.onnxreg"))


def test_entries_beyond_2_gib_are_read(three, path, monkeypatch):
    """There the directory names another version of the format than the entry's own header."""
    with monkeypatch.context() as patch:
        patch.setattr("zipfile.ZIP64_LIMIT", 500)
        archive(three, path, every=True)
    assert not check(path).damages


# From archive to registry


def test_a_whole_archive_mirrors(three, other, tmp_path):
    """Same id: the later archive brings the copy up to date; the earlier one then has nothing to bring."""
    first, second, there = tmp_path / "1.onnxreg", tmp_path / "2.onnxreg", tmp_path / "mirror"
    archive(three, first, every=True)
    three.tag("acme/pii:0.1.2", "stable")
    archive(three, second, every=True)
    for path, events in ((first, 6), (second, 1), (first, 0)):
        done = mirror(*open_both(other.remotes, str(path), str(there)))
        assert (done.events, done.skipped) == (events, [])
    copy = Registry(there, create=False)
    assert copy.id == three.id and not owner.verify(copy).damages
    assert copy.log("acme/pii") == three.log("acme/pii")


def test_a_fork_in_an_archive_is_refused(three, other, tmp_path, monkeypatch):
    first, second, there = tmp_path / "1.onnxreg", tmp_path / "2.onnxreg", str(tmp_path / "mirror")
    index = three.store.root / index_path("tiny")
    before = index.read_bytes()
    three.tag("tiny", "stable", "one")
    archive(three, first, every=True)
    index.chmod(0o644)
    index.write_bytes(before)
    monkeypatch.setenv("REG_STATE", str(tmp_path / "another user"))
    three.heads = KnownHeads()
    three.tag("tiny", "stable", "another")
    archive(three, second, every=True)
    monkeypatch.setenv("REG_STATE", str(tmp_path / "a third user"))
    mirror(*open_both(other.remotes, str(first), there))
    with pytest.raises(errors.ForkError):
        mirror(*open_both(other.remotes, str(second), there))


def test_a_partial_archive_is_no_whole_copy(three, other, path, tmp_path):
    """Into a mirror it brings nothing half; into a registry of its own the versions that it carries."""
    archive(three, path, PII, "tiny")
    (refused,) = mirror(*open_both(other.remotes, str(path), str(tmp_path / "mirror"))).skipped
    assert (refused.name, type(refused.error).__name__) == ("acme/pii", "MissingBlobError")
    done = mirror(*open_both(other.remotes, str(path), other.place))
    assert (done.versions, done.skipped) == (2, [])
    assert [str(each) for each in other.state("acme/pii").versions] == ["0.1.0"]
    other.check()
    (three.store.root / weights(three, "tiny")).unlink()
    done = three.pull("tiny", str(path))
    assert (done.events, done.blobs) == (0, 1), "lost files come back to the registry of the archive"
    assert not owner.verify(three).damages


def test_every_kind_of_event_travels_and_comes_back(other, path, tmp_path):
    """The frozen tree: statements, sealed segments, drops, purges, expiry, a blob under a generation key."""
    frozen = Registry(shutil.copytree(FROZEN, tmp_path / "frozen"), create=False)
    archive(frozen, path, every=True)
    assert Digest.of(path.read_bytes()).hex == FROZEN_ARCHIVE, "the bytes of archives are part of the format"
    assert not check(path).damages
    assert not mirror(*open_both(other.remotes, str(path), str(tmp_path / "mirror"))).skipped
    copy = Registry(tmp_path / "mirror", create=False)
    assert not owner.verify(copy).damages
    for name in frozen.names():
        assert copy.log(name) == frozen.log(name)
    kinds = {line.event.kind for name in copy.names() for line in copy.log(name)}
    assert {"attest", "purge", "drop", "expire"} <= kinds


def test_a_partial_version_is_archived_as_held(three, other, path):
    other.pull(PII, str(three.store.root), selection=Selection(("onnx-int8",)))
    archive(other, path, PII)
    assert not check(path).damages
    assert weights(three) not in entries(path)


# Writing


def test_an_archive_of_nothing_is_refused(three, other, path):
    for refs, family in (
        ((), InputError),
        (("acme/none",), NotFoundError),
        (("acme/pii:9.0.0",), NotFoundError),
    ):
        with pytest.raises(family):
            archive(three, path, *refs)
    with pytest.raises(InputError, match="nothing to archive"):
        archive(other, path, every=True)
    assert not list(path.parent.glob("*onnxreg*"))


def test_damage_at_the_source_makes_no_archive(three, path):
    blob = three.store.root / weights(three, "tiny")
    blob.chmod(0o644)
    data = blob.read_bytes()
    for spoiled in (data[:-1], data[:-1] + b"?", data + b"?"):
        blob.write_bytes(spoiled)
        with pytest.raises(IntegrityError):
            archive(three, path, "tiny")
    index = three.store.root / index_path("tiny")
    index.chmod(0o644)
    index.write_bytes(index.read_bytes().replace(b'"task":"token-', b'"task":"tokem-'))
    blob.write_bytes(data)
    with pytest.raises(IntegrityError, match="not what its log says"):
        archive(three, path, "tiny")
    assert not list(path.parent.glob("*onnxreg*"))


def test_existing_files_stay(three, path, tmp_path):
    stranger = tmp_path / "notes.txt"
    stranger.write_text("mine")
    for target in (stranger, tmp_path):
        with pytest.raises(InputError):
            archive(three, target, "tiny")
    assert stranger.read_text() == "mine"
    archive(three, path, "tiny")
    archive(three, path, PII)
    assert open_archive(path).carried.keys() == {"acme/pii"}


KILLED = """
import sys, time
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.store import streams
from onnxreg.registry import archive

def slow(*arguments):
    print("writing", flush=True)
    time.sleep(60)

streams.check = slow
registry = Registry(sys.argv[1])
archive.create_archive(registry.store, archive.choose(registry.store, ["tiny"]), Path(sys.argv[2]))
"""


def test_a_kill_leaves_no_archive_and_the_next_one_sweeps(three, tmp_path):
    target = tmp_path / "site" / "a.onnxreg"
    command = [sys.executable, "-c", KILLED, str(three.store.root), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline() == b"writing\n"
        assert [path for path in target.parent.iterdir() if path.is_dir()]
        running.send_signal(signal.SIGKILL)
    assert not target.exists()
    archive(three, target, "tiny")
    assert list(target.parent.iterdir()) == [target]
    assert not check(target).damages


def test_memory_stays_flat(registry, path):
    """Peaks of Python's own allocations, for a blob of a few bytes and one of 32 MiB."""
    registry.make(name="big", size=32 * 2**20 // 7)
    registry.make(name="small")
    peaks = []
    for name in ("small", "big"):
        tracemalloc.start()
        archive(registry, path, name)
        assert not check(path).damages
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert path.stat().st_size > 32 * 2**20
    assert peaks[1] < peaks[0] + 8 * 2**20


class Told(Progress):
    """What a progress is told."""

    def __init__(self) -> None:
        self.planned, self.moved = [], Counter[str]()

    def plan(self, files: int, size: int) -> None:
        self.planned.append((files, size))

    def file(self, path: str, size: int | None) -> Any:
        return contextlib.nullcontext(lambda count: self.moved.update({path: count}))


def test_progress_of_an_archive_and_of_a_pull_that_goes_on(three, other, path, monkeypatch):
    told = Told()
    create_archive(three.store, choose(three.store, ["tiny"]), path, told)
    sizes = [len(data) for data in entries(path).values()]
    assert told.planned == [(len(sizes), sum(sizes))] and told.moved.total() == sum(sizes)
    monkeypatch.setattr(directory, "MIN_RESUMABLE_BYTES", 1)
    artifact = three.get("tiny").manifest.artifacts[0]
    arriving = other.store.root / "local" / "partial" / artifact.digest.hex
    arriving.parent.mkdir(parents=True)
    arriving.write_bytes((three.store.root / weights(three, "tiny")).read_bytes()[:300])
    told = Told()
    other.pull("tiny", str(path), told)
    assert told.moved["model.onnx"] == artifact.size


# Archives of others


def appended(name: str | zipfile.ZipInfo) -> Callable[[Path], None]:
    """A spoiler: one more entry."""

    def spoil(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as made:
            made.writestr(name, b"x")

    return spoil


def replaced(about: bytes | None, path: str = ABOUT) -> Callable[[Path], None]:
    """A spoiler: another entry in the place of that of a path, or none."""

    def spoil(archive: Path) -> None:
        files = {name: data for name, data in entries(archive).items() if name != path}
        rewrite(archive, files if about is None else {**files, path: about})

    return spoil


def share_bytes(path: Path) -> None:
    """One kernel of bytes under many names is how a bomb without compression is made."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as found:
        first, second, *_ = found.infolist()
        begin = data.index(b"PK\1\2", found.start_dir)
    at = data.index(b"PK\1\2", begin + 4) + 42
    assert int.from_bytes(data[at : at + 4], "little") == second.header_offset
    path.write_bytes(data[:at] + (first.header_offset + 8).to_bytes(4, "little") + data[at + 4 :])


def rename(path: Path) -> None:
    rewrite(path, {ABOUT: b"{}", "index/a.jsonl-zz": b""})
    path.write_bytes(path.read_bytes().replace(b"jsonl-zz", b"jsonl\0zz"))


X = Digest.of(b"x")
LINK = zipfile.ZipInfo(blob_path(X))
LINK.external_attr = 0o120777 << 16
NO_ENTRIES = (
    *("../evil", "/etc/passwd", "blobs/sha256/../../x", "blobs\\sha256", "blobs/", "policy.json"),
    *("local/remotes.json", "index/../x.jsonl", "index/ACME.jsonl", "index/a\u202eb.jsonl"),
    *("gc/condemned/0123456789abcdef", f"{blob_path(X)}.1", f"blobs/sha256/00/{X.hex}", LINK),
)
HOSTILE: dict[str, tuple[str | None, Callable[[Path], None]]] = {
    **{str(name): ("which no registry has", appended(name)) for name in NO_ENTRIES},
    "a zero byte": ("which no registry has", rename),
    "two entries": ("two entries", appended(INDEX)),
    "compressed": (
        "compressed or encrypted",
        lambda path: rewrite(path, entries(path), zipfile.ZIP_DEFLATED),
    ),
    "shared bytes": (None, share_bytes),
    "newer": (
        None,
        lambda path: replaced(entries(path)[ABOUT].replace(b'_version":1', b'_version":2'))(path),
    ),
    "no archive.json": (None, replaced(None)),
    "no registry.json": (None, replaced(None, "registry.json")),
    "archive.json is no JSON": (None, replaced(b"{")),
    "archive.json of something else": (None, replaced(b'{"format":"x","format_version":1}')),
    "archive.json lists no list": (
        None,
        replaced(b'{"format":"onnxreg-archive","format_version":1,"versions":{"a":{}}}'),
    ),
}
"""A part of the message, and how an archive becomes one that is refused when it is opened."""


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_unread(made, case):
    words, spoil = HOSTILE[case]
    spoil(made)
    with pytest.raises(errors.HostError if case == "newer" else IntegrityError, match=words) as caught:
        open_archive(made)
    assert ("upgrade onnxreg" in caught.value.hint) == (case == "newer")


def test_the_models_of_an_archive_are_bounded(three, made, path, monkeypatch):
    names = (index_path(f"acme/m{number}") for number in range(archives.MAX_ARCHIVE_MODELS))
    rewrite(made, {**entries(made), **dict.fromkeys(names, b"{}\n")})
    with pytest.raises(IntegrityError):
        open_archive(made)
    made.unlink()
    monkeypatch.setattr(archives, "MAX_ARCHIVE_MODELS", 1)
    with pytest.raises(InputError):
        archive(three, path, every=True)
    assert not path.exists()
    monkeypatch.setattr(archives, "MAX_ARCHIVE_MODELS", 2)
    archive(three, path, every=True)
    monkeypatch.setattr(archives, "MAX_ARCHIVE_FILES", 3)
    with pytest.raises(IntegrityError):
        open_archive(path)


@pytest.mark.parametrize("name", ["a.onnxreg", "backup"])
def test_damage_is_damage_under_any_name(made, name):
    spoiled, data = made.with_name(name), made.read_bytes()
    for damaged in (data[:-1], data[: len(data) // 2], b"#!/bin/sh\n" + data, data + b"x"):
        spoiled.write_bytes(damaged)
        with pytest.raises(IntegrityError, match=str(spoiled)):
            open_archive(spoiled)
    for nothing in (b"", b"no zip at all"):
        spoiled.write_bytes(nothing)
        with pytest.raises(IntegrityError if spoiled.suffix else InputError):
            open_archive(spoiled)


def test_bytes_that_reach_into_the_directory_are_damage(made):
    with zipfile.ZipFile(made) as found:
        last = max(found.infolist(), key=lambda info: info.header_offset)
    data = bytearray(made.read_bytes())
    data[last.header_offset + 28 : last.header_offset + 30] = b"\xff\xff"
    made.write_bytes(data)
    with pytest.raises(IntegrityError, match="not where its directory says"):
        archives.ArchiveStore(made).open(last.filename)


Pristine = tuple[Path, dict[str, bytes]]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Pristine:
    root = tmp_path_factory.mktemp("pristine")
    (root / "model.onnx").write_bytes(b"weights")
    registry = Registry(root / "home")
    registry.add(Draft("m", root, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    path = root / "a.onnxreg"
    archive(registry, path, "m")
    return path, entries(path)


@given(st.data())
def test_any_flipped_bit_is_found_or_changes_nothing_that_counts(pristine, data):
    """Times, attributes and check sums of the container say nothing: what is read is what was written, or refused."""
    path, files = pristine
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    spoiled = path.with_name("spoiled.onnxreg")
    spoiled.write_bytes(whole)
    with contextlib.suppress(IntegrityError, InputError):
        if not check(spoiled).damages:
            remote = open_archive(spoiled)
            found = {name: remote.store.get(name) for name in files}
            assert {name: value and value[0] for name, value in found.items()} == files


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_any_bytes_are_refused_in_words(pristine, data, at):
    """Random bytes in the place of some of an archive: a damage or an error of ours, never another exception."""
    whole = pristine[0].read_bytes()
    at %= len(whole)
    spoiled = pristine[0].with_name("spoiled.onnxreg")
    spoiled.write_bytes(whole[:at] + data + whole[at + len(data) :])
    with contextlib.suppress(IntegrityError, InputError, NotFoundError):
        check(spoiled)


def test_missing_extra_and_foreign_entries_are_damage(three, made, path):
    files = entries(made)
    blob, manifest = weights(three), blob_path(three.get("acme/pii:0.1.2").digest)
    renamed = files["registry.json"].replace(three.id.encode(), b"0" * 32)
    said, index = files[ABOUT], files[INDEX]
    state, *lines = index.splitlines(keepends=True)
    cases: dict[str, tuple[dict[str, bytes | None], set[str]]] = {
        "a file": ({blob: None}, {"missing"}),
        "a manifest of the history": ({manifest: None}, {"missing"}),
        "a log": ({INDEX: None}, {"index", "stray"}),
        "a stray blob": ({blob_path(X): b"x"}, {"stray"}),
        "other bytes": ({blob: b"x" * len(files[blob])}, {"damaged"}),
        "another id": ({"registry.json": renamed}, {"index", "stray"}),
        "claims more": ({ABOUT: said.replace(b"0.1.0", b"0.1.2")}, {"missing", "stray"}),
        "claims what is not": ({ABOUT: said.replace(b"0.1.0", b"9.9.9")}, {"archive", "stray"}),
        "claims nothing": ({ABOUT: said.replace(b'"0.1.0"', b"")}, {"stray"}),
        "a shorter history": ({INDEX: state + b"".join(lines[:-1])}, {"index", "stray"}),
        "another order": ({INDEX: b"".join([state, lines[1], lines[0], *lines[2:]])}, {"index", "stray"}),
        "another reason": ({INDEX: index.replace(b'"wrong"', b'"right"')}, {"index", "stray"}),
        "another state": ({INDEX: index.replace(b"stable", b"steady", 1)}, {"state"}),
    }
    for case, (changes, kinds) in cases.items():
        changed = {**files, **changes}
        assert changed != files
        rewrite(path, {name: data for name, data in changed.items() if data is not None})
        assert {damage.kind for damage in check(path).damages} == kinds, case
