"""What must hold in every state that a crash leaves."""

import os
import random
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from onnxreg.registry import Registry, system
from onnxreg.registry.log.log import load
from onnxreg.registry.store import directory
from onnxreg.registry.system import Disk
from onnxreg.schema.core.errors import HostError, NotFoundError
from support.crash.filesystem import USER, Crashes, Killed, Recorder, State
from support.crash.workloads import Command, Pair, add, collect
from support.registries import owner

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""States are rebuilt where that costs least."""


class ViolationError(AssertionError):
    """What must hold does not."""


@dataclass(frozen=True)
class Log:
    """What a registry says of a model: the ids of its events, what they are about, and what versions are to be had."""

    events: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    present: frozenset[str]


Seen = Mapping[str, Mapping[str, Log]]
"""The logs of each registry below a directory."""


def observe(base: Path) -> dict[str, dict[str, Log]]:
    """What the registries below a directory say, read by the store's own code."""
    seen = {}
    for root in sorted(path.parent for path in base.glob("*/registry.json")):
        registry = Registry(root, create=False)
        seen[root.name] = {name: _log(registry, name) for name in registry.names()}
    return seen


def _log(registry: Registry, name: str) -> Log:
    ledger = load(registry.store, name)
    events = [line.event for line in ledger.lines()]
    return Log(
        tuple(str(event.id) for event in events),
        tuple((event.kind, str(getattr(event, "version", ""))) for event in events),
        frozenset(
            f":{version}@{entry.manifest}" for version, entry in ledger.versions.items() if entry.gone is None
        ),
    )


class Careless(Disk):
    """A disk for what no power cut threatens: it syncs nothing."""

    def _nothing(self, *paths: object) -> None:
        pass

    sync_file = sync_files = sync_directory = sync_directories = sync_all = _nothing  # type: ignore[assignment]


@contextmanager
def on(disk: Disk) -> Iterator[None]:
    """Every registry that is opened meanwhile lies on this disk; one thread, so that a run can be repeated."""
    with (
        patch.object(directory, "Disk", lambda: disk),
        patch.dict(os.environ, {"REG_STATE": str(disk.base / USER)} if isinstance(disk, Recorder) else {}),
        patch("onnxreg.registry.transfer.export_files.Disk", Careless),
        patch("onnxreg.registry.system.WORKERS", 1),
    ):
        yield


@dataclass(frozen=True)
class Trace:
    """What was recorded: from which step on the last command ran, and what was to be seen before it and at its end.

    `middle` is what a first command that never ended left to the last one. Of what the last one acknowledged,
    `promised` is the model, where the first one's work on others may still be lost; None: all models.
    """

    recorder: Recorder
    start: int
    before: Seen
    middle: Seen
    after: Seen
    promised: str | None = None

    @property
    def end(self) -> int:
        return len(self.recorder.steps)

    def possible(self, registry: str, model: str, point: int) -> list[Log | None]:
        """What a registry may say of a model after a crash."""
        settled = point == self.end and self.promised in (None, model)
        seen = (self.after,) if settled else (self.before, self.middle, self.after)
        return [each.get(registry, {}).get(model) for each in seen]


def record(base: Path, before: Sequence[Command], command: Command, disk: type[Recorder] = Recorder) -> Trace:
    """Run a command to its end, behind others."""
    base.mkdir(exist_ok=True)
    recorder = disk(base)
    with on(recorder):
        for earlier in before:
            earlier(base)
        seen, start = observe(base), len(recorder.steps)
        command(base)
        return Trace(recorder, start, seen, seen, observe(base))


class BlockedError(Exception):
    """The second command waits for a lock that the first one holds."""


def record_pair(base: Path, pair: Pair, stop: int, killed: bool) -> Trace:
    """The first command stops before one of its steps, killed or standing still; then the second one runs to its end.

    BlockedError where it cannot.
    """
    base.mkdir(exist_ok=True)
    recorder = Recorder(base)
    traces: list[Trace] = []

    def second() -> None:
        recorder.stop = None
        middle, start = observe(base), len(recorder.steps)
        try:
            pair.second(base)
        except HostError as error:
            raise BlockedError from error
        traces.append(Trace(recorder, start, before, middle, observe(base), pair.promised))

    with on(recorder), patch.object(directory, "NOTICE_SECONDS", 0), patch.object(system, "tell", _blocked):
        for earlier in pair.before:
            earlier(base)
        before = observe(base)
        recorder.stop = len(recorder.steps) + stop
        recorder.then = (lambda: None) if killed else second
        try:
            pair.first(base)
        except Killed:
            if killed:
                second()
        if not traces:  # digests are random: where two blobs share a directory, a run has a step less
            second()
    return traces[0]


