"""The contract of a metric: scores of single items, one value of many of them, and the rule `loss/interval`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar

from onnxreg.converters.evaluation.judgement import (
    Direction,
    EvaluationError,
    Judgement,
    MetricIdentity,
    State,
    judge_loss,
    unclear,
    unmatched,
)
from onnxreg.converters.evaluation.scores import Floats, ScoreTable, paired_interval
from onnxreg.converters.source.toolchain import distributions
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, missing_extra

RULE, POINT_RULE = "loss/interval", "loss/point"


METRIC_FRAME = 3
"""The frame of the metric's code in a traceback, below those of `blame_metric` and of its caller."""


@contextmanager
def blame_metric(name: str) -> Iterator[None]:
    """Raise EvaluationError for what the code of the metric `name` raises.

    The message says where the error was raised, and not its text, which may quote the suite.
    """
    try:
        yield
    except RegError:
        raise
    except Exception as error:
        frame = extract_tb(error.__traceback__)[:METRIC_FRAME][-1]
        location = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        raise EvaluationError(
            f"the metric {name} fails: {location}", "report it to the author of the metric"
        ) from error


class Metric(ABC):
    """One figure about a model on a suite.

    A metric turns the prediction for an item into a row of numbers (`scores`) and any rows into its value (`value`), so
    that the value of resampled rows, and of rows that were published, is computed by the same code.

    `id` and `version` name what is computed: a change of a figure for equal rows is a new version. `tasks` are those
    whose predictions it reads. `direction` says whether higher or lower values are better. `limit` is the default
    limit of the loss. With fewer than `min_groups` independent items, or a parent whose skill is below `min_skill`,
    nothing is certified or refused.
    """

    id: ClassVar[str]
    version: ClassVar[int] = 1
    tasks: ClassVar[frozenset[str]]
    direction: ClassVar[Direction] = "higher"
    limit: ClassVar[float] = 0.005
    min_groups: ClassVar[int] = 200
    min_skill: ClassVar[float] = 0.2
    is_default: ClassVar[bool] = True
    """True if the metric judges when a request names none."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions that a figure depends on: those that compute it, and the one that brings the metric."""
        return (*LIBRARIES, *_distributions_of(type(self)))

    @property
    def identity(self) -> MetricIdentity:
        package = next(iter(_distributions_of(type(self))), None)
        return MetricIdentity(self.id, self.version, self.direction, package)

    @abstractmethod
    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The names of the numbers of a row. `labels` are the model's."""

    @abstractmethod
    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        """Score each item: float64 of shape (items, columns).

        Args:
            items: of the suite; their class is that of the task.
            predictions: of the model that is scored, one for each item.
            reference: the parent's predictions, also if the parent itself is scored.
        """

    @abstractmethod
    def value(self, rows: Floats) -> float:
        """The value over some rows, at least one."""

    def skill(self, rows: Floats) -> float:
        """Compare the value of these rows with a guess: 0 for a guess, 1 for a perfect model."""
        return self.value(rows)

    def loss(self, parent: float, value: float) -> float:
        """The loss of a candidate with `value` against its parent: above 0 if it is worse."""
        return parent - value if self.direction == "higher" else value - parent

    def supports(self, items: Sequence[Any]) -> bool:
        """True if the items have what the metric compares with."""
        return True

    def check(self, limit: float, settings: Mapping[str, Any]) -> None:
        """Raise InputError for a limit or settings that the rule does not have; `loss/interval` has no settings."""
        if settings:
            raise InputError(f"the metric {self.id} has no setting {next(iter(settings))[:80]!r}")

    def settings(self, items: Sequence[Any], labels: Sequence[str]) -> Mapping[str, Any]:
        """Facts about a suite that the rule needs, recorded with the verdict."""
        return {}

    def warnings(self, items: Sequence[Any], groups: int, settings: Mapping[str, Any]) -> Iterator[str]:
        """Yield the reasons, by the suite alone, for which a verdict is impossible or hangs on a single item."""
        if groups < self.min_groups:
            yield (
                f"the suite has {groups} independent items, {self.id} needs {self.min_groups}: nothing can be certified"
            )

    def judge(
        self, table: ScoreTable, limit: float, settings: Mapping[str, Any], rule: str = RULE
    ) -> Judgement:
        """Judge an artifact by its scores alone.

        Args:
            settings: of the rule, such as the least evidence, and the facts about the suite.
            rule: the rule of an earlier certificate.
        """
        return judge_table(self, table, limit, settings, rule)


