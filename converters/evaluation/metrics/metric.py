"""The contract of a metric: scores of single items, and one value of many of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from onnxreg.converters.evaluation.judgement import Judgement, judge_by_point
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.schema.core.errors import InputError

Direction = Literal["higher", "lower"]


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
        """What a candidate with `value` loses against its parent: above 0 if it is worse."""
        return parent - value if self.direction == "higher" else value - parent

    def supports(self, items: Sequence[Any]) -> bool:
        """True if the items have what the metric compares with."""
        return True

    def check(self, limit: float, settings: Mapping[str, Any]) -> None:
        """Raise InputError for a limit or settings that the rule does not have; `loss/point` has no settings."""
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

    def judge(self, table: ScoreTable, limit: float, settings: Mapping[str, Any]) -> Judgement:
        """Judge an artifact by its scores alone.

        Args:
            settings: of the rule, such as floors; none for `loss/point`.
        """
        return judge_by_point(self, table, limit)
