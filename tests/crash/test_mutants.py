"""The layer finds what it is there to find: each of these mistakes leaves a registry that is damaged, or lost something."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.crash.filesystem import Recorder
from support.crash.invariants import ViolationError, check, record, record_pair
from support.crash.workloads import AGAIN, PAIRS, WORKLOADS
from support.sampling import sampled

from onnxreg.registry.store.directory import DirectoryPush, DirectoryRegistry
from onnxreg.registry.store.layout import index_path

Files = Iterable[tuple[Path, Path]]


class NoFileSync(Recorder):
    """Forgets to sync files."""

    def sync_files(self, paths: Sequence[Path]) -> None:
        self._did(None)


class NoDirectorySync(Recorder):
    """Forgets to sync directories."""

    def sync_directory(self, path: Path) -> bool:
        self._did(None)
        return True


class NoParentSync(Recorder):
    """Syncs the directory of a file, and none above it."""

    def write_all(
        self, files: Files, root: Path, relied: Collection[Path] = (), shared: bool = False
    ) -> None:
        for source, target in files:
            for above in reversed(target.parents):
                if not above.is_dir():
                    self.mkdir(above)
            super().write_all([(source, target)], target.parent)


class SyncsLate(Recorder):
    """Gives files their final names, then syncs them."""

    def write_all(
        self, files: Files, root: Path, relied: Collection[Path] = (), shared: bool = False
    ) -> None:
        pairs = list(files)
        with patch.object(self, "sync_files", lambda paths: None):
            super().write_all(pairs, root, relied)
        self.sync_files([target for _, target in pairs])


class NamesLate(Recorder):
    """Syncs directories before it gives files their names there."""

    def write_all(
        self, files: Files, root: Path, relied: Collection[Path] = (), shared: bool = False
    ) -> None:
        pairs = list(files)
        with patch.object(self, "rename", lambda source, target: None):
            super().write_all(pairs, root, relied)
        for source, target in pairs:
            self.rename(source, target)


@pytest.mark.parametrize(
    "disk", sampled([NoFileSync, NoDirectorySync, NoParentSync, SyncsLate, NamesLate], 2)
)
def test_a_careless_disk_is_found_out(disk: type[Recorder], tmp_path: Path) -> None:
    workload = next(workload for workload in WORKLOADS if workload.name == "second add")
    trace = record(tmp_path, workload.before, workload.command, disk)
    with pytest.raises(ViolationError):
        check(trace, workload.command)


def test_an_index_that_is_written_before_its_blobs_is_found_out(tmp_path: Path) -> None:
    def publish(self: Any, name: str, index: bytes, expected: str | None) -> None:
        self._registry.store.swap_from(self.directory, index_path(name), index, expected)
        self.flush()

    workload = next(workload for workload in WORKLOADS if workload.name == "second add")
    with patch.object(DirectoryPush, "publish", publish):
        trace = record(tmp_path, workload.before, workload.command)
    with pytest.raises(ViolationError):
        check(trace, workload.command)


def careless(name: str) -> Callable[[], Any]:
    """What a pair of commands depends on, left out."""
    nothing: Callable[..., None] = lambda *arguments: None
    match name:
        case "names of blobs that were there already":
            write_all = Recorder.write_all
            return lambda: patch.object(
                Recorder,
                "write_all",
                lambda self, files, root, relied=(), shared=False: write_all(self, files, root),
            )
        case "logs that allow a deletion":
            delete = DirectoryRegistry.delete

            def delete_at_once(self: DirectoryRegistry, keys: Any) -> None:
                with patch.object(Recorder, "sync_directory", nothing):
                    delete(self, keys)

            return lambda: patch.object(DirectoryRegistry, "delete", delete_at_once)
        case _:

            @contextmanager
            def both() -> Iterator[None]:
                with (
                    patch.object(Recorder, "sync_all", nothing),
                    patch.object(DirectoryRegistry, "confirm", nothing),
                ):
                    yield

            return both


@pytest.mark.parametrize(
    ("omission", "pair", "killed"),
    [
        ("logs that allow a deletion", "collect what a model gives up", False),
        ("what a dead command renamed", "add again", True),
        pytest.param(
            *("names of blobs that were there already", "push of another version", False),
            marks=pytest.mark.more,
        ),
    ],
)
def test_an_unsynced_rename_of_another_command_is_noticed(
    omission: str, pair: str, killed: bool, tmp_path: Path
) -> None:
    """Standing still, or dead, before the first sync behind a rename under a final name."""
    chosen = next(each for each in (*PAIRS, *AGAIN) if each.name == pair)
    whole = record(tmp_path / "whole", chosen.before, chosen.first)
    steps = [str(getattr(step, "kind", "")) for step in whole.recorder.steps[whole.start :]]
    last = max(number for number, kind in enumerate(steps) if kind == "rename")
    stops = [number + 1 for number, kind in enumerate(steps) if kind == "rename"] + [last + 2]
    with careless(omission)(), pytest.raises(ViolationError):
        for stop in stops:
            trace = record_pair(tmp_path / str(stop), chosen, stop, killed)
            check(trace, chosen.second, points=[trace.end])
