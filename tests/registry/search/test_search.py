"""The search index says what the index files say, whatever happened to them or to it."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.registries import grow
from support.registries.opened import opened
from support.sampling import sampled

from onnxreg.registry import Registry
from onnxreg.registry.deliver import resolution
from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.search import scan
from onnxreg.registry.search import search_index as search
from onnxreg.registry.search.listing import ModelListing, read_model
from onnxreg.registry.search.search_index import ArtifactKind, SearchIndex
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.log.events import Untag
from onnxreg.schema.log.state import SEGMENT_LINES
from onnxreg.schema.query.requirements import Query

FIRST, SECOND = grow.model_name(0), grow.model_name(1)
KINDS = (
    ArtifactKind(certified=True),
    ArtifactKind(("ort-android",)),
    ArtifactKind(("onnx-int8", "ort-android"), "int8"),
    ArtifactKind(("onnx-android",), "int8"),
    ArtifactKind(precision="float32"),
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grow.grow(tmp_path_factory.mktemp("search") / "home", 8, 6, whole=range(8)).store.root


@pytest.fixture
def home(template: Path, tmp_path: Path) -> DirectoryRegistry:
    """Eight models of six versions; a copy of its own for each test."""
    return DirectoryRegistry.open(Path(shutil.copytree(template, tmp_path / "home")))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what lies there had been there for long: a file's time of change cannot be set."""
    monkeypatch.setattr(scan, "TICK_NANOSECONDS", 0)


def tick() -> None:
    """Let the file system's clock, which may stand still for a hundredth of a second, go on."""
    time.sleep(0.03)


Told = tuple[list[ModelListing], list[str], list[dict[str, tuple[str, list[str]]]]]


def told(index: SearchIndex) -> Told:
    """Everything that an index answers."""
    matches = [
        {
            match.model.name: (match.version, [item.path for item in match.artifacts])
            for match in index.matches(kind)
        }
        for kind in KINDS
    ]
    return index.models(), [damage.partition(" in ")[0] for damage in index.damages()], matches


def truth(remote: DirectoryRegistry) -> Told:
    """The same from the index files, one by one, without the index."""
    models, damages = [], []
    for name in remote.names():
        try:
            models.append(read_model(remote, name))
        except RegError as damage:
            damages.append(damage.message.partition(" in ")[0])
    return models, damages, [_matches(remote, models, kind) for kind in KINDS]


def _matches(
    remote: DirectoryRegistry, models: list[ModelListing], kind: ArtifactKind
) -> dict[str, tuple[str, list[str]]]:
    found = {}
    for model in models:
        state = lookup.read_state(remote, model.name)
        entries = lookup.all_versions(remote, state)
        for version in sorted(entries):
            summary = state.effective_summary(version)
            if summary is None or not entries[version].usable or version.is_prerelease:
                continue
            paths = [item.path for item in summary.artifacts if _fits(item, kind)]
            if paths:
                found[model.name] = (str(version), paths)
    return found


def _fits(item: Any, kind: ArtifactKind) -> bool:
    return (
        (not kind.formats or item.format in kind.formats)
        and kind.precision in (None, item.precision)
        and (not kind.certified or item.state == "certified")
    )


def ask(remote: DirectoryRegistry) -> Told:
    with SearchIndex(remote) as index:
        return told(index)


def test_it_says_what_the_index_files_say(home: DirectoryRegistry) -> None:
    found = ask(home)
    assert found == truth(home)
    models, _, (certified, *_) = found
    assert len(models) == 8 and 0 < len(certified) < 8
    assert ask(home) == found


def test_a_match_tells_all_of_an_artifact(home: DirectoryRegistry) -> None:
    with SearchIndex(home) as index:
        (match,) = index.matches(ArtifactKind(certified=True), f"{FIRST[:-1]}[0-5]")
    resolved = resolution.resolve(home, Ref(FIRST), _query(match)).to_json()
    assert match.manifest == resolved["manifest"]
    (artifact,) = match.artifacts
    assert {key: getattr(artifact, key) for key in resolved["artifact"]} == resolved["artifact"]


def _query(match: search.Match) -> Query:
    return Query(tuple(item.format for item in match.artifacts), match.artifacts[0].precision)


