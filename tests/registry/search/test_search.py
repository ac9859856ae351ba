"""The catalog of a directory lists what the index files say, whatever happened to them."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries import grow, owner
from support.registries.opened import opened

from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.store import directory
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.core.errors import RegError

FIRST, SECOND = grow.model_name(0), grow.model_name(1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grow.grow(tmp_path_factory.mktemp("search") / "home", 8, 6, whole=range(8)).store.root


@pytest.fixture
def home(template: Path, tmp_path: Path) -> DirectoryRegistry:
    """Eight models of six versions; a copy of its own for each test."""
    return DirectoryRegistry.open(Path(shutil.copytree(template, tmp_path / "home")))


def tick() -> None:
    """Let the file system's clock, which may stand still for a hundredth of a second, go on."""
    time.sleep(0.03)


Row = dict[str, Any]


def ask(remote: DirectoryRegistry) -> tuple[list[Row], list[str]]:
    """What the catalog lists, and the damages."""
    found = LocalCatalog(remote).refresh()
    return [model.to_json() for model in found.readable()], [short(damage) for damage in found.damages()]


def short(damage: str) -> str:
    return damage.partition(" in ")[0]


def truth(remote: DirectoryRegistry) -> tuple[list[Row], list[str]]:
    """The same from the index files, one by one."""
    models: list[Row] = []
    damages = []
    for name in remote.names():
        try:
            log = lookup.open_log(remote, name)
            state, entries = log.state, log.versions
        except RegError as damage:
            damages.append(short(damage.message))
            continue
        newest = state.newest_release()
        channels = {tag: str(channel.version) for tag, channel in sorted(state.channels.items())}
        models.append(
            {"name": name, "versions": len(entries), "newest": newest and str(newest), "channels": channels}
        )
    return models, damages


def test_patterns_choose_names(home: DirectoryRegistry, make_draft: Callable[..., Any]) -> None:
    Registry(home.root).add(make_draft("tiny"))
    found = LocalCatalog(home).refresh()
    assert [model.name for model in found.readable("t*")] == ["tiny"]
    assert [model.name for model in found.readable("*/model-0[13]")] == [SECOND, grow.model_name(3)]


@pytest.mark.usefixtures("settled")
def test_only_the_index_files_that_changed_are_read_again(home: DirectoryRegistry) -> None:
    tick()
    ask(home)
    tick()
    Registry(home.root).yank(f"{SECOND}:1.2.0")
    with opened(home.root) as found:
        answer = ask(home)
    assert answer == truth(home)
    assert [path for path in found if path.startswith("index/org-000/")] == [index_path(SECOND)]


def _replace_by(home: DirectoryRegistry, name: str, other: str) -> None:
    """Another model's history under this name, as a stranger might put it there."""
    (home.root / "next").write_bytes((home.root / index_path(other)).read_bytes())
    (home.root / "next").replace(home.root / index_path(name))


def _keeping_times(home: DirectoryRegistry) -> None:
    """A restore that gives back size and time of modification of what it replaces, as `rsync --times` does."""
    file = home.root / index_path(FIRST)
    before, above = file.stat(), file.parent.stat()
    owner.untag(Registry(home.root), FIRST, "stable")
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
    "a channel taken away": lambda home: owner.untag(Registry(home.root), FIRST, "stable"),
    "a drop": lambda home: owner.drop(Registry(home.root), f"{FIRST}:1.5.0"),
    "a purge": lambda home: owner.purge(Registry(home.root), f"{FIRST}:1.5.0", "leaked"),
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


@pytest.mark.parametrize("tick_length, noticed", [(2 * 10**9, True), (0, False)])
def test_a_change_within_one_tick_of_the_clock_is_noticed(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch, tick_length: int, noticed: bool
) -> None:
    """On a clock so coarse that nothing tells the file from the one before; without the wait it is missed."""
    monkeypatch.setattr(directory, "TICK_NANOSECONDS", tick_length)
    monkeypatch.setattr(directory, "mark", lambda status: "the same")
    tick()
    ask(home)
    Registry(home.root).yank(f"{FIRST}:1.5.0")
    assert (ask(home) == truth(home)) == noticed


def test_a_damaged_model_is_named_and_the_others_answer(home: DirectoryRegistry) -> None:
    whole = (home.root / index_path(FIRST)).read_bytes()
    _replace_by(home, FIRST, SECOND)
    found = LocalCatalog(home).refresh()
    assert len(found.readable()) == 7 and found.damages("other/*") == []
    assert f"the index of {FIRST} in" in found.damages()[0]
    (home.root / index_path(FIRST)).write_bytes(whole)
    assert ask(home) == truth(home)
    assert len(ask(home)[0]) == 8


def test_a_local_directory_that_is_a_file_is_no_obstacle(home: DirectoryRegistry) -> None:
    shutil.rmtree(home.root / "local")
    (home.root / "local").write_bytes(b"")
    assert ask(home) == truth(home)
