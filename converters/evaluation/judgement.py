"""The result of one metric on one artifact, and the rule `loss/point`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from onnxreg.converters.evaluation.resample import Interval, paired_interval
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.schema.core.errors import ConversionError, RegError, first_line

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.metrics.metric import Metric

State = Literal["certified", "refused", "unknown"]

POINT_RULE = "loss/point"


@dataclass(frozen=True)
class Judgement:
    """The figures of one metric on one artifact. `loss` must be below `limit`.

    `parent`, `value` and `loss` are None if there was nothing to measure. `samples` counts items, `groups` the
    independent ones. `settings` are those of the rule.
    """

    metric: "Metric"
    rule: str
    limit: float
    parent: float | None
    value: float | None
    loss: float | None
    interval: Interval | None
    samples: int
    groups: int
    state: State
    reasons: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def checks(self, name: str, dataset: str) -> list[dict[str, Any]]:
        """The checks of the manifest, in JSON form: the value, and the loss with its limit.

        Args:
            name: the name of the suite and the metric, such as `sts/spearman`.
            dataset: the digest of the suite.
        """
        verdict = {"certified": "pass", "refused": "fail"}.get(self.state, "unknown")
        common = {"verdict": verdict, "samples": self.samples, "dataset": dataset}
        value = {
            "name": name,
            "metric": self.metric.id,
            "value": self.value,
            "direction": self.metric.direction,
        }
        loss = {
            "name": f"{name}/loss",
            "metric": f"{self.metric.id}_loss",
            "value": self.loss,
            "limit": self.limit,
            "direction": "lower",
            **({} if self.interval is None else {"interval": list(self.interval)}),
        }
        return [value | common, loss | common]


def combine(judgements: Sequence[Judgement]) -> tuple[State, tuple[str, ...]]:
    """One state of several metrics: refused if one refuses, else unknown if one does not know, else certified.

    The reasons of that state come first.
    """
    order: tuple[State, ...] = ("refused", "unknown", "certified")
    states = [judgement.state for judgement in judgements]
    state = next(name for name in order if name in states)
    sorted_judgements = sorted(judgements, key=lambda judgement: order.index(judgement.state))
    return state, tuple(reason for judgement in sorted_judgements for reason in judgement.reasons)


def judge_by_point(metric: "Metric", table: ScoreTable, limit: float) -> Judgement:
    """Apply the rule `loss/point`: certified if the loss of the point estimate is below the limit.

    The state is unknown if there are fewer independent items than the metric needs, or if the parent's skill (0: a
    guess, 1: perfect) is too small: then nothing was proved either way.

    Raises ConversionError if the metric fails, or gives NaN or infinity.
    """
    samples, groups = len(table.groups), table.group_count
    if not samples:
        return Judgement(
            metric, POINT_RULE, limit, None, None, None, None, 0, 0, "unknown", ("the suite has no items",)
        )
    parent, value = (_number(metric, metric.value, rows) for rows in (table.parent, table.candidate))
    loss = metric.loss(parent, value)
    interval = paired_interval(
        table, lambda left, right: metric.loss(metric.value(left), metric.value(right))
    )
    state: State = "refused" if not loss < limit else "certified"
    reasons = [f"{metric.id} loses {loss:.3g} ({parent:.4g} to {value:.4g}), the limit is below {limit:g}"]
    weak = list(_weaknesses(metric, table, groups))
    if weak:
        state, reasons = "unknown", weak
    return Judgement(
        metric, POINT_RULE, limit, parent, value, loss, interval, samples, groups, state, tuple(reasons)
    )


def _weaknesses(metric: "Metric", table: ScoreTable, groups: int) -> Sequence[str]:
    weak = []
    if groups < metric.min_groups:
        weak.append(f"the suite has {groups} independent items, {metric.id} needs {metric.min_groups}")
    skill = _number(metric, metric.skill, table.parent)
    if skill < metric.min_skill:
        weak.append(
            f"the parent itself is hardly better than a guess: its skill by {metric.id} is {skill:.3g}, at least "
            f"{metric.min_skill:g} is needed"
        )
    return weak


def _number(metric: "Metric", compute: Any, rows: Floats) -> float:
    try:
        value = float(compute(rows))
    except RegError:
        raise
    except Exception as error:
        raise ConversionError(
            f"the metric {metric.id} fails: {first_line(error)}", "nothing was published"
        ) from error
    if not math.isfinite(value):
        raise ConversionError(
            f"the metric {metric.id} gives {value} on this suite", "nothing was published; look at the suite"
        )
    return value