def _distributions_of(kind: type[Metric]) -> list[str]:
    """The distributions that bring the class of a metric: none for ours, its module if they are unknown."""
    top = kind.__module__.partition(".")[0]
    return [] if top == "onnxreg" else sorted(set(distributions().get(top, ()))) or [top]


def judge_table(
    metric: Metric, table: ScoreTable, limit: float, settings: Mapping[str, Any], rule: str = RULE
) -> Judgement:
    """Apply the rule `loss/interval`, or `loss/point` of earlier certificates, which has no interval: see `judge_loss`.

    The state is unknown if there are fewer independent items than the metric needs, if the parent's skill (0: a
    guess, 1: perfect) is too small, or if the model lacks a label of the gold: then nothing was proved either way.

    Raises ConversionError if the metric fails, or gives NaN or infinity, InputError for another rule.
    """
    if rule not in (RULE, POINT_RULE):
        raise InputError(f"{metric.id} has no rule {rule[:80]!r}", f"it has {RULE} and {POINT_RULE}")
    samples, groups = len(table.groups), table.group_count
    if not samples:
        empty = ("the suite has no items",)
        nothing = (None, None, None, None, 0, 0)
        return Judgement(metric.identity, rule, limit, *nothing, "unknown", empty, settings)
    parent, value = (_number(metric, metric.value, rows) for rows in (table.parent, table.candidate))
    loss = _number(metric, metric.loss, parent, value)
    interval = paired_interval(
        table, lambda left, right: metric.loss(metric.value(left), metric.value(right))
    )
    losing = f"{metric.id} loses {loss:.3g} (from {parent:.4g} to {value:.4g})"
    if rule == POINT_RULE:
        state: State = "certified" if loss < limit else "refused"
    else:
        state = judge_loss(loss, interval, limit, settings.get("margin", False))
    reasons = [f"{losing}, the limit is below {limit:g}"]
    if state == "unknown":
        reasons = [unclear(losing, interval, limit)]
    elif rule != POINT_RULE and state == "certified" and interval and not interval[1] < limit:
        reasons.append(f"its interval is above the limit: it reaches {interval[1]:.3g}")
    weak = list(_weaknesses(metric, table, groups))
    if settings.get("other_labels"):
        weak.append(unmatched(settings["other_labels"]))
    if weak:
        state, reasons = "unknown", weak
    return Judgement(
        metric.identity,
        rule,
        limit,
        parent,
        value,
        loss,
        interval,
        samples,
        groups,
        state,
        tuple(reasons),
        settings,
    )


def _weaknesses(metric: Metric, table: ScoreTable, groups: int) -> Sequence[str]:
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


def _number(metric: Metric, compute: Callable[..., float], *values: Any) -> float:
    with blame_metric(metric.id):
        number = float(compute(*values))
    if not math.isfinite(number):
        raise ConversionError(f"the metric {metric.id} gives {number} on this suite", "look at the suite")
    return number


EXTRA = "evaluate"
LIBRARIES = ("scikit-learn", "scipy", "seqeval")
"""Their distributions."""


def scikit_metrics() -> Any:
    """`sklearn.metrics`; HostError if scikit-learn is not installed."""
    try:
        import sklearn.metrics
    except ImportError as error:
        raise missing_extra("scikit-learn", EXTRA, "this metric") from error
    return sklearn.metrics


def scipy_stats() -> Any:
    """`scipy.stats`; HostError if SciPy is not installed."""
    try:
        import scipy.stats
    except ImportError as error:
        raise missing_extra("scipy", EXTRA, "this metric") from error
    return scipy.stats


def strict_entities(tags: Sequence[str]) -> set[Any]:
    """The entities of a sequence of IOB2 tags (`seqeval.scheme.Entities`); HostError if seqeval is not installed."""
    try:
        from seqeval.scheme import IOB2, Entities
    except ImportError as error:
        raise missing_extra("seqeval", EXTRA, "this metric") from error
    return set(Entities([list(tags)], IOB2).entities[0])
