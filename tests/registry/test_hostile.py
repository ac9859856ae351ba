"""A registry tree from a stranger, and words that do not fit: every verb fails cleanly, nothing outside is touched."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.log.log import load
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.log.events import Attest

INDEX = Path("index/acme/pii.jsonl")
ABOUT: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}


@pytest.mark.parametrize("reason", ["", "x" * 2001])
def test_unreadable_reasons_are_not_written(registry: Home, reason: str) -> None:
    registry.make()
    before = (registry.store.root / INDEX).read_bytes()
    for act in (
        lambda: registry.yank("acme/pii:0.1.0", reason),
        lambda: registry.tag("acme/pii", "stable", reason),
    ):
        with pytest.raises(InputError):
            act()
    assert (registry.store.root / INDEX).read_bytes() == before


@pytest.mark.parametrize("part", ["local/tmp", "blobs", "blobs/sha256", "index", "index/acme"])
def test_a_link_in_the_tree_leads_no_write_elsewhere(registry: Home, tmp_path: Path, part: str) -> None:
    registry.make(seed="a")
    victim = tmp_path / "victim"
    (victim / "0123456789abcdef").mkdir(parents=True)
    (victim / "0123456789abcdef" / "thesis").write_bytes(b"years")
    place = registry.store.root / part
    place.rename(tmp_path / "moved")
    place.symlink_to(victim)
    with pytest.raises(RegError):
        registry.make(seed="b")
    assert [path.name for path in victim.rglob("*")] == ["0123456789abcdef", "thesis"]
    if part == "index":
        with pytest.raises(IntegrityError, match=r"index of .* is a link"):
            registry.names()


def nodes(value: Any) -> Iterator[Callable[[Any], None]]:
    """A setter for every place of a JSON value."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield lambda new, key=key: value.__setitem__(key, new)
            yield from nodes(value[key])


WRONG = [None, True, -1, "x", "../../etc/cron.d/x", [], {"a": 1}, "9" * 5000]


def test_a_lying_state_line_is_an_integrity_error_or_harmless(registry: Home) -> None:
    registry.make("1.0.0")
    registry.tag("acme/pii", "stable")
    path = registry.store.root / INDEX
    first, rest = path.read_bytes().split(b"\n", 1)
    refused = 0
    for position in range(sum(1 for _ in nodes(json.loads(first)))):
        for wrong in WRONG:
            state = json.loads(first)
            list(nodes(state))[position](wrong)
            path.write_bytes(json.dumps(state).encode() + b"\n" + rest)
            try:
                found = registry.resolve("acme/pii:stable").to_json()
            except (IntegrityError, NotFoundError):
                refused += 1
            else:
                assert all(".." not in file["path"] for file in found["files"])
    assert refused > 200


def test_files_that_are_no_models_are_not_listed(registry: Home) -> None:
    registry.make()
    index = registry.store.root / "index"
    for name in ("._pii.jsonl", "Bad Name.jsonl", "acme/UPPER.jsonl"):
        (index / name).write_bytes(b"")
    (index / "dir.jsonl").mkdir()
    (index / "link.jsonl").symlink_to(index / "acme" / "pii.jsonl")
    (index / "loop").symlink_to("loop")
    assert registry.names() == ["acme/pii"]


def test_verify_never_stops_at_the_first_damage(registry: Home) -> None:
    for number in range(66):
        registry.make(seed=str(number), size=1)
    registry.make(name="acme/other", seed="z")
    registry.tree.index("acme/other").write_bytes(b"{}\n")
    broken = registry.make(name="acme/broken", seed="z")
    checkpoint = registry.state("acme/pii").checkpoint
    assert checkpoint is not None
    for digest in (checkpoint, *(artifact.digest for artifact in broken.manifest.artifacts)):
        registry.store.blob_path(digest).unlink()
    found = sorted((found.kind, found.name.split()[0]) for found in owner.verify(registry).damages)
    missing = [("missing", "acme/broken:0.1.0")] * 2
    assert found == [("log", "acme/pii"), *missing, ("missing", "acme/pii"), ("state", "acme/other")]


def test_sealed_versions_can_be_tagged_yanked_and_found(registry: Home) -> None:
    first = registry.make(seed="first", size=1)
    for number in range(66):
        registry.make(seed=str(number), size=1)
    assert first.version not in registry.state("acme/pii").versions
    registry.tag(first.ref, "old")
    registry.yank(first.ref)
    assert registry.find(f"acme/pii@{first.digest}").entry.yanked
    registry.yank(first.ref, undo=True)
    assert registry.resolve("acme/pii:old").located.version == first.version
    registry.check()


def test_a_lost_old_manifest_does_not_stop_publishing(registry: Home) -> None:
    first = registry.make(seed="a")
    registry.store.blob_path(first.digest).unlink()
    second = registry.make(seed="b")
    assert registry.find("acme/pii").version == second.version


def test_a_digest_that_does_not_fit_its_tag(registry: Home) -> None:
    registry.make("1.0.0", seed="a")
    other = registry.make("1.1.0", seed="b")
    with pytest.raises(IntegrityError):
        registry.yank(f"acme/pii:1.0.0@{other.digest}")
    registry.tag("acme/pii:1.0.0", "stable")
    registry.yank("acme/pii:stable")
    with pytest.raises(NotFoundError, match=r"1\.0\.0 is yanked"):
        registry.find("acme/pii:stable")
    assert registry.find("acme/pii").version == other.version


def test_a_broken_chain_is_not_extended(registry: Home) -> None:
    for seed in "abc":
        registry.make(seed=seed)
    path = registry.store.root / INDEX
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(lines[1][-40:-20], b"0" * 20)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(IntegrityError):
        registry.make(seed="d")


def test_many_may_make_the_same_registry_at_once(tmp_path: Path) -> None:
    for attempt in range(10):
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(DirectoryRegistry.create, [tmp_path / f"r{attempt}"] * 8))
        assert len({remote.registry_id for remote in made}) == 1


def test_remotes_added_at_once_are_all_kept(registry: Home) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: registry.remotes.add(f"r{number}", f"/srv/{number}"), range(8)))
    assert len(registry.remotes.urls) == 8


@pytest.mark.parametrize("where", ["cwd", "parent", "inside", "file", "foreign", "another"])
def test_places_that_nothing_is_written_to(
    registry: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    registry.make()
    (tmp_path / "work" / "below").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"mine")
    registry.write_out("acme/pii", tmp_path / "foreign")
    (tmp_path / "another").mkdir()
    for directory in ("foreign", "another"):
        (tmp_path / directory / "NOTES.txt").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path / "work" / "below")
    places = {
        "cwd": Path(),
        "parent": Path(".."),
        "inside": registry.store.root / "local" / "tmp" / "out",
        "file": tmp_path / "file",
    }
    with pytest.raises(InputError, match=r"NOTES\.txt" if where in ("foreign", "another") else None):
        registry.write_out("acme/pii", places.get(where, tmp_path / where))
    assert {(tmp_path / name / "NOTES.txt").read_bytes() for name in ("foreign", "another")} == {b"mine"}
    assert Path.cwd().is_dir()


def test_an_attestation_needs_its_manifest(registry: Home) -> None:
    registry.make()
    statement = {"manifest": Digest.of(b"?"), "statement": Digest.of(b"!"), "media_type": "text/plain"}
    with pytest.raises(ConflictError):
        load(registry.store, "acme/pii").append(Attest(**ABOUT, **statement))