def test_patterns_choose_names(home: DirectoryRegistry, make_draft: Callable[..., Any]) -> None:
    Registry(home.root).add(make_draft("tiny"))
    with SearchIndex(home) as index:
        assert [model.name for model in index.models("t*")] == ["tiny"]
        assert [model.name for model in index.models("*/model-0[13]")] == [SECOND, grow.model_name(3)]
        assert [match.model.name for match in index.matches(ArtifactKind(("onnx-android",)), "tin?")] == [
            "tiny"
        ]


@pytest.mark.usefixtures("settled")
def test_without_changes_only_directories_are_read(home: DirectoryRegistry) -> None:
    tick()
    ask(home)
    with opened(home.root) as found:
        ask(home)
    assert found == []


@pytest.mark.usefixtures("settled")
def test_only_the_index_files_that_changed_are_read_again(home: DirectoryRegistry) -> None:
    tick()
    ask(home)
    tick()
    Registry(home.root).yank(f"{SECOND}:1.2.0")
    with opened(home.root) as found:
        answer = ask(home)
    assert answer == truth(home)
    assert [path for path in found if path.endswith(".jsonl")] == [index_path(SECOND)]


def _replace_by(home: DirectoryRegistry, name: str, other: str) -> None:
    """Another model's history under this name, as a stranger might put it there."""
    (home.root / "next").write_bytes((home.root / index_path(other)).read_bytes())
    (home.root / "next").replace(home.root / index_path(name))