def _blocked(line: str) -> None:
    raise BlockedError(line)


@contextmanager
def stranger(base: Path) -> Iterator[None]:
    """A user who saw no other of the states: they have one id, and histories of their own."""
    with patch.dict(os.environ, {"REG_STATE": str(base / USER)}):
        yield


def check(
    trace: Trace, again: Command, limit: int | None = None, points: Collection[int] | None = None
) -> int:
    """Check the states that a crash at these points (default: all of the command's) may leave.

    At most `limit` of them, drawn at random. Returns how many there were that differ.
    """
    crashes, draw = Crashes(trace.recorder), random.Random(limit)
    chosen = list(range(trace.start, trace.end + 1) if points is None else points)
    if limit is not None and limit < len(chosen):
        chosen = [*draw.sample(chosen[:-1], limit - 1), chosen[-1]]
    found: dict[tuple[object, ...], State] = {}
    for state in crashes.states(chosen):
        found.setdefault((*state.key(), state.point == trace.end), state)
    states = list(found.values())
    if limit is not None and limit < len(states):
        states = draw.sample(states, limit)
    for state in states:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory, stranger(Path(directory)), on(Careless()):
            crashes.write(state, Path(directory))
            try:
                _check(Path(directory), state.point, trace, again)
            except Exception as error:
                raise ViolationError(_explain(trace, state, error)) from error
    return len(states)


def _check(base: Path, point: int, trace: Trace, again: Command) -> None:
    acknowledged = trace.after if point == trace.end else trace.before
    for name in trace.after:
        _check_registry(base / name, name in acknowledged)
    seen = observe(base)
    for name, models in trace.after.items():
        for model in {*models, *trace.before.get(name, {}), *seen.get(name, {})}:
            found = seen.get(name, {}).get(model)
            assert found in trace.possible(name, model, point), (
                f"{name} holds {found and found.kinds} of {model}"
            )
    _check_present(base, seen)
    _check_next(base, seen, trace, again)


def _check_registry(root: Path, acknowledged: bool) -> None:
    """It opens and verifies; or is not there, where nobody was told that it is."""
    try:
        registry = Registry(root, create=False)
    except NotFoundError:
        assert not acknowledged, f"{root.name} is gone"
        return
    report = owner.verify(registry)
    assert not report.damages, report.damages


def _check_present(base: Path, seen: Seen) -> None:
    """The first and the newest version of every model can be written out."""
    for name, models in seen.items():
        for model, log in models.items():
            for version in {min(log.present), max(log.present)} if log.present else ():
                output = base / "written"
                written = Registry(base / name).write_out(f"{model}{version}", output)
                for path in written.held or ("model.onnx",):
                    assert (output / path).stat().st_size > 0
                shutil.rmtree(output)


def _check_next(base: Path, seen: Seen, trace: Trace, again: Command) -> None:
    """The next commands work: the same again where it was undone, another, and a collection, which clears all away."""
    if seen != trace.after:
        again(base)
        assert trace.promised is not None or _kinds(observe(base)) == _kinds(trace.after)
    for name in trace.after:
        add("next", "acme/next", where=name)(base)
        scratch = list((base / name / "local" / "tmp").iterdir())
        assert not scratch, f"{name} keeps {scratch}"
        collect(name)(base)
        assert not [path for path in (base / name / "gc").rglob("*") if path.is_file()]
        report = owner.verify(Registry(base / name))
        assert not report.damages and not report.unreferenced, report


def _kinds(seen: Seen) -> dict[str, dict[str, object]]:
    return {
        name: {model: (log.kinds, log.present) for model, log in models.items()}
        for name, models in seen.items()
    }


def _explain(trace: Trace, state: State, error: Exception) -> str:
    steps = trace.recorder.steps[trace.start : state.point]
    kept = "\n".join(f"  {path}: {state.torn.get(path, '')}" for path in sorted(state.tree))
    return "\n".join(
        [
            f"{type(error).__name__}: {error}",
            f"after step {state.point - trace.start} of {trace.end - trace.start}, scratch {state.leftovers.value}",
            "the last steps:",
            *(f"  {step}" for step in steps[-8:]),
            "what was left:",
            kept,
        ]
    )
