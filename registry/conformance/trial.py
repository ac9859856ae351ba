"""A trial of one promise, and its outcome. `store/promises.py` has the promises of every store."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from onnxreg.registry.store import promises
from onnxreg.registry.store.object_store import ObjectStore
from onnxreg.registry.store.promises import ObjectScratch, Promise, Subject, SwapScratch
from onnxreg.schema.core.errors import Advice, RegError

MOVE_HINT = "a registry relies on this: keep it at a place that promises it"


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
