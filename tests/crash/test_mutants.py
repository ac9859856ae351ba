"""The layer finds what it is there to find: each of these mistakes leaves a registry that is damaged, or lost something."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.crash.filesystem import Recorder
from support.crash.invariants import ViolationError, check, record, record_pair
from support.crash.workloads import AGAIN, PAIRS, WORKLOADS
from support.sampling import sampled

from onnxreg.registry.store.directory import DirectoryPush, DirectoryRegistry
from onnxreg.registry.store.protocol import index_path

Files = Iterable[tuple[Path, Path]]


def nothing(*arguments: Any, **more: Any) -> None:
    pass


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

    def write_all(self, files: Files, root: Path, *more: Any, **options: Any) -> None:
        for source, target in files:
            for above in reversed(target.parents):
                if not above.is_dir():
                    self.mkdir(above)
            super().write_all([(source, target)], target.parent)


class SyncsLate(Recorder):
    """Gives files their final names, then syncs them."""

    def write_all(self, files: Files, *more: Any, **options: Any) -> None:
        pairs = list(files)
        with patch.object(self, "sync_files", nothing):
            super().write_all(pairs, *more)
        self.sync_files([target for _, target in pairs])


class NamesLate(Recorder):
    """Syncs directories before it gives files their names there."""

    def write_all(self, files: Files, *more: Any, **options: Any) -> None:
        pairs = list(files)
        with patch.object(self, "rename", nothing):
            super().write_all(pairs, *more)
        for source, target in pairs:
            self.rename(source, target)


SECOND_ADD = next(workload for workload in WORKLOADS if workload.name == "second add")


@pytest.mark.parametrize(
    "disk", sampled([NoFileSync, NoDirectorySync, NoParentSync, SyncsLate, NamesLate], 5)
)
def test_a_careless_disk_is_found_out(disk, tmp_path):
    trace = record(tmp_path, SECOND_ADD.before, SECOND_ADD.command, disk)
    with pytest.raises(ViolationError):
        check(trace, SECOND_ADD.command)


def test_an_index_that_is_written_before_its_blobs_is_found_out(tmp_path):
    def publish(self: Any, name: str, index: bytes, expected: str | None) -> None:
        self._registry.store.swap_from(self.directory, index_path(name), index, expected)
        self.flush()

    with patch.object(DirectoryPush, "publish", publish):
        trace = record(tmp_path, SECOND_ADD.before, SECOND_ADD.command)
    with pytest.raises(ViolationError):
        check(trace, SECOND_ADD.command)


def delete_at_once(self: DirectoryRegistry, keys: Any) -> None:
    with patch.object(Recorder, "sync_directory", nothing):
        DELETE(self, keys)


def write_all_alone(self: Recorder, files: Files, root: Path, *more: Any, **options: Any) -> None:
    WRITE_ALL(self, files, root)


DELETE, WRITE_ALL = DirectoryRegistry.delete, Recorder.write_all
CARELESS: dict[str, dict[tuple[type, str], Callable[..., None]]] = {
    "names of blobs that were there already": {(Recorder, "write_all"): write_all_alone},
    "logs that allow a deletion": {(DirectoryRegistry, "delete"): delete_at_once},
    "what a dead command renamed": {(Recorder, "sync_all"): nothing, (DirectoryRegistry, "confirm"): nothing},
}
"""What a pair of commands depends on, left out."""


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
def test_an_unsynced_rename_of_another_command_is_noticed(omission, pair, killed, tmp_path):
    """Standing still, or dead, before the first sync behind a rename under a final name."""
    chosen = next(each for each in (*PAIRS, *AGAIN) if each.name == pair)
    whole = record(tmp_path / "whole", chosen.before, chosen.first)
    steps = [str(getattr(step, "kind", "")) for step in whole.recorder.steps[whole.start :]]
    last = max(number for number, kind in enumerate(steps) if kind == "rename")
    stops = [number + 1 for number, kind in enumerate(steps) if kind == "rename"] + [last + 2]
    with ExitStack() as patches, pytest.raises(ViolationError):
        for (kind, name), instead in CARELESS[omission].items():
            patches.enter_context(patch.object(kind, name, instead))
        for stop in stops:
            trace = record_pair(tmp_path / str(stop), chosen, stop, killed)
            check(trace, chosen.second, points=[trace.end])
