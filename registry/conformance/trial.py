"""One promise, tried out at a place, and what came of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from onnxreg.schema.core.errors import RegError

ELSEWHERE = "a registry relies on this: keep it at a place that promises it"


@dataclass(frozen=True)
class Trial:
    """`attempt` yields what went wrong, in words; nothing where the promise is kept. RegError counts as broken."""

    check: str
    promise: str
    attempt: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class TrialOutcome:
    """A promise, and whether it is kept. `fix` is what to do where it is not."""

    check: str
    state: Literal["kept", "broken", "not applicable"]
    detail: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.state != "broken"

    def to_json(self) -> dict[str, Any]:
        value = {"check": self.check, "ok": self.ok, "state": self.state}
        return {**value, "detail": self.detail, "fix": self.fix}


class Scratch(Protocol):
    """Where the trials are made: a part of the place that is new, and gone afterwards."""

    @property
    def what(self) -> str:
        """What is made there, for people: 'objects below ...'."""
        ...

    @property
    def remedy(self) -> str:
        """The command that removes it."""
        ...

    def make(self) -> None:
        """Begin. RegError where that cannot be; then nothing was made."""
        ...

    def trials(self) -> list[Trial]:
        """Everything that a registry relies on at such a place."""
        ...

    def clear(self) -> Iterable[str]:
        """Remove everything that was made, and yield what is left."""
        ...


class InapplicableError(Exception):
    """The promise is none that this place makes, and none that is missed there."""


def judge(trial: Trial) -> TrialOutcome:
    """Try a promise."""
    try:
        faults = list(trial.attempt())
    except InapplicableError as reason:
        return TrialOutcome(trial.check, "not applicable", str(reason))
    except RegError as error:
        return TrialOutcome(trial.check, "broken", error.message, error.hint or ELSEWHERE)
    if faults:
        return TrialOutcome(trial.check, "broken", "; ".join(faults), ELSEWHERE)
    return TrialOutcome(trial.check, "kept", trial.promise)
