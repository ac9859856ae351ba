"""The plan of an evaluation: suite and metrics, read and checked before hours of work."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.label_names import relabel
from onnxreg.converters.evaluation.metrics import metric_catalog
from onnxreg.converters.evaluation.metrics.metric import Metric, blame_metric
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.tasks.labelled_rows import LabelledRows
from onnxreg.converters.evaluation.tasks.task_evaluator import TaskEvaluator
from onnxreg.converters.evaluation.tasks.text_tasks import Answers, Completions, Embeddings, TextClasses
from onnxreg.converters.evaluation.tasks.token_spans import TokenSpans
from onnxreg.converters.source.toolchain import package_versions
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, MetricLimit


@dataclass(frozen=True)
class JudgedMetric:
    """A metric with its limit and the settings of its rule."""

    metric: Metric
    limit: float
    settings: dict[str, Any]

    def key(self) -> dict[str, Any]:
        return {
            "metric": self.metric.id,
            "version": self.metric.version,
            "packages": package_versions(self.metric.packages),
            "limit": self.limit,
            "settings": self.settings,
        }


@dataclass(frozen=True)
class EvaluationPlan:
    """A checked request. `suite` is the half that is asked for of the file `path`.

    `artifacts` are the paths of the outputs to judge; None for those of low precision.
    """

    request: EvaluationRequest
    path: Path
    file_digest: Digest
    suite: Suite
    evaluator: type[TaskEvaluator]
    metrics: tuple[JudgedMetric, ...]
    artifacts: tuple[str, ...] | None

    def key(self) -> dict[str, Any]:
        """Everything that shapes the verdicts."""
        return {**self.recorded(), "metrics": [metric.key() for metric in self.metrics]}

    def recorded(self) -> dict[str, Any]:
        """The request as a manifest has it: the suite by its digest."""
        return {**self.request.to_json(), "suite": str(self.file_digest)}

    def warnings(self) -> list[str]:
        """The reasons for which the suite gives no verdict, or another than was meant."""
        groups = len(self.suite.items) if self.suite.groups is None else len(set(self.suite.groups))
        items = (
            relabel(self.suite.items, self.request.label_map) if self.request.label_map else self.suite.items
        )
        gold = {span.label for item in self.suite.items for span in getattr(item, "spans", ())}
        messages = [
            f"the label map names {name[:80]}, which no gold of the suite has"
            for name in sorted(self.request.label_map.keys() - gold)
        ]
        for judged in self.metrics:
            with blame_metric(judged.metric.id):
                messages += judged.metric.warnings(items, groups, judged.settings)
        return messages

    def name(self, metric: str) -> str:
        """The name of a metric's value in the checks of a manifest."""
        return metric if self.request.name is None else f"{self.request.name}/{metric}"


def plan_evaluation(
    request: EvaluationRequest, task: str, directory: Path, outputs: Iterable[str]
) -> EvaluationPlan:
    """Read the suite, and choose the metrics.

    Raises NotFoundError for a missing suite, InputError for a suite of another task, a metric that is unknown, is
    of another task or lacks data in the suite, and an artifact that is not an output.

    Args:
        task: the id of the export task.
        directory: base of the suite's relative path.
        outputs: paths of the outputs of the recipe.
    """
    path = _short(directory / request.suite)
    evaluator = find(task)
    suite = evaluator.load_suite(path)
    digest = suite.digest
    if request.half is not None:
        suite = suite.half(request.half, request.seed)
    if (request.label_map or request.label_names) and evaluator is not TokenSpans:
        raise InputError(f"a label map is of spans, and the task is {task}", "leave --label-map out")
    metrics = tuple(_metrics(request, task, suite))
    paths = list(outputs)
    for artifact in request.artifacts:
        if artifact not in paths:
            raise InputError(
                f"the evaluation names {artifact}, which is not an output", suggest(artifact, paths)
            )
    return EvaluationPlan(request, path, digest, suite, evaluator, metrics, tuple(request.artifacts) or None)


def _short(path: Path) -> Path:
    """The path from the working directory, if it leads there."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _metrics(request: EvaluationRequest, task: str, suite: Suite) -> Iterable[JudgedMetric]:
    choices = request.metrics or tuple(
        MetricLimit(metric=metric.id)
        for metric in metric_catalog.of_task(task)
        if metric.is_default and metric.supports(suite.items)
    )
    if len({choice.metric for choice in choices}) < len(choices):
        raise InputError("the evaluation names a metric twice", "state one limit")
    for choice in choices:
        metric = metric_catalog.find(choice.metric)
        if task not in metric.tasks:
            names = ", ".join(other.id for other in metric_catalog.of_task(task))
            raise InputError(f"the metric {metric.id} is not one of {task}", f"its metrics are {names}")
        limit = metric.limit if choice.limit is None else choice.limit
        settings = dict(choice.settings)
        with blame_metric(metric.id):
            is_supported = metric.supports(suite.items)
            metric.check(limit, settings)
        if not is_supported:
            raise InputError(
                f"the evaluation suite lacks what the metric {metric.id} compares with",
                "docs/certification.md shows the items of each task",
            )
        yield JudgedMetric(metric, limit, settings)


EVALUATORS: tuple[type[TaskEvaluator], ...] = (
    TokenSpans,
    TextClasses,
    Answers,
    Embeddings,
    LabelledRows,
    Completions,
)


def find(task: str) -> type[TaskEvaluator]:
    """Return the evaluator of a task, by the task's id; every built-in task has one."""
    return next(evaluator for evaluator in EVALUATORS if task in evaluator.tasks)