def _keeping_times(home: DirectoryRegistry) -> None:
    """A restore that gives back size and time of modification of what it replaces, as `rsync --times` does."""
    file = home.root / index_path(FIRST)
    before, above = file.stat(), file.parent.stat()
    Registry(home.root).untag(FIRST, "stable")
    file.write_bytes(file.read_bytes()[: before.st_size].ljust(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(file.parent, ns=(above.st_atime_ns, above.st_mtime_ns))


def _copied_over(home: DirectoryRegistry) -> None:
    """An older copy of the whole tree is written over it, into the same files."""
    old = Path(shutil.copytree(home.root, home.root.with_name("old"), ignore=shutil.ignore_patterns("local")))
    registry = Registry(home.root)
    registry.yank(f"{FIRST}:1.5.0")
    ask(home)
    tick()
    for path in old.rglob("*"):
        if path.is_file() and "blobs" not in path.parts:
            (home.root / path.relative_to(old)).write_bytes(path.read_bytes())


def _new_organisation(home: DirectoryRegistry) -> None:
    (home.root / "index" / "zoo").mkdir()
    _replace_by(home, "zoo/cat", FIRST)
    ask(home)
    tick()
    Path(home.root / index_path("zoo/cat")).unlink()


CHANGES: dict[str, Callable[[DirectoryRegistry], object]] = {
    "nothing": lambda home: None,
    "a yank": lambda home: Registry(home.root).yank(f"{FIRST}:1.5.0"),
    "a channel": lambda home: Registry(home.root).tag(f"{FIRST}:1.2.0", "beta"),
    "a channel taken away": lambda home: Registry(home.root).untag(FIRST, "stable"),
    "a drop": lambda home: Registry(home.root).drop(f"{FIRST}:1.5.0"),
    "a purge": lambda home: Registry(home.root).purge(f"{FIRST}:1.5.0", "leaked"),
    "a model of a new organisation": lambda home: grow.add_model(Registry(home.root), 100, 3, False),
    "another model": lambda home: grow.add_model(Registry(home.root), 20, 3, False),
    "a model gone": lambda home: (home.root / index_path(SECOND)).unlink(),
    "an organisation gone": lambda home: shutil.rmtree(home.root / "index" / "org-000"),
    "everything gone": lambda home: shutil.rmtree(home.root / "index"),
    "a model and its organisation gone": _new_organisation,
    "two models in place of each other": lambda home: _replace_by(home, FIRST, SECOND),
    "a cut": lambda home: os.truncate(home.root / index_path(FIRST), 3000),
    "a link": lambda home: _link(home.root / index_path(FIRST)),
    "times kept": _keeping_times,
    "a copy over it": _copied_over,
}


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(home: DirectoryRegistry, change: str) -> None:
    tick()
    ask(home)
    tick()
    CHANGES[change](home)
    if change == "a cut":
        Path(home.root / index_path(FIRST)).rename(home.root / "moved")
        (home.root / "moved").rename(home.root / index_path(FIRST))
    assert ask(home) == truth(home)
    assert ask(home) == truth(home)


@pytest.mark.usefixtures("settled")
def test_an_index_that_stays_open_follows(home: DirectoryRegistry) -> None:
    tick()
    with SearchIndex(home) as index:
        tick()
        Registry(home.root).yank(f"{FIRST}:1.5.0")
        index.refresh()
        assert told(index) == truth(home)


@pytest.mark.parametrize("tick_length, noticed", [(2 * 10**9, True), (0, False)])
def test_a_change_within_one_tick_of_the_clock_is_noticed(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch, tick_length: int, noticed: bool
) -> None:
    """On a clock so coarse that nothing tells the file from the one before; without the wait it is missed."""
    monkeypatch.setattr(scan, "TICK_NANOSECONDS", tick_length)
    monkeypatch.setattr(scan, "mark", lambda status: "the same")
    tick()
    ask(home)
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    assert (ask(home) == truth(home)) == noticed


def _changes(registry: Registry, name: str, version: str, dice: Random) -> list[Callable[[], object]]:
    root, index = registry.store.root, registry.store.root / index_path(name)
    return [
        lambda: registry.yank(f"{name}:{version}"),
        lambda: registry.yank(f"{name}:{version}", undo=True),
        lambda: registry.tag(f"{name}:{version}", dice.choice(["stable", "beta"])),
        lambda: registry.untag(name, "stable"),
        lambda: registry.drop(f"{name}:{version}"),
        lambda: grow.add_model(registry, int(name[-2:]), 3 + dice.randrange(4), True),
        lambda: index.unlink(missing_ok=True),
        lambda: ((root / "next").write_bytes(b"{}\n"), (root / "next").replace(index)),
    ]


def test_any_history_of_changes_ends_in_what_a_new_index_says(home: DirectoryRegistry) -> None:
    dice, done = Random(11), 0
    registry = Registry(home.root)
    while done < 30:
        name, version = grow.model_name(dice.randrange(6)), f"1.{dice.randrange(6)}.0"
        change = dice.choice(_changes(registry, name, version, dice))
        with suppress(RegError):
            change()
            done += 1
            assert ask(home) == truth(home), done


FILE = Path(search.FILE)


def _scribble(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def _of_another_build(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = 'something else' WHERE key = 'meaning'")
        database.execute("UPDATE models SET newest = '9.9.9'")


def _with_a_trigger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TRIGGER t AFTER INSERT ON places BEGIN UPDATE models SET newest = '9.9.9'; END"
        )
        database.execute("UPDATE places SET mark = ''")


def _of_another_registry(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'registry'", ("0" * 32,))
        database.execute("UPDATE models SET newest = '9.9.9'")


def _a_directory(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "no database": lambda path: path.write_bytes(b"not a database" * 1000),
    "its first page": lambda path: _scribble(path, 0, b"\0" * 4096),
    "all but its first page": lambda path: _scribble(path, 4096, b"\xff" * (path.stat().st_size - 4096)),
    "zeros behind its first page": lambda path: _scribble(path, 4096, b"\0" * (path.stat().st_size - 4096)),
    "another build": _of_another_build,
    "another registry": _of_another_registry,
    "a trigger": _with_a_trigger,
    "a directory": _a_directory,
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_cannot_be_used_is_made_anew(home: DirectoryRegistry, damage: str) -> None:
    tick()
    before = ask(home)
    DAMAGES[damage](home.root / FILE)
    assert ask(home) == before == truth(home)
    if damage != "a directory":
        with opened(home.root) as found:
            assert ask(home) == before
        assert found == []


@pytest.mark.usefixtures("settled")
def test_damage_that_shows_while_it_answers_is_mended(home: DirectoryRegistry) -> None:
    tick()
    before = ask(home)
    with SearchIndex(home) as index:
        _scribble(home.root / FILE, 4096, b"\xff" * ((home.root / FILE).stat().st_size - 4096))
        assert told(index) == before
    assert ask(home) == before


def test_a_journal_of_an_earlier_file_is_not_applied_to_a_new_one(home: DirectoryRegistry) -> None:
    """A power cut left one, and somebody deleted the file beside it."""
    ask(home)
    path = home.root / FILE
    journal = path.with_name(f"{path.name}-journal")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        for table in ("models", "summaries", "artifacts"):
            database.execute(f"DELETE FROM {table}")
        kept = journal.read_bytes()
        database.rollback()
    path.unlink()
    journal.write_bytes(kept)
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    assert ask(home) == truth(home)
    assert ask(home) == truth(home)


def test_a_link_in_its_place_is_not_followed(home: DirectoryRegistry, tmp_path: Path) -> None:
    before = ask(home)
    shutil.copy(home.root / FILE, tmp_path / "precious")
    precious = (tmp_path / "precious").read_bytes()
    (home.root / FILE).unlink()
    (home.root / FILE).symlink_to(tmp_path / "precious")
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    assert ask(home) == truth(home) != before
    assert (tmp_path / "precious").read_bytes() == precious


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
def test_a_pipe_in_its_place_is_not_opened(home: DirectoryRegistry, suffix: str) -> None:
    """Reading one, or waiting for its other end, would take for ever; so the index is asked for in another process."""
    ask(home)
    pipe = home.root / f"{FILE}{suffix}"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    done = subprocess.run(
        [sys.executable, "-c", ASKER, home.root], timeout=60, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("8 ")


def test_a_registry_that_was_copied_does_not_believe_the_copied_file(
    home: DirectoryRegistry, tmp_path: Path
) -> None:
    ask(home)
    copy = DirectoryRegistry.open(Path(shutil.copytree(home.root, tmp_path / "copy")))
    (copy.root / index_path(SECOND)).unlink()
    _replace_by(copy, FIRST, grow.model_name(2))
    assert ask(copy) == truth(copy)
    assert ask(home) == truth(home)


def test_a_damaged_model_is_named_and_the_others_answer(home: DirectoryRegistry) -> None:
    whole = (home.root / index_path(FIRST)).read_bytes()
    _replace_by(home, FIRST, SECOND)
    with SearchIndex(home) as index:
        assert len(index.models()) == 7
        (damage,) = index.damages()
        assert f"the index of {FIRST} in" in damage
        assert index.damages("other/*") == []
        assert FIRST not in [match.model.name for match in index.matches(ArtifactKind())]
    (home.root / index_path(FIRST)).write_bytes(whole)
    assert ask(home) == truth(home)
    assert len(ask(home)[0]) == 8


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(
    "old, new",
    [
        (b'"size":32,"state":"unknown"', b'"size":99999999999999999999999,"state":"unknown"'),
        (b'"state":"unknown"', b'"state":"\\ud800"'),
        (b'"path":"model.onnx"', b'"path":"../model.onnx"'),
    ],
)
def test_a_summary_that_nobody_can_store_is_a_damage(home: DirectoryRegistry, old: bytes, new: bytes) -> None:
    path = home.root / index_path(FIRST)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with SearchIndex(home) as index:
        assert len(index.models()) == 7
        assert FIRST in index.damages()[0]


@pytest.mark.usefixtures("settled")
def test_catalogs_are_read_when_they_change_and_not_else(registry: Registry) -> None:
    name = grow.add_model(registry, 0, SEGMENT_LINES, True)
    catalog = lookup.read_state(registry.store, name).catalog
    assert catalog is not None
    tick()
    assert ask(registry.store) == truth(registry.store)
    blob = registry.store.root / f"blobs/sha256/{catalog.hex[:2]}/{catalog.hex}"
    away = blob.rename(registry.store.root / "away")
    tick()
    registry.store.disk.rename(_appended(registry, name), registry.store.root / index_path(name))
    with SearchIndex(registry.store) as index:
        assert index.damages() == []
        assert [model.versions for model in index.models()] == [SEGMENT_LINES]
    (registry.store.root / FILE).unlink()
    with SearchIndex(registry.store) as index:
        assert index.models() == []
        assert catalog.short in index.damages()[0]
        away.rename(blob)
        index.refresh()
        assert index.damages() == []
    assert ask(registry.store) == truth(registry.store)


def _appended(registry: Registry, name: str) -> Path:
    """The index file with one more line, written aside: the catalog is gone, so no verb would do it."""
    copies = {path.name: path for path in (registry.store.root / "blobs").rglob("*") if path.is_file()}
    copies[str(lookup.read_state(registry.store, name).catalog)[7:]] = registry.store.root / "away"
    data = (registry.store.root / index_path(name)).read_bytes()
    ledger = Ledger.read(data, registry.id, name, lambda digest: copies[digest.hex].read_bytes())
    expects = ledger.channels["stable"].manifest
    ledger.append(
        Untag(name=name, time="2026-01-02T03:04:05Z", nonce="0" * 32, tag="stable", expects=expects)
    )
    (registry.store.root / "local" / "next").write_bytes(ledger.encode())
    return registry.store.root / "local" / "next"


ASKER = """
import sys
from pathlib import Path
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.search.search_index import ArtifactKind, SearchIndex
with SearchIndex(DirectoryRegistry.open(Path(sys.argv[1]))) as index:
    print(len(index.models()), len(index.matches(ArtifactKind(certified=True))), index.damages())
"""


@pytest.mark.parametrize("first", sampled(["none", "stale", "damaged"], 3))
def test_processes_that_update_at_once_all_answer(home: DirectoryRegistry, first: str) -> None:
    if first != "none":
        ask(home)
        (home.root / index_path(SECOND)).unlink()
    if first == "damaged":
        (home.root / FILE).write_bytes(b"?" * 10_000)
    running = [
        subprocess.Popen([sys.executable, "-c", ASKER, home.root], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    expected = f"{len(list(home.names()))} {len(truth(home)[2][0])} []\n"
    assert [process.communicate()[0] for process in running] == [expected] * 4
    assert ask(home) == truth(home)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_file_that_somebody_holds_is_not_waited_for(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr(search, "LOCK_TIMEOUT_SECONDS", 0.05)
    tick()
    ask(home)
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    before = (home.root / FILE).stat().st_ino
    with closing(sqlite3.connect(home.root / FILE, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        assert ask(home) == truth(home)
        other.rollback()
    assert lock == "EXCLUSIVE" or (home.root / FILE).stat().st_ino == before
    assert ask(home) == truth(home)


def _no_staging(self: DirectoryRegistry) -> Any:
    raise HostError("writing failed: Read-only file system")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("there", [True, False])
def test_a_directory_that_cannot_be_written_is_answered_from_memory(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    tick()
    if there:
        ask(home)
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    connect = search._connect
    monkeypatch.setattr(DirectoryRegistry, "staging", _no_staging)
    monkeypatch.setattr(search, "_connect", lambda where: connect(str(where).replace("mode=rw", "mode=ro")))
    before = (home.root / FILE).read_bytes() if there else None
    assert ask(home) == truth(home)
    assert before == ((home.root / FILE).read_bytes() if there else None)


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_is_answered_from_memory(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        ask(home)
    grow.add_model(Registry(home.root), 20, 40, False)
    connect = search._connect

    def small(where: Path | str) -> sqlite3.Connection:
        database = connect(where)
        if where != ":memory:":
            database.execute("PRAGMA max_page_count = 1")
        return database

    monkeypatch.setattr(search, "_connect", small)
    assert ask(home) == truth(home)
    assert list((home.root / "local" / "tmp").iterdir()) == []


def test_a_local_directory_that_is_a_file_is_no_obstacle(home: DirectoryRegistry) -> None:
    shutil.rmtree(home.root / "local")
    (home.root / "local").write_bytes(b"")
    assert ask(home) == truth(home)


@pytest.mark.usefixtures("settled")
def test_the_first_model_of_an_empty_registry_is_noticed(registry: Registry) -> None:
    tick()
    assert ask(registry.store)[:2] == ([], [])
    tick()
    grow.add_model(registry, 0, 2, False)
    assert len(ask(registry.store)[0]) == 1
    assert ask(registry.store) == truth(registry.store)


def test_reading_one_model_knows_what_it_cannot_read(home: DirectoryRegistry) -> None:
    _replace_by(home, FIRST, SECOND)
    with pytest.raises(IntegrityError):
        read_model(home, FIRST)
    with pytest.raises(NotFoundError):
        read_model(home, "nobody")


@pytest.mark.parametrize("limit", [0, 7, 8, 9])
def test_models_are_counted_only_as_far_as_asked(home: DirectoryRegistry, limit: int) -> None:
    assert scan.has_more(home.root, limit) == (limit < 8)
    assert not scan.has_more(home.root / "nowhere", limit)
