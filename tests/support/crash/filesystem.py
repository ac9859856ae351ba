"""What a file system may hold after a crash: a model of it, fed by the `Disk` under the real store code.

The rules are POSIX's, read by a pessimist; ext4, XFS and Btrfs keep more than that:

* the bytes of a file that was not synced may be there, absent, cut short, zeros, or partly garbage, whatever its name;
* a name (made by a rename or mkdir, or taken away by an unlink) is durable when its directory was synced afterwards;
  until then each change of a directory may have reached the disk or not, independently of all others;
* a rename is atomic: the old file or the new one, never neither.

Scratch (`local/tmp`, `local/locks`) and the notes in `gc/` are no durable state. Nothing may depend on them, so they
come back in any of the ways that `Leftovers` lists, whatever was synced.
"""

import itertools
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from onnxreg.registry.system import Disk

EPHEMERAL = (("local", "tmp"), ("local", "locks"), ("gc",))
USER, TRACKING = "user", ("user", "tracking")
"""The user's state directory, and the tracking copies in it: each a tree of its own."""
MARKERS = ".lock"
EXHAUSTIVE = 6
"""So many pending changes or fewer: every subset of them is tried, else some."""


def is_ephemeral(path: PurePosixPath) -> bool:
    """Whether a path `registry/...` is scratch or a note, also that of a tracking copy, which is a tree of its own."""
    if path.parts[:2] == TRACKING:
        path = PurePosixPath(*path.parts[2:])
    return any(path.parts[1 : 1 + len(place)] == place for place in EPHEMERAL)


class Contents:
    """The bytes of a file, and the step after which they are durable (None: never)."""

    def __init__(self, data: bytes, synced: int | None) -> None:
        self.data = data
        self.synced = synced


@dataclass(frozen=True)
class Change:
    """One change of a directory: `file` gets this name; or, with None, a directory is made or a name taken away."""

    kind: str
    path: PurePosixPath
    file: Contents | None = None

    def apply(self, tree: "Tree") -> None:
        if self.kind == "unlink":
            tree.pop(self.path, None)
        else:
            tree[self.path] = self.file


@dataclass(frozen=True)
class Sync:
    """A directory whose names are durable now; None: all of them."""

    directory: PurePosixPath | None


Tree = dict[PurePosixPath, Contents | None]
"""Files, and directories as None."""
Step = Change | Sync | None
"""None is a step that changes nothing but a file's durability, or only scratch."""


class Torn(Enum):
    """What may be found in a file whose bytes were not synced."""

    WHOLE = "whole"
    EMPTY = "empty"
    CUT = "cut"
    ZEROS = "zeros"
    GARBAGE = "garbage"

    def of(self, data: bytes) -> bytes:
        half = len(data) // 2
        match self:
            case Torn.WHOLE:
                return data
            case Torn.EMPTY:
                return b""
            case Torn.CUT:
                return data[:half]
            case Torn.ZEROS:
                return bytes(len(data))
            case Torn.GARBAGE:
                return data[:half] + bytes(byte ^ 0x5A for byte in data[half:])


class Leftovers(Enum):
    """How scratch and notes come back: not at all, as they were, with empty files, or without the locks' files."""

    NONE = "none"
    KEPT = "kept"
    TORN = "torn"
    UNMARKED = "unmarked"


@dataclass(frozen=True)
class State:
    """What a crash left: the durable tree, which of its files are torn and how, and what became of scratch."""

    point: int
    tree: Mapping[PurePosixPath, Contents | None]
    torn: Mapping[PurePosixPath, Torn]
    leftovers: Leftovers

    def files(self) -> Iterator[tuple[PurePosixPath, bytes | None]]:
        for path, contents in self.tree.items():
            yield path, None if contents is None else self.torn.get(path, Torn.WHOLE).of(contents.data)

    def key(self) -> tuple[object, ...]:
        """Equal for states that cannot be told apart."""
        return frozenset(self.files()), self.leftovers


