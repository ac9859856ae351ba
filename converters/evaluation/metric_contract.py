"""The contract suite of metrics, for ours and for those of other packages.

    class TestMyMetric(MetricContract):
        metric = MyMetric()
        labels = ("negative", "positive")
        items = [LabelledText("good", "positive"), ...]
        parent = [1, ...]
        worse = [0, ...]

pytest collects the tests; nothing but pytest is needed to run them.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onnxreg.converters.evaluation.metric import Metric
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.schema.core.errors import InputError


class MetricContract:
    """The tests that every metric must pass.

    `items` are of a suite, at least four, of a task of the metric; `parent` are good predictions for them, and `worse`
    are worse.
    """

    metric: ClassVar[Metric]
    labels: ClassVar[tuple[str, ...]] = ()
    items: ClassVar[Sequence[Any]]
    parent: ClassVar[Sequence[Any]]
    worse: ClassVar[Sequence[Any]]

    def test_it_has_a_name_a_version_tasks_and_a_sentence(self) -> None:
        metric = self.metric
        assert metric.id and metric.version >= 1 and metric.tasks and metric.limit > 0
        assert type(metric).__doc__
        assert metric.supports(self.items)

    def test_worse_predictions_are_a_loss_and_equal_ones_none(self) -> None:
        metric, (parent, worse) = self.metric, self._sides()
        assert metric.loss(metric.value(parent), metric.value(worse)) > 0
        assert metric.loss(metric.value(parent), metric.value(parent)) == 0
        assert (metric.value(parent) > metric.value(worse)) is (metric.direction == "higher")
        assert metric.skill(worse) <= metric.skill(parent) <= 1 + 1e-9

    def test_the_value_is_one_of_any_rows_in_any_order(self) -> None:
        for rows in self._sides():
            assert abs(self.metric.value(rows) - self.metric.value(rows[::-1])) < 1e-12
            assert np.isfinite(self.metric.value(np.concatenate([rows, rows[:2]])))

    def test_the_verdict_follows_from_published_scores_alone(self) -> None:
        metric = self.metric
        table = ScoreTable.of(metric.columns(self.labels), *self._sides())
        settings = dict(metric.settings(self.items, self.labels))
        again = ScoreTable.decode(table.encode(), "scores")
        assert metric.judge(again, metric.limit, settings) == metric.judge(table, metric.limit, settings)

    def test_an_unknown_setting_is_refused(self) -> None:
        try:
            self.metric.check(self.metric.limit, {"no_such_setting": 1})
        except InputError as error:
            assert error.message
        else:
            raise AssertionError("a setting that no rule has was accepted")

    def _sides(self) -> tuple[Floats, Floats]:
        scores, items, parent = self.metric.scores, self.items, self.parent
        return scores(items, parent, parent, self.labels), scores(items, self.worse, parent, self.labels)
