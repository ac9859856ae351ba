"""Archives: the same bytes for the same versions, read in place as any registry, and every damage found."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registries import owner
from support.registries.drafts import write_draft

from onnxreg.registry import Registry
from onnxreg.registry.maintain.verification import VerifyReport, verify
from onnxreg.registry.store import archive_reader
from onnxreg.registry.store.archive_reader import ABOUT, open_archive
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.registry.transfer.archive import ArchiveResult, choose, create_archive
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    ForkError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RemoteError,
)
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

MakeDraft = Callable[..., Draft]
FROZEN = Path(__file__).parents[2] / "fixtures" / "registry-v1" / "tree"
FROZEN_ARCHIVE = "1d322167af6c63951e5659e65c0e28b0b815086936f1c93d763f06bcefd2ce44"
"""SHA-256 of the archive of the whole frozen tree, whatever release of Python writes it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("three")
    registry = Registry(root / "home")
    for seed in "abc":
        registry.add(write_draft(root / seed, "acme/pii", seed, 100))
    registry.tag("acme/pii:0.1.0", "stable", "first")
    registry.yank("acme/pii:0.1.1", "wrong")
    registry.add(write_draft(root / "t", "tiny", "t", 100))
    return registry.store.root


@pytest.fixture
def three(template: Path, tmp_path: Path) -> Registry:
    """Three versions of one model, the first held by a channel, the second yanked; and another model."""
    return Registry(shutil.copytree(template, tmp_path / "home"))


def archive(registry: Registry, target: Path, *refs: str, every: bool = False) -> ArchiveResult:
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


