"""Judge the artifacts of an export on a suite, and write their certificates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation import certificate
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan, JudgedMetric
from onnxreg.converters.evaluation.judgement import JudgedArtifact
from onnxreg.converters.evaluation.predict import artifact_runner, parent_runner, predict
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, first_line
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict

FULL_PRECISION = "float32"


class Evaluation:
    """One evaluation of a source: its predictions are computed once, for every artifact that is judged."""

    def __init__(self, plan: EvaluationPlan, subject: ExportSubject, trust_remote_code: bool = False) -> None:
        """Run the source on the suite.

        Raises InputError if the suite does not fit the model.
        """
        self._plan = plan
        self._evaluator: TaskEvaluator = plan.evaluator(subject)
        self._items = plan.suite.items
        self._evaluator.check(self._items)
        self._inputs: Sequence[ModelInput] = self._evaluator.inputs(self._items)
        with parent_runner(subject.start, trust_remote_code) as run:
            self._reference = predict(self._evaluator, run, self._items, self._inputs)
        self._parent_scores = [self._scores(judged, self._reference) for judged in plan.metrics]

    def judge(self, artifact: DraftArtifact, path: Path) -> JudgedArtifact:
        """Judge the file of an artifact by every metric.

        Raises ConversionError if it does not load or run, or if a metric fails.
        """
        predictions = predict(self._evaluator, artifact_runner(path), self._items, self._inputs)
        judgements, tables = [], []
        for judged, parent in zip(self._plan.metrics, self._parent_scores, strict=True):
            columns = judged.metric.columns(self._evaluator.labels)
            table = ScoreTable.of(columns, parent, self._scores(judged, predictions), self._plan.suite.groups)
            facts = judged.metric.settings(self._items, self._evaluator.labels)
            settings = {**judged.settings, **facts}
            judgements.append(judged.metric.judge(table, judged.limit, settings))
            tables.append(table)
        return JudgedArtifact(artifact, tuple(judgements), tuple(tables))

    def _scores(self, judged: JudgedMetric, predictions: Sequence[Any]) -> Floats:
        import numpy as np

        metric, labels = judged.metric, self._evaluator.labels
        try:
            scores = metric.scores(self._items, predictions, self._reference, labels)
            scores = np.asarray(scores, dtype=np.float64)
        except RegError:
            raise
        except Exception as error:
            raise ConversionError(
                f"the metric {metric.id} fails: {first_line(error)}", "nothing was published"
            ) from error
        expected = (len(self._items), len(metric.columns(labels)))
        if scores.shape != expected and len(self._items):
            raise ConversionError(
                f"the metric {metric.id} gives scores of shape {scores.shape}, expected {expected}"
            )
        if not np.isfinite(scores).all():
            raise ConversionError(
                f"the metric {metric.id} gives NaN or infinity for an item",
                "nothing was published; look at the suite",
            )
        return scores.reshape(expected)


def evaluate(
    plan: EvaluationPlan,
    draft: Draft,
    subject: ExportSubject,
    trust_remote_code: bool = False,
    progress: Progress = SILENT,
) -> tuple[Draft, Mapping[str, JudgedArtifact]]:
    """Judge artifacts of a draft; return it with their verdicts, checks and certificates, and the judgements by path.

    Raises InputError if the suite does not fit the model or there is nothing to judge, ConversionError if an artifact
    does not run.
    """
    chosen = [artifact for artifact in draft.artifacts if _is_chosen(artifact, plan)]
    if not chosen:
        raise InputError(
            "the evaluation judges nothing: every output is in full precision",
            "name the outputs: evaluation: {artifacts: [...]}, or quantize one",
        )
    progress.step("running the source on the evaluation suite")
    evaluation = Evaluation(plan, subject, trust_remote_code)
    judged = {}
    for artifact in chosen:
        progress.step(f"judging {artifact.path}")
        judged[artifact.path] = evaluation.judge(artifact, draft.root / artifact.path)
    documents = [file for item in judged.values() for file in certificate.write(plan, item, subject, draft)]
    artifacts = tuple(_with_verdict(plan, artifact, judged) for artifact in draft.artifacts)
    return replace(draft, artifacts=artifacts, companions=(*draft.companions, *documents)), judged


def _is_chosen(artifact: DraftArtifact, plan: EvaluationPlan) -> bool:
    if plan.artifacts is None:
        return artifact.precision != FULL_PRECISION
    return artifact.path in plan.artifacts


def _with_verdict(
    plan: EvaluationPlan, artifact: DraftArtifact, judged: Mapping[str, JudgedArtifact]
) -> DraftArtifact:
    item = judged.get(artifact.path)
    if item is None:
        return artifact
    dataset = str(plan.suite.digest)
    checks = [
        check
        for judgement in item.judgements
        for check in judgement.checks(plan.name(judgement.metric.id), dataset)
    ]
    verdict = Verdict(
        item.state,
        item.rule,
        item.reasons,
        plan.suite.digest,
        certificate.path_of(artifact.path),
        plan.suite.synthetic,
    )
    fields = {**artifact.fields, "checks": [*artifact.fields.get("checks", ()), *checks]}
    return replace(artifact, verdict=verdict, fields=fields)
