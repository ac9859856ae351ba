"""A lock is kept: exactly its bytes, from whoever has them, and nothing from those who have others."""

import json
from dataclasses import replace

import pytest
from support.registries import owner
from support.registries.home import Home
from support.registries.parts import COMPANIONS, FULL, HALF, INT8, NAME, ONE, SIDECAR, draft

from onnxreg.registry.lockfile import (
    FetchedEntry,
    check_folders,
    lock,
    pull_locked,
    recorded_requests,
    write_locked,
)
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.inputs.lockfile import LockedArtifact, Lockfile
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.device import ResolveRequest
from onnxreg.schema.query.resolve import Query


def locked(registry: Home, ref: str = NAME, *formats: str) -> LockedArtifact:
    query = Query(formats or ("onnx-int8",))
    (found,) = lock(registry.store, [ResolveRequest(Ref.parse(ref), query)])
    return found


def pull(other: Home, entry: LockedArtifact, source: Home) -> FetchedEntry:
    (kept,) = pull_locked(other, Lockfile.of([entry]), source.place)
    return kept


def held(registry: Home) -> object:
    return registry.find(ONE).entry.held


def test_an_entry_names_every_file(whole):
    entry = locked(whole)
    assert (str(entry), entry.artifact.format, entry.registry) == (f"1.0.0 {INT8}", "onnx-int8", whole.id)
    assert entry.manifest == whole.find(ONE).entry.manifest
    assert [file.path for file in entry.files] == sorted([INT8, SIDECAR, *COMPANIONS])
    for file in entry.files:
        with whole.store.open_blob(file.digest) as blob:
            assert len(blob.read()) == file.size


def test_the_same_answers_give_the_same_bytes(whole):
    first = Lockfile.of([locked(whole)])
    assert Lockfile.of(lock(whole.store, recorded_requests(first))) == first
    assert Lockfile.of(lock(whole.store, recorded_requests(first))).encode() == first.encode()
    text = first.encode().decode()
    assert whole.place not in text and "time" not in json.loads(text)["models"][0]


def test_an_index_that_lies_is_not_locked(whole):
    path = whole.store.root / "index" / "acme" / "pii.jsonl"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"onnx-int8"', b'"onnx-int4"', 1))
    with pytest.raises(IntegrityError, match="says other things of manifest"):
        locked(whole, NAME, "onnx-int4")


def test_exactly_the_locked_artifact_is_fetched(whole, other, tmp_path):
    """Two artifacts have one format here: a path is told apart where a format would not be."""
    entry = locked(whole, NAME, "onnx-android")
    kept = pull(other, entry, whole)
    assert held(other) == (entry.artifact.path,) and entry.artifact.path in (FULL, HALF)
    assert kept.result.blobs == 2 + len(entry.files), "the manifest and the operators too"
    assert not kept.yanked
    other.check()
    write_locked(other, [kept], tmp_path / "app")
    written = {path.name: path.read_bytes() for path in (tmp_path / "app" / NAME).iterdir()}
    assert written.keys() == {FILENAME, *(file.path for file in entry.files)}
    assert all(Digest.of(written[file.path]) == file.digest for file in entry.files)
    assert pull(other, entry, whole).result.blobs == 0
    other.pull(ONE, whole.place)
    write_locked(other, [pull(other, entry, whole)], tmp_path / "again")
    assert {path.name for path in (tmp_path / "again" / NAME).iterdir()} == written.keys()
    assert held(other) is None


def test_a_copy_of_the_source_gets_whatever_the_source_holds(whole, tmp_path):
    entry = locked(whole)
    copied = Home(DirectoryRegistry.create(tmp_path / "mirror", mirror_of=whole.id).root)
    kept = pull(copied, entry, whole)
    assert copied.log(NAME) == whole.log(NAME) and held(copied) is None
    write_locked(copied, [kept], tmp_path / "app")
    assert {path.name for path in (tmp_path / "app" / NAME).iterdir()} == {
        FILENAME,
        *(file.path for file in entry.files),
    }
    assert pull(copied, entry, whole).result.blobs == 0


def test_evidence_is_pulled_but_neither_locked_nor_written(registry, other, tmp_path):
    evidence = [DraftFile("certificate", "proof.json"), DraftFile("item-scores", "scores.csv")]
    plain = draft(tmp_path / "draft")
    for file in evidence:
        (tmp_path / "draft" / file.path).write_bytes(file.path.encode())
    registry.add(replace(plain, companions=(*plain.companions, *evidence)), "1.0.0")
    entry = locked(registry)
    assert not {file.path for file in entry.files} & {file.path for file in evidence}
    kept = pull(other, entry, registry)
    other.check()
    write_locked(other, [kept], tmp_path / "app")
    written = {path.name for path in (tmp_path / "app" / NAME).iterdir()}
    assert written == {FILENAME, *(file.path for file in entry.files)}


def test_a_yanked_version_is_fetched_and_said(whole, other):
    entry = locked(whole)
    whole.yank(ONE, "leaks names")
    assert pull(other, entry, whole).yanked
    with pytest.raises(NotFoundError, match="yanked"):
        other.find(ONE)


def test_another_manifest_under_the_version(whole, other, tmp_path):
    entry = locked(whole)
    imposter = Home(tmp_path / "imposter")
    imposter.add(draft(tmp_path / "other-draft", "b"), "1.0.0")
    with pytest.raises(IntegrityError, match=r"acme/pii:1\.0\.0 is [0-9a-f]{12}\.\.\., not "):
        pull(other, entry, imposter)
    assert other.names() == []
    other.add(draft(tmp_path / "own-draft", "c"), "1.0.0")
    with pytest.raises(ConflictError, match="has manifest"):
        pull(other, entry, whole)


def test_absent_and_purged_versions_are_refused(whole, other, tmp_path):
    entry = locked(whole)
    empty = Home(tmp_path / "empty")
    with pytest.raises(NotFoundError, match="there is no model"):
        pull(other, entry, empty)
    owner.purge(whole, ONE, "leaked")
    with pytest.raises(NotFoundError, match="is purged"):
        pull(other, entry, whole)


def test_a_lock_that_contradicts_its_manifest(whole, other):
    entry = locked(whole)
    for wrong in (
        entry.replace(files=entry.files[1:]),
        entry.replace(artifact=entry.artifact.replace(precision="int4")),
        entry.replace(files=(entry.files[0].replace(size=1), *entry.files[1:])),
    ):
        with pytest.raises(IntegrityError, match="the lock says other things"):
            pull(other, wrong, whole)
    with pytest.raises(NotFoundError, match=r"has no artifact nowhere\.onnx"):
        elsewhere = (file.replace(path="nowhere.onnx") for file in entry.files if file.role == "artifact")
        chosen = entry.artifact.replace(path="nowhere.onnx")
        pull(other, entry.replace(artifact=chosen, files=tuple(elsewhere)), whole)


def test_files_of_others_are_left_alone(whole, other, tmp_path):
    kept = pull(other, locked(whole), whole)
    place = tmp_path / "app" / NAME
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds mine\.txt"):
        write_locked(other, [kept], tmp_path / "app")
    inside = Lockfile.of([kept.entry, kept.entry.replace(name="acme", question={"ref": "acme"})])
    with pytest.raises(InputError, match="the files of acme/pii would be among those of acme"):
        check_folders(inside.models, tmp_path / "elsewhere", other.store.root)