def test_chosen_versions_are_carried_with_the_whole_history(three: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    made = archive(three, path, "acme/pii:0.1.0")
    assert made.carried == {"acme/pii": {Version(0, 1, 0)}}
    found = entries(path)
    assert found[index_path("acme/pii")] == (three.store.root / index_path("acme/pii")).read_bytes()
    carried = three.get("acme/pii:0.1.0").manifest
    other = three.get("acme/pii:0.1.2")
    assert all(blob_path(file.digest) in found for file in carried.all_files())
    assert blob_path(other.digest) in found
    weights = {file.digest for file in other.manifest.artifacts} - {file.digest for file in carried.artifacts}
    assert weights and not any(blob_path(digest) in found for digest in weights)
    assert len(found) == made.blobs + 3
    report = check(path)
    assert (report.damages, report.versions, report.blobs) == ([], 1, made.blobs)


def test_the_same_versions_give_the_same_bytes(three: Registry, tmp_path: Path) -> None:
    one, two, copy = (tmp_path / f"{number}.onnxreg" for number in range(3))
    archive(three, one, "tiny", "acme/pii:0.1.0")
    archive(three, two, "acme/pii:0.1.0", "tiny")
    assert one.read_bytes() == two.read_bytes()
    create_archive(open_archive(one), open_archive(one).carried, copy)
    assert copy.read_bytes() == one.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert names == sorted(names)


def test_an_archive_is_a_registry_to_read_from(three: Registry, other: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    archive(three, path, "acme/pii:0.1.0", "acme/pii:0.1.1")
    done = other.pull("acme/pii:0.1.0", str(path), channels=["stable"])
    assert [str(tag.version) for tag in done.channels] == ["0.1.0"]
    assert other.get("acme/pii:0.1.0").data == three.get("acme/pii:0.1.0").data
    assert not owner.verify(other).damages
    line = other.log("acme/pii")[0]
    assert line.via is not None and line.via.registry == three.id
    again = other.pull("acme/pii:0.1.0", str(path))
    assert (again.events, again.blobs) == (0, 0)
    assert list(open_archive(path).names()) == ["acme/pii"]
    assert owner.verify(other, "acme/pii", remote=open_archive(path)).versions == 2
    assert not owner.verify(other, remote=open_archive(path)).damages


def test_a_blob_is_read_from_any_offset(three: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    archive(three, path, "tiny")
    remote = open_archive(path)
    entry = three.get("tiny").manifest.artifacts[0]
    with three.store.open_blob(entry.digest) as stream:
        whole = stream.read()
    for start in (0, 1, entry.size - 1, entry.size, entry.size + 5):
        with remote.open_blob(entry.digest, start) as stream:
            assert stream.read() == whole[start:]


def test_an_archive_that_is_cut_off_while_it_is_read(three: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    three.add(write_draft(tmp_path / "large", "large", "l", 2**20))
    archive(three, path, "large")
    remote, entry = open_archive(path), three.get("large").manifest.artifacts[0]
    with remote.open_blob(entry.digest) as stream:
        stream.read(100)
        os.truncate(path, 10_000)
        with pytest.raises(IntegrityError, match="cut off"):
            stream.read()
    with pytest.raises(IntegrityError):
        remote.open_blob(entry.digest)


def test_a_version_outside_of_the_archive_cannot_be_pulled(
    three: Registry, other: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "a.onnxreg"
    archive(three, path, "acme/pii:0.1.0")
    with pytest.raises(NotFoundError, match=r"carries the files of acme/pii:0\.1\.0"):
        other.pull("acme/pii:0.1.2", str(path))
    assert other.names() == []


def test_nothing_is_written_to_an_archive(three: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    archive(three, path, "tiny")
    before = path.read_bytes()
    with pytest.raises(RemoteError, match="an archive is only read"):
        three.push("acme/pii:0.1.0", str(path))
    with pytest.raises(RemoteError, match="an archive is only read"):
        three.push("tiny", str(path))  # which it carries
    with pytest.raises(RemoteError, match="an archive is only read"):
        owner.gc(three, remote=open_archive(path))
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="would be an archive"):
        three.push("tiny", str(tmp_path / "new.onnxreg"))


def test_a_whole_archive_mirrors(three: Registry, other: Registry, tmp_path: Path) -> None:
    """Same id: the later archive brings the copy up to date; the earlier one then has nothing to bring."""
    first, second = tmp_path / "1.onnxreg", tmp_path / "2.onnxreg"
    archive(three, first, every=True)
    three.tag("acme/pii:0.1.2", "stable")
    archive(three, second, every=True)
    there = tmp_path / "mirror"
    for path, events in ((first, 6), (second, 1), (first, 0)):
        done = mirror(*open_both(other.remotes, str(path), str(there)))
        assert (done.events, done.skipped) == (events, [])
    copy = Registry(there, create=False)
    assert copy.id == three.id and not owner.verify(copy).damages
    assert copy.log("acme/pii") == three.log("acme/pii")


def test_a_fork_in_an_archive_is_refused(
    three: Registry, other: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "mirror"
    first, second = tmp_path / "1.onnxreg", tmp_path / "2.onnxreg"
    archive(three, first, every=True)
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
    mirror(*open_both(other.remotes, str(first), str(there)))
    with pytest.raises(ForkError):
        mirror(*open_both(other.remotes, str(second), str(there)))


def test_a_partial_archive_is_no_whole_copy(three: Registry, other: Registry, tmp_path: Path) -> None:
    """Into a mirror it brings nothing half; into a registry of its own the versions that it carries."""
    path = tmp_path / "a.onnxreg"
    archive(three, path, "acme/pii:0.1.0", "tiny")
    refused = mirror(*open_both(other.remotes, str(path), str(tmp_path / "mirror")))
    assert [(each.name, type(each.error).__name__) for each in refused.skipped] == [
        ("acme/pii", "NotCarriedError")
    ]
    done = mirror(*open_both(other.remotes, str(path), str(other.store.root)))
    assert (done.versions, done.skipped) == (2, [])
    assert [str(each) for each in other.state("acme/pii").versions] == ["0.1.0"]
    assert not owner.verify(other).damages


def test_into_the_registry_that_it_was_made_from(three: Registry, tmp_path: Path) -> None:
    """The same id: lost files come back, and nothing is appended."""
    path = tmp_path / "a.onnxreg"
    archive(three, path, "tiny")
    entry = three.get("tiny").manifest.artifacts[0]
    lost = three.store.root / blob_path(entry.digest)
    lost.unlink()
    done = three.pull("tiny", str(path))
    assert (done.events, done.blobs) == (0, 1)
    assert not owner.verify(three).damages


def test_sealed_segments_statements_and_given_up_versions_travel(
    registry: Registry, make_draft: MakeDraft, tmp_path: Path
) -> None:
    registry.add(make_draft(seed="a"))
    registry.add(make_draft(seed="b"))
    for number in range(70):
        registry.tag(f"acme/pii:0.1.{number % 2}", "nightly")
    registry.add(make_draft(seed="c"))
    owner.purge(registry, "acme/pii:0.1.2", "leaked")
    path = tmp_path / "a.onnxreg"
    made = archive(registry, path, every=True)
    assert made.carried["acme/pii"] == {Version(0, 1, 0), Version(0, 1, 1)}
    assert not check(path).damages
    assert registry.state("acme/pii").segments


def test_every_kind_of_event_travels_and_comes_back(other: Registry, tmp_path: Path) -> None:
    """The frozen tree: statements, sealed segments, drops, purges, expiry, a blob under a generation key."""
    frozen = Registry(shutil.copytree(FROZEN, tmp_path / "frozen"), create=False)
    path = tmp_path / "a.onnxreg"
    archive(frozen, path, every=True)
    assert Digest.of(path.read_bytes()).hex == FROZEN_ARCHIVE, "the bytes of archives are part of the format"
    assert not check(path).damages
    there = tmp_path / "mirror"
    assert not mirror(*open_both(other.remotes, str(path), str(there))).skipped
    copy = Registry(there, create=False)
    assert not owner.verify(copy).damages
    for name in frozen.names():
        assert copy.log(name) == frozen.log(name)
    kinds = {line.event.kind for name in copy.names() for line in copy.log(name)}
    assert {"attest", "purge", "drop", "expire"} <= kinds


def test_a_partial_version_is_archived_as_held(three: Registry, other: Registry, tmp_path: Path) -> None:
    from onnxreg.registry.log.contents import Selection

    other.pull("acme/pii:0.1.0", str(three.store.root), selection=Selection(("onnx-int8",)))
    path = tmp_path / "a.onnxreg"
    archive(other, path, "acme/pii:0.1.0")
    assert not check(path).damages
    weights = three.get("acme/pii:0.1.0").manifest.artifacts[0].digest
    assert blob_path(weights) not in entries(path)


@pytest.mark.parametrize("refs", [(), ("acme/none",), ("acme/pii:9.0.0",)])
def test_an_archive_of_nothing_is_refused(
    three: Registry, other: Registry, tmp_path: Path, refs: tuple[str, ...]
) -> None:
    with pytest.raises(InputError if not refs else NotFoundError):
        archive(three, tmp_path / "a.onnxreg", *refs)
    with pytest.raises(InputError, match="nothing to archive"):
        archive(other, tmp_path / "a.onnxreg", every=True)
    assert not list(tmp_path.glob("*onnxreg*"))


def test_damage_at_the_source_makes_no_archive(three: Registry, tmp_path: Path) -> None:
    entry = three.get("tiny").manifest.artifacts[0]
    path = three.store.root / blob_path(entry.digest)
    path.chmod(0o644)
    data = path.read_bytes()
    target = tmp_path / "a.onnxreg"
    for spoiled in (data[:-1], data[:-1] + b"?", data + b"?"):
        path.write_bytes(spoiled)
        with pytest.raises(IntegrityError):
            archive(three, target, "tiny")
    index = three.store.root / index_path("tiny")
    index.chmod(0o644)
    index.write_bytes(index.read_bytes().replace(b'"task":"token-', b'"task":"tokem-'))
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="not what its log says"):
        archive(three, target, "tiny")
    assert not list(tmp_path.glob("*onnxreg*"))


def test_existing_files_stay(three: Registry, tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("mine")
    for target in (stranger, tmp_path):
        with pytest.raises(InputError):
            archive(three, target, "tiny")
    assert stranger.read_text() == "mine"
    path = tmp_path / "a.onnxreg"
    archive(three, path, "tiny")
    archive(three, path, "acme/pii:0.1.0")
    assert open_archive(path).carried.keys() == {"acme/pii"}


KILLED = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.store import streams
from onnxreg.registry.transfer import archive

def slow(*arguments):
    print("writing", flush=True)
    import time
    time.sleep(60)

streams.check = slow
registry = Registry(sys.argv[1])
archive.create_archive(registry.store, archive.choose(registry.store, ["tiny"]), Path(sys.argv[2]))
"""


def test_a_kill_leaves_no_archive_and_the_next_one_sweeps(three: Registry, tmp_path: Path) -> None:
    target = tmp_path / "site" / "a.onnxreg"
    command = [sys.executable, "-c", KILLED, str(three.store.root), str(target)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert running.stdout is not None and running.stdout.readline() == b"writing\n"
    assert [path for path in target.parent.iterdir() if path.is_dir()]
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert not target.exists()
    archive(three, target, "tiny")
    assert list(target.parent.iterdir()) == [target]
    assert not check(target).damages


def zipped(path: Path, *named: tuple[zipfile.ZipInfo | str, bytes]) -> None:
    with zipfile.ZipFile(path, "a") as made:
        for name, data in named:
            made.writestr(name, data)


def info(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


@pytest.fixture
def made(three: Registry, tmp_path: Path) -> Path:
    path = tmp_path / "a.onnxreg"
    archive(three, path, "acme/pii:0.1.0")
    return path


NO_ENTRIES = [
    *(
        "../evil",
        "/etc/passwd",
        "blobs/sha256/../../x",
        "blobs\\sha256",
        "blobs/",
        "policy.json",
        "local/remotes.json",
    ),
    *("index/../x.jsonl", "index/ACME.jsonl", "index/a\u202eb.jsonl", "gc/condemned/0123456789abcdef"),
    *(f"{blob_path(Digest.of(b'x'))}.1", f"blobs/sha256/00/{Digest.of(b'x').hex}"),
    info(blob_path(Digest.of(b"x")), 0o120777),
]


@pytest.mark.parametrize("name", NO_ENTRIES)
def test_an_entry_that_no_registry_has_is_refused(made: Path, name: str | zipfile.ZipInfo) -> None:
    zipped(made, (name, b"x"))
    with pytest.raises(IntegrityError, match="which no registry has"):
        open_archive(made)


def test_the_models_of_an_archive_are_bounded(
    three: Registry, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (index_path(f"acme/m{number}") for number in range(archive_reader.MAX_ARCHIVE_MODELS))
    rewrite(made, {**entries(made), **dict.fromkeys(names, b"{}\n")})
    with pytest.raises(IntegrityError):
        open_archive(made)
    monkeypatch.setattr(archive_reader, "MAX_ARCHIVE_MODELS", 1)
    with pytest.raises(InputError):
        archive(three, tmp_path / "new.onnxreg", every=True)
    assert not (tmp_path / "new.onnxreg").exists()
    monkeypatch.setattr(archive_reader, "MAX_ARCHIVE_MODELS", 2)
    archive(three, tmp_path / "new.onnxreg", every=True)
    monkeypatch.setattr(archive_reader, "MAX_ARCHIVE_FILES", 3)
    with pytest.raises(IntegrityError):
        open_archive(tmp_path / "new.onnxreg")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name_are_refused(made: Path) -> None:
    zipped(made, (index_path("acme/pii"), b"{}\n"))
    with pytest.raises(IntegrityError, match="two entries"):
        open_archive(made)


def test_compressed_entries_are_refused_unread(made: Path) -> None:
    """A bomb would be one: so nothing is ever inflated."""
    rewrite(made, entries(made), zipfile.ZIP_DEFLATED)
    with pytest.raises(IntegrityError, match="compressed or encrypted"):
        open_archive(made)


def test_entries_that_share_their_bytes_are_refused(made: Path) -> None:
    """One kernel of bytes under many names is how a bomb without compression is made."""
    data = made.read_bytes()
    with zipfile.ZipFile(made) as found:
        first, second, *_ = found.infolist()
        begin = data.index(b"PK\1\2", found.start_dir)
    at = data.index(b"PK\1\2", begin + 4) + 42
    assert int.from_bytes(data[at : at + 4], "little") == second.header_offset
    made.write_bytes(data[:at] + (first.header_offset + 8).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(IntegrityError):
        open_archive(made)


@pytest.mark.parametrize("name", ["a.onnxreg", "backup"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"#!/bin/sh\n" + data,
        lambda data: data + b"x",
    ],
)
def test_damage_is_damage_under_any_name(made: Path, spoil: Callable[[bytes], bytes], name: str) -> None:
    spoiled = made.with_name(name)
    spoiled.write_bytes(spoil(made.read_bytes()))
    with pytest.raises(IntegrityError, match=str(spoiled)):
        open_archive(spoiled)
    for data in (b"", b"no zip at all"):
        spoiled.write_bytes(data)
        with pytest.raises(IntegrityError if spoiled.suffix else InputError):
            open_archive(spoiled)


def test_entries_beyond_2_gib_are_read(
    three: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the directory names another version of the format than the entry's own header."""
    with monkeypatch.context() as patch:
        patch.setattr("zipfile.ZIP64_LIMIT", 500)
        archive(three, tmp_path / "a.onnxreg", every=True)
    assert not check(tmp_path / "a.onnxreg").damages


@given(st.data())
def test_any_flipped_bit_is_found_or_changes_nothing_that_counts(
    pristine: tuple[Path, dict[str, bytes]], data: st.DataObject
) -> None:
    """Times, attributes and check sums of the container say nothing: what is read is what was written, or refused."""
    path, files = pristine
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    spoiled = path.with_name("spoiled.onnxreg")
    spoiled.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    try:
        intact = not check(spoiled).damages
    except (IntegrityError, InputError):
        return
    if intact:
        remote = open_archive(spoiled)
        found = {name: remote.store.get(name) for name in files}
        assert {name: value and value[0] for name, value in found.items()} == files


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("pristine")
    (root / "model.onnx").write_bytes(b"weights")
    registry = Registry(root / "home")
    registry.add(Draft("m", root, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    path = root / "a.onnxreg"
    create_archive(registry.store, choose(registry.store, ["m"]), path)
    return path, entries(path)


SWAPPED = {
    "no registry": lambda files: {name: data for name, data in files.items() if name != "registry.json"},
    "no archive.json": lambda files: {name: data for name, data in files.items() if name != ABOUT},
    "archive.json is no JSON": lambda files: {**files, ABOUT: b"{"},
    "archive.json of something else": lambda files: {**files, ABOUT: b'{"format":"x","format_version":1}'},
    "archive.json lists no list": lambda files: {
        **files,
        ABOUT: b'{"format":"onnxreg-archive","format_version":1,"versions":{"a":{}}}',
    },
}


@pytest.mark.parametrize("case", SWAPPED)
def test_invalid_archives_are_refused(made: Path, case: str) -> None:
    rewrite(made, SWAPPED[case](entries(made)))
    with pytest.raises((IntegrityError, NotFoundError)):
        open_archive(made)


def test_a_newer_format_asks_for_an_upgrade(made: Path) -> None:
    files = entries(made)
    rewrite(made, {**files, ABOUT: files[ABOUT].replace(b'_version":1', b'_version":2')})
    with pytest.raises(HostError) as caught:
        open_archive(made)
    assert "upgrade onnxreg" in caught.value.hint


def without(files: dict[str, bytes], path: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name != path}


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_any_bytes_are_refused_in_words(
    pristine: tuple[Path, dict[str, bytes]], data: bytes, at: int
) -> None:
    """Random bytes in the place of some of an archive: a damage or an error of ours, never another exception."""
    whole = pristine[0].read_bytes()
    at %= len(whole)
    spoiled = pristine[0].with_name("spoiled.onnxreg")
    spoiled.write_bytes(whole[:at] + data + whole[at + len(data) :])
    with contextlib.suppress(IntegrityError, InputError, NotFoundError):
        check(spoiled)


def test_missing_extra_and_foreign_entries_are_damage(three: Registry, made: Path, tmp_path: Path) -> None:
    files = entries(made)
    weights = blob_path(three.get("acme/pii:0.1.0").manifest.artifacts[0].digest)
    manifest = blob_path(three.get("acme/pii:0.1.2").digest)
    stray = blob_path(Digest.of(b"stray"))
    renamed = files["registry.json"].replace(three.id.encode(), b"0" * 32)
    said = files[ABOUT]
    cases: dict[str, tuple[dict[str, bytes], set[str]]] = {
        "a file": (without(files, weights), {"missing"}),
        "a manifest of the history": (without(files, manifest), {"missing"}),
        "a log": (without(files, index_path("acme/pii")), {"index", "stray"}),
        "a stray blob": ({**files, stray: b"stray"}, {"stray"}),
        "other bytes": ({**files, weights: b"x" * len(files[weights])}, {"damaged"}),
        "another id": ({**files, "registry.json": renamed}, {"index", "stray"}),
        "claims more": ({**files, ABOUT: said.replace(b"0.1.0", b"0.1.2")}, {"missing", "stray"}),
        "claims what is not": ({**files, ABOUT: said.replace(b"0.1.0", b"9.9.9")}, {"archive", "stray"}),
        "claims nothing": ({**files, ABOUT: said.replace(b'"0.1.0"', b"")}, {"stray"}),
    }
    for case, (changed, kinds) in cases.items():
        path = tmp_path / "changed.onnxreg"
        rewrite(path, changed)
        assert {damage.kind for damage in check(path).damages} == kinds, case


def test_a_rewritten_history_is_found(three: Registry, made: Path, tmp_path: Path) -> None:
    files = entries(made)
    index = files[index_path("acme/pii")]
    state, *lines = index.splitlines(keepends=True)
    for changed in (
        state + b"".join(lines[:-1]),
        state + b"".join([lines[1], lines[0], *lines[2:]]),
        index.replace(b'"wrong"', b'"right"'),
        state.replace(b"stable", b"steady") + b"".join(lines),
    ):
        assert changed != index
        rewrite(tmp_path / "changed.onnxreg", {**files, index_path("acme/pii"): changed})
        assert check(tmp_path / "changed.onnxreg").damages


def test_memory_stays_flat(registry: Registry, make_draft: MakeDraft, tmp_path: Path) -> None:
    """Peaks of Python's own allocations, for a blob of 32 MiB and one of a few bytes."""
    import tracemalloc

    registry.add(make_draft("big", size=32 * 2**20 // 7))
    registry.add(make_draft("small"))
    peaks = {}
    for name in ("small", "big"):
        tracemalloc.start()
        archive(registry, tmp_path / f"{name}.onnxreg", name)
        assert not check(tmp_path / f"{name}.onnxreg").damages
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (tmp_path / "big.onnxreg").stat().st_size > 32 * 2**20
    assert peaks["big"] < peaks["small"] + 8 * 2**20


def test_an_archive_is_a_plain_zip(made: Path) -> None:
    with zipfile.ZipFile(made) as found:
        assert found.testzip() is None
        assert {each.date_time for each in found.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_resolve_never_answers_with_what_is_not_carried(three: Registry, tmp_path: Path) -> None:
    """The newest is 0.1.2, and the archive has the files of 0.1.0."""
    from onnxreg.registry.resolution import NoAnswerError

    path = tmp_path / "a.onnxreg"
    archive(three, path, "acme/pii:0.1.0")
    found = three.resolve("acme/pii", remote=open_archive(path))
    assert found.located.version == Version(0, 1, 0)
    assert {each.code for each in found.rejected if each.version == Version(0, 1, 2)} == {"not-held"}
    with pytest.raises(NoAnswerError) as refused:
        three.resolve("acme/pii:0.1.2", remote=open_archive(path))
    assert "is not held here" in refused.value.hint


def test_bytes_that_reach_into_the_directory_are_damage(three: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    archive(three, path, every=True)
    with zipfile.ZipFile(path) as found:
        last = max(found.infolist(), key=lambda info: info.header_offset)
    data = bytearray(path.read_bytes())
    data[last.header_offset + 28 : last.header_offset + 30] = b"\xff\xff"
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="not where its directory says"):
        archive_reader.ArchiveStore(path).open(last.filename)


def test_a_zero_byte_in_a_name_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.onnxreg"
    rewrite(path, {ABOUT: b"{}", "index/a.jsonl-zz": b""})
    path.write_bytes(path.read_bytes().replace(b"jsonl-zz", b"jsonl\0zz"))
    with pytest.raises(IntegrityError, match="which no registry has"):
        archive_reader.ArchiveStore(path)
