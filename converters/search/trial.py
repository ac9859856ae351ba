"""Trials: what became of each candidate of a search."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from onnxreg.converters.evaluation.judgement import JudgedArtifact

TrialState = Literal["certified", "refused", "unknown", "failed", "unsupported", "untried"]
MAX_NEAREST = 3
"""Near misses that an error lists."""


@dataclass(frozen=True)
class Trial:
    """A candidate with its figures on the suite that the search may look at.

    States: those of a verdict; `failed` (a pass or the file does not work), `unsupported` (a device does not load it),
    `untried` (a smaller one passed). `excess` is the largest loss in parts of its limit: below 1 it passes.
    """

    candidate: str
    state: TrialState
    bytes: int | None = None
    precision: str | None = None
    reasons: tuple[str, ...] = ()
    figures: tuple[Mapping[str, Any], ...] = ()
    median_ms: float | None = None

    @classmethod
    def of(cls, candidate: str, size: int, precision: str, judged: JudgedArtifact) -> "Trial":
        """A candidate that was judged."""
        figures = tuple(
            {
                "metric": judgement.metric.id,
                "value": judgement.value,
                "loss": judgement.loss,
                "limit": judgement.limit,
                "state": judgement.state,
                **({} if judgement.interval is None else {"interval": list(judgement.interval)}),
            }
            for judgement in judged.judgements
        )
        return cls(candidate, judged.state, size, precision, judged.reasons, figures)

    @property
    def excess(self) -> float:
        losses = [figure["loss"] / figure["limit"] for figure in self.figures if figure["loss"] is not None]
        return max(losses, default=float("inf"))

    def timed(self, median_ms: float) -> "Trial":
        return replace(self, median_ms=median_ms)

    def to_json(self) -> dict[str, Any]:
        optional = {"bytes": self.bytes, "precision": self.precision, "median_ms": self.median_ms}
        value: dict[str, Any] = {"candidate": self.candidate, "state": self.state}
        value |= {key: item for key, item in optional.items() if item is not None}
        value |= {"metrics": list(self.figures)} if self.figures else {}
        return value | ({"reasons": list(self.reasons)} if self.reasons else {})


def nearest(trials: Iterable[Trial]) -> Sequence[Trial]:
    """The refused trials that miss their limits by the least."""
    refused = [trial for trial in trials if trial.state == "refused"]
    return sorted(refused, key=lambda trial: trial.excess)[:MAX_NEAREST]
