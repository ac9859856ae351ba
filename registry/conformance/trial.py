"""A trial of one promise, and its outcome. `store/promises.py` has the promises of every store.

The last trial of each store is one of whole pushes: two writers push a tiny model to it, and a reader pulls it.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol

from onnxreg.registry.log.commit import load
from onnxreg.registry.maintain.verification import verify_model
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.registry import Registry
from onnxreg.registry.store import promises
from onnxreg.registry.store.object_store import ObjectStore
from onnxreg.registry.store.promises import ObjectScratch, Promise, Subject, SwapScratch
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer.copy import copy
from onnxreg.registry.transfer.plan import TransferRequest
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.errors import Advice, RegError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

MOVE_HINT = "a registry relies on this: keep it at a place that promises it"
NAME = "trial/tiny"


@dataclass(frozen=True)
class PromiseTrial:
    """A promise and its test: `attempt` yields one message for each failure. A RegError means broken, too."""

    check: str
    promise: str
    attempt: Callable[[], Iterable[str]]


def trials_of(promises: Iterable[Promise[Subject]], scratch: Callable[[str], Subject]) -> list[PromiseTrial]:
    """The trials of the promises that `reg doctor --live` tries, each on a scratch of its own."""
    return [
        PromiseTrial(
            promise.name, promise.sentence, partial(promise.attempt, scratch(promise.name.replace(", ", "-")))
        )
        for promise in promises
        if "live" in promise.runners
    ]


def object_trials(store: ObjectStore, shared: bool = True) -> list[PromiseTrial]:
    """The trials of a store for many writers (`shared`) or for one at a time."""
    swaps = promises.SWAPS if shared else [_of_one_writer(promise) for promise in promises.SWAPS]
    return [
        *trials_of(swaps, partial(SwapScratch, store)),
        *trials_of(promises.OBJECTS, partial(ObjectScratch, store)),
    ]


def _of_one_writer(promise: Promise[Subject]) -> Promise[Subject]:
    def attempt(scratch: Subject) -> Iterable[str]:
        raise InapplicableError("one writer at a time is what this kind of place allows")

    return replace(promise, attempt=attempt) if promise.writers > 1 else promise


@dataclass(frozen=True)
class TrialOutcome:
    """The state of a promise. `fix` is the advice if it is broken."""

    check: str
    state: Literal["kept", "broken", "not applicable"]
    detail: str
    fix: str | Advice = ""

    @property
    def ok(self) -> bool:
        return self.state != "broken"


class Scratch(Protocol):
    """New space for trials beside a registry, removed afterwards."""

    @property
    def description(self) -> str:
        """The scratch in words, such as 'objects below ...'."""
        ...

    @property
    def remedy(self) -> str | Advice:
        """The command that removes it."""
        ...

    def make(self) -> None:
        """Create the scratch. After a RegError, nothing was created."""
        ...

    def trials(self) -> list[PromiseTrial]:
        """All trials of this kind of store."""
        ...

    def clear(self) -> Iterable[str]:
        """Remove everything that was created, and yield what is left."""
        ...


class InapplicableError(Exception):
    """This kind of store does not make the promise, and a registry there does not need it."""


def judge(trial: PromiseTrial) -> TrialOutcome:
    """Try a promise."""
    try:
        faults = list(trial.attempt())
    except InapplicableError as reason:
        return TrialOutcome(trial.check, "not applicable", str(reason))
    except RegError as error:
        return TrialOutcome(trial.check, "broken", error.message, error.advice or MOVE_HINT)
    if faults:
        return TrialOutcome(trial.check, "broken", "; ".join(faults), MOVE_HINT)
    return TrialOutcome(trial.check, "kept", trial.promise)


def push_and_pull(open_store: Callable[[], RegistryStore], writers: int = 2) -> Iterator[str]:
    """Each writer pushes its own version, all at once; then one reader pulls all of them and verifies every
    byte.
    """
    with TemporaryDirectory(prefix="onnxreg-live-") as name:
        directory = Path(name)
        registries = [_registry(directory, f"writer{number}") for number in range(writers)]
        published = [_publish(registry, directory, number) for number, registry in enumerate(registries)]

        def push(number: int) -> None:
            copy(registries[number].store, open_store(), TransferRequest(NAME, [published[number].version]))

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(push, range(writers)))
        yield from _check_pull(open_store(), _registry(directory, "reader"), published)


def _registry(directory: Path, name: str) -> Registry:
    """A temporary registry with its own known heads, so that those of the user do not change."""
    registry = Registry(directory / name)
    registry.heads = KnownHeads(directory / "state")
    return registry


def _publish(registry: Registry, directory: Path, number: int) -> PublishedVersion:
    root = directory / f"draft{number}"
    root.mkdir()
    (root / "model.onnx").write_bytes(f"trial {number} ".encode() * 1000)
    (root / "config.json").write_bytes(b"{}")
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    return registry.add(Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),)), f"0.{number}.0")


def _check_pull(remote: RegistryStore, reader: Registry, versions: list[PublishedVersion]) -> Iterator[str]:
    entries = load(remote, NAME)[0].entries
    lost = [str(published.version) for published in versions if published.version not in entries]
    if lost:
        yield f"version {' and '.join(lost)} was pushed, and is not there"
        return
    copy(remote, reader.store, TransferRequest(NAME, [published.version for published in versions]))
    for published in versions:
        if reader.get(published.ref).data != published.data:
            yield f"{published.ref} has another manifest than was pushed"
    for report in (verify_model(remote, NAME), reader.verify()):
        yield from (damage.detail for damage in report.damages)
