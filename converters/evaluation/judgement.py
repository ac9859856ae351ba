"""The result of one metric on one artifact, and of all metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxreg.converters.evaluation.scores import Interval, ScoreTable
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import DraftArtifact

State = Literal["certified", "refused", "unknown"]
CHECKED = {"certified": "pass", "refused": "fail", "unknown": "unknown"}
"""The verdict of a check, by a state."""
MAX_LISTED_LABELS = 20
"""Labels that one reason names."""


class EvaluationError(ConversionError):
    """The source or a metric fails, whatever artifact is judged."""


@dataclass(frozen=True)
class Part:
    """The figures of a part that a metric judges by itself, such as a label; most metrics have one, called "".

    Figures are None if there was nothing to measure. `losing` says what loses how much. With `doubts` it is not judged:
    its state stays None. `groups` counts the independent items that show a loss. `facts` are the metric's own.
    """

    name: str
    parent: float | None = None
    value: float | None = None
    loss: float | None = None
    losing: str = ""
    groups: int = 0
    doubts: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    interval: Interval | None = None
    state: State | None = None


@dataclass(frozen=True)
class Judgement:
    """The figures of one metric (`Metric`) on one artifact. `loss` must be below `limit`.

    `parent`, `value` and `loss` are None if there was nothing to measure. `samples` counts items, `groups` the
    independent ones. `settings` are those of the rule.
    """

    metric: Any
    limit: float
    parent: float | None
    value: float | None
    loss: float | None
    interval: Interval | None
    samples: int
    groups: int
    state: State
    reasons: tuple[str, ...]
    settings: Mapping[str, Any]
    parts: tuple[Part, ...]


def judge_loss(loss: float, interval: Interval | None, limit: float, margin: bool = False) -> State:
    """Judge a loss by the rule of the interval: it is refused only if the whole interval is at the limit or above.

    It is certified if it is below the limit, with a `margin` only if the whole interval is. Any other loss is unclear,
    which is unknown: a larger suite decides.
    """
    if loss < limit:
        return "unknown" if margin and (interval is None or interval[1] >= limit) else "certified"
    return "refused" if interval is not None and interval[0] >= limit else "unknown"


def unclear(losing: str, interval: Interval | None, limit: float) -> str:
    """The reason for which a loss is unclear. `losing` says what loses how much."""
    bounds = "it has no interval" if interval is None else f"95 %: {interval[0]:.3g} to {interval[1]:.3g}"
    return f"unclear: {losing} ({bounds}), the limit is below {limit:g}: a larger suite decides"


def unmatched(labels: Mapping[str, int], names: Sequence[str] = ()) -> str:
    """The reason for which gold that matches no label of the model leaves a verdict unknown.

    Args:
        labels: the labels of the gold, with their spans.
        names: those of the model, as they were read from its tags.
    """
    listed = listing([f"{name[:60]} ({count} spans)" for name, count in labels.items()])
    own = f"; the model's labels: {listing(names)}" if names else ""
    return (
        f"gold labels that the model does not have: {listed}{own}; map each to one of the model's, or exclude it by name: "
        "--label-map GOLD=LABEL, --label-map GOLD="
    )


def listing(names: Sequence[str]) -> str:
    """The first names, and how many there are beside them."""
    more = f" and {len(names) - MAX_LISTED_LABELS} more" if len(names) > MAX_LISTED_LABELS else ""
    return ", ".join(name[:80] for name in names[:MAX_LISTED_LABELS]) + more


def combine(judgements: Sequence[Judgement]) -> tuple[State, tuple[str, ...]]:
    """Combine the states of several metrics: refused wins over unknown, and unknown over certified.

    The reasons of that state come first.
    """
    order: tuple[State, ...] = ("refused", "unknown", "certified")
    ranked = sorted(judgements, key=lambda judgement: order.index(judgement.state))
    return ranked[0].state, tuple(reason for judgement in ranked for reason in judgement.reasons)


@dataclass(frozen=True)
class JudgedArtifact:
    """The judgements of one artifact, and the state that they give together."""

    artifact: DraftArtifact
    judgements: tuple[Judgement, ...]
    tables: tuple[ScoreTable, ...]

    @property
    def state(self) -> State:
        return combine(self.judgements)[0]

    @property
    def reasons(self) -> tuple[str, ...]:
        return combine(self.judgements)[1]

    @property
    def rule(self) -> str:
        return ", ".join(dict.fromkeys(judgement.metric.rule for judgement in self.judgements))