class Killed(BaseException):
    """The process is dead: nothing that it still tries reaches the disk."""


@dataclass
class Recorder(Disk):
    """A disk that does what it is told below `base` and writes down each step. It never syncs anything, and serves one thread at a time.

    Before step `stop`, counted from 0, it calls `then` once and is dead from there on.
    """

    base: Path
    stop: int | None = None
    then: Callable[[], None] = lambda: None
    steps: list[Step] = field(default_factory=list)
    scratch: list[Mapping[PurePosixPath, bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._files: dict[PurePosixPath, Contents] = {}
        self._seen: dict[PurePosixPath, bytes | None] = {}
        self._synced: set[PurePosixPath] = set()

    def _relative(self, path: Path) -> PurePosixPath:
        return PurePosixPath(path.relative_to(self.base).as_posix())

    def _before(self) -> None:
        if self.stop is not None and len(self.steps) >= self.stop:
            then, self.then = self.then, _dead
            then()
            self.stop = 0
            raise Killed

    def _did(self, step: Step) -> None:
        self.steps.append(step)
        self.scratch.append(self._leftovers())

    def _leftovers(self) -> Mapping[PurePosixPath, bytes | None]:
        """What lies in scratch and notes now, with every note that ever lay there."""
        found: dict[PurePosixPath, bytes | None] = {}
        trees = ("*", "/".join((*TRACKING, "*")))
        for place in [
            path for tree in trees for parts in EPHEMERAL for path in self.base.glob("/".join((tree, *parts)))
        ]:
            for parent, directories, files in os.walk(place):
                root = self._relative(Path(parent))
                found |= dict.fromkeys(root / name for name in directories)
                for name in files:
                    relative = root / name
                    if name.endswith(MARKERS):
                        found[relative] = b""
                        continue
                    with suppress(FileNotFoundError):  # another thread of the command just renamed it
                        if relative not in self._seen:
                            self._seen[relative] = Path(parent, name).read_bytes()
                        found[relative] = self._seen[relative]
        notes = {path: data for path, data in self._seen.items() if path.parts[1] == "gc"}
        return found | notes

    def create(self, path: Path) -> BinaryIO:
        self._before()
        assert is_ephemeral(self._relative(path)), f"{path} is written under its final name"
        return super().create(path)

    def mkdir(self, path: Path) -> None:
        self._before()
        relative = self._relative(path)
        made = not path.is_dir()
        super().mkdir(path)
        if made and not is_ephemeral(relative):
            self._did(Change("mkdir", relative))

    def sync_file(self, path: Path) -> None:
        self.sync_files([path])

    def sync_files(self, paths: Sequence[Path]) -> None:
        self._before()
        for path in paths:
            relative = self._relative(path)
            assert path.is_file()
            self._synced.add(relative)
            if relative in self._files and self._files[relative].synced is None:
                self._files[relative].synced = len(self.steps) + 1
        self._did(None)

    def sync_directories(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self.sync_directory(path)

    def sync_directory(self, path: Path) -> bool:
        self._before()
        assert path.is_dir()
        if path.is_relative_to(self.base) and not is_ephemeral(self._relative(path)):
            self._did(Sync(self._relative(path)))
        return True

    def sync_all(self, path: Path) -> None:
        self._before()
        for contents in self._files.values():
            contents.synced = len(self.steps) + 1 if contents.synced is None else contents.synced
        self._did(Sync(None))

    def rename(self, source: Path, target: Path) -> None:
        self._before()
        old, new = self._relative(source), self._relative(target)
        assert is_ephemeral(old), f"{source} loses its name"
        durable = old in self._synced
        self._synced.discard(old)
        super().rename(source, target)
        if is_ephemeral(new):
            self._synced |= {new} if durable else set()
            self._did(None)
        else:
            self._files[new] = Contents(target.read_bytes(), 0 if durable else None)
            self._did(Change("rename", new, self._files[new]))

    def unlink(self, path: Path) -> None:
        self._before()
        relative, there = self._relative(path), path.exists()
        super().unlink(path)
        if there:
            self._did(None if is_ephemeral(relative) else Change("unlink", relative))

    def remove_tree(self, path: Path) -> None:
        self._before()
        assert is_ephemeral(self._relative(path))
        super().remove_tree(path)
        self._did(None)


def _dead() -> None:
    raise Killed


@dataclass(frozen=True)
class Crashes:
    """Every state, or a sample, that may be found after a crash at some point of what was recorded.

    Point k lies behind the first k steps. `few` pending changes have all their subsets tried; more have the empty and
    the whole one, each alone, each missing, and `samples` others.
    """

    recorder: Recorder
    few: int = EXHAUSTIVE
    samples: int = 16
    seed: int = 0

    def states(self, points: Collection[int]) -> Iterator[State]:
        durable: Tree = {}
        pending: list[Change] = []
        turn = itertools.cycle(Leftovers)
        for point in range(len(self.recorder.steps) + 1):
            if point:
                pending = _advance(durable, pending, self.recorder.steps[point - 1])
            if point in points:
                for chosen in self._subsets(pending, point):
                    tree = _reachable(durable, chosen)
                    for torn in self._torn(tree, point):
                        yield State(point, tree, torn, next(turn))

    def _subsets(self, pending: Sequence[Change], point: int) -> Iterator[Sequence[Change]]:
        count = len(pending)
        if count <= self.few:
            for size in range(count + 1):
                yield from itertools.combinations(pending, size)
            return
        yield from ((), pending)
        for index in range(count):
            yield [pending[index]]
            yield [*pending[:index], *pending[index + 1 :]]
        draw = random.Random(f"{self.seed} {point}")
        for _ in range(self.samples):
            share = draw.random()
            yield [change for change in pending if draw.random() < share]

    def _torn(self, tree: Tree, point: int) -> Iterator[Mapping[PurePosixPath, Torn]]:
        """None torn; all in each way; each alone in each way."""
        at_risk = [
            path
            for path, contents in tree.items()
            if contents is not None and (contents.synced is None or contents.synced > point)
        ]
        yield {}
        for kind in Torn if at_risk else ():
            yield dict.fromkeys(at_risk, kind)
            yield from ({path: kind} for path in at_risk if len(at_risk) > 1)

    def write(self, state: State, base: Path) -> None:
        """Make a directory tree of a state."""
        scratch = self.recorder.scratch[state.point - 1] if state.point else {}
        files = dict(state.files())
        match state.leftovers:
            case Leftovers.NONE:
                scratch = {}
            case Leftovers.TORN:
                scratch = {path: data and b"" for path, data in scratch.items()}
            case Leftovers.UNMARKED:
                scratch = {path: data for path, data in scratch.items() if path.suffix != MARKERS}
        roots = {path.parts[0] for path in files}
        files |= {path: data for path, data in scratch.items() if path.parts[0] in roots}
        for path, data in sorted(files.items()):
            place = base / path
            if data is None:
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)


def _advance(durable: Tree, pending: list[Change], step: Step) -> list[Change]:
    """The changes that are still pending after a step."""
    if isinstance(step, Change):
        return [*pending, step]
    if isinstance(step, Sync):
        synced = [change for change in pending if step.directory in (None, change.path.parent)]
        for change in synced:
            change.apply(durable)
        return [change for change in pending if change not in synced]
    return pending


def _reachable(durable: Tree, changes: Sequence[Change]) -> Tree:
    """The tree with these changes; what lies in a directory that was lost is lost with it."""
    tree = dict(durable)
    for change in changes:
        change.apply(tree)
    return {
        path: contents for path, contents in tree.items() if all(above in tree for above in path.parents[:-1])
    }
