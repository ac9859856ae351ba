"""The contract suite of metrics, for ours and for those of other packages.

    class TestMyMetric(MetricContract):
        labels = ("negative", "positive")

        def make(self):
            return MyMetric()

        def items(self):
            return [LabelledText("good", None, "positive"), ...]

        def parent(self):
            return [1, ...]

        def worse(self):
            return [0, ...]

pytest collects the tests; nothing but pytest is needed to run them.
"""

from collections.abc import Sequence
from typing import Any

from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.schema.core.errors import InputError


class MetricContract:
    """The tests that every metric must pass."""

    labels: tuple[str, ...] = ()

    def make(self) -> Metric:
        """The metric."""
        raise NotImplementedError

    def items(self) -> Sequence[Any]:
        """Items of a suite, at least four, of a task of the metric."""
        raise NotImplementedError

    def parent(self) -> Sequence[Any]:
        """Good predictions for the items."""
        raise NotImplementedError

    def worse(self) -> Sequence[Any]:
        """Predictions that are worse."""
        raise NotImplementedError

    def test_it_has_a_name_a_version_tasks_and_a_sentence(self) -> None:
        metric = self.make()
        assert metric.id
        assert metric.version >= 1
        assert metric.tasks
        assert type(metric).__doc__
        assert metric.limit > 0

    def test_a_row_has_a_number_for_each_column(self) -> None:
        import numpy as np

        for rows in self._sides():
            assert rows.shape == (len(self.items()), len(self.make().columns(self.labels)))
            assert rows.dtype == np.float64
            assert np.isfinite(rows).all()

    def test_it_supports_its_own_items(self) -> None:
        assert self.make().supports(self.items())

    def test_worse_predictions_are_a_loss_and_equal_ones_none(self) -> None:
        metric, (parent, worse) = self.make(), self._sides()
        assert metric.loss(metric.value(parent), metric.value(worse)) > 0
        assert metric.loss(metric.value(parent), metric.value(parent)) == 0
        assert (metric.value(parent) > metric.value(worse)) is (metric.direction == "higher")

    def test_the_value_does_not_depend_on_the_order_of_rows(self) -> None:
        metric = self.make()
        for rows in self._sides():
            assert abs(metric.value(rows) - metric.value(rows[::-1])) < 1e-12

    def test_the_value_is_one_of_any_rows(self) -> None:
        import numpy as np

        metric = self.make()
        for rows in self._sides():
            assert np.isfinite(metric.value(np.concatenate([rows, rows[:2]])))

    def test_a_better_model_has_more_skill(self) -> None:
        parent, worse = self._sides()
        assert self.make().skill(parent) >= self.make().skill(worse)
        assert self.make().skill(parent) <= 1 + 1e-9

    def test_the_verdict_follows_from_published_scores_alone(self) -> None:
        metric, sides = self.make(), self._sides()
        table = ScoreTable.of(metric.columns(self.labels), *sides)
        settings = dict(metric.settings(self.items(), self.labels))
        again = ScoreTable.decode(table.encode(), "scores")
        assert metric.judge(again, metric.limit, settings) == metric.judge(table, metric.limit, settings)

    def test_an_unknown_setting_is_refused(self) -> None:
        try:
            self.make().check(self.make().limit, {"no_such_setting": 1})
        except InputError as error:
            assert error.message
        else:
            raise AssertionError("a setting that no rule has was accepted")

    def _sides(self) -> tuple[Floats, Floats]:
        metric, items, parent = self.make(), self.items(), self.parent()
        return (
            metric.scores(items, parent, parent, self.labels),
            metric.scores(items, self.worse(), parent, self.labels),
        )
