"""Judge the artifacts of an export on a suite, and write their certificates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from onnxreg.converters.evaluation import certificate
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
from onnxreg.converters.evaluation.judgement import EvaluationError, JudgedArtifact
from onnxreg.converters.evaluation.metrics.metric import blame_metric
from onnxreg.converters.evaluation.predict import artifact_runner, parent_runner, predict
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.converters.source.toolchain import instruction_set, tools
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict

FULL_PRECISION = "float32"
SCORES, SCORES_VERSION = "scores", 7
"""The kind of the cache's entries; their version, raised if equal bytes get other scores, such as by other batches."""


Tables = list[tuple[ScoreTable, Mapping[str, Any]]]
"""The scores of an artifact by each metric, with the facts about the suite that the metric's rule needs."""


class ScoreCache(Protocol):
    """A cache of JSON values by everything that shapes them."""

    def find_value(self, kind: str, key: Mapping[str, Any]) -> Any: ...
    def remember(self, kind: str, key: Mapping[str, Any], value: Any) -> None: ...


class SourceEvaluation:
    """One evaluation of a source: its predictions are computed once, for every artifact that is judged.

    The scores of an artifact are kept in a cache, if there is one; then the source need not be run at all.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        load: Callable[[], ExportSubject],
        trust_remote_code: bool = False,
        cache: ScoreCache | None = None,
        key: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
        load: loads the source; called when its predictions are needed.
        key: everything that shapes the source, for the cache.
        """
        self._plan, self._load, self._trust = plan, load, trust_remote_code
        self._cache, self._key = cache, key

    @cached_property
    def _evaluator(self) -> TaskEvaluator:
        evaluator = self._plan.evaluator(self._load())
        evaluator.check(self._plan.suite.items)
        return evaluator

    @cached_property
    def _parent(
        self,
    ) -> tuple[Sequence[Any], Mapping[str, Any], Sequence[ModelInput], list[Any], list[Floats]]:
        """The items in the words of the model, facts about this, inputs, predictions of the source, their scores."""
        evaluator = self._evaluator
        items, facts = evaluator.match(self._plan.suite.items, self._plan.request)
        inputs, subject = evaluator.inputs(items), evaluator.subject
        try:
            with parent_runner(subject.start, self._trust, subject.sample.per_token) as run:
                reference = predict(evaluator, run, items, inputs)
        except ConversionError as error:
            raise EvaluationError(f"the source: {error.message}", error.hint) from error
        labels = evaluator.labels
        metrics = (judged.metric for judged in self._plan.metrics)
        scores = [metric.scores(items, reference, reference, labels) for metric in metrics]
        return items, facts, inputs, reference, scores

    def judge(self, artifact: DraftArtifact, path: Path) -> JudgedArtifact:
        """Judge the file of an artifact by every metric.

        Raises InputError if the suite does not fit the model, ConversionError if the artifact does not load or run, or
        if a metric fails.
        """
        judgements, tables = [], []
        margin = {"margin": True} if self._plan.request.margin else {}
        for judged, (table, facts) in zip(self._plan.metrics, self._tables(path), strict=True):
            with blame_metric(judged.metric.id):
                settings = {**judged.settings, **facts, **margin}
                judgements.append(judged.metric.judge(table, judged.limit, settings))
            tables.append(table)
        return JudgedArtifact(artifact, tuple(judgements), tuple(tables))

    def _tables(self, path: Path) -> Tables:
        if self._cache is None:
            return self._measure(path)
        beside = () if path.suffix != ".onnx" else external_files(load_onnx(path), path)
        beside = (*beside, *(name for name in (GENAI_CONFIG,) if (path.parent / name).is_file()))
        key = {
            "version": SCORES_VERSION,
            "evaluation": self._plan.key(),
            "suite": str(self._plan.suite.digest),
            "source": dict(self._key or {}),
            "artifact": str(digest_file(path)),
            "beside": {name: str(digest_file(path.parent / name)) for name in beside},
            "tools": tools(),
            "isa": instruction_set(),
        }
        value = self._cache.find_value(SCORES, key)
        try:
            tables = [(ScoreTable.decode(item["table"].encode(), SCORES), item["facts"]) for item in value]
        except (InputError, TypeError, KeyError, AttributeError):  # none, or a damaged one
            tables = []
        if len(tables) != len(self._plan.metrics):
            tables = self._measure(path)
            rows = [{"table": table.encode().decode(), "facts": dict(facts)} for table, facts in tables]
            self._cache.remember(SCORES, key, rows)
        return tables

    def _measure(self, path: Path) -> Tables:
        items, matched, inputs, reference, parent_scores = self._parent
        evaluator, labels, subject = self._evaluator, self._evaluator.labels, self._evaluator.subject
        padding = getattr(getattr(subject.loaded, "config", None), "pad_token_id", None)
        run = artifact_runner(path, subject.sample.per_token, padding or 0)
        predictions = predict(evaluator, run, items, inputs)
        tables: Tables = []
        for judged, parent in zip(self._plan.metrics, parent_scores, strict=True):
            metric = judged.metric
            scores = metric.scores(items, predictions, reference, labels)
            with blame_metric(metric.id):
                columns, facts = metric.columns(labels), metric.settings(items, labels)
            table = ScoreTable.of(columns, parent, scores, self._plan.suite.groups)
            tables.append((table, {**facts, **matched}))
        return tables


def evaluate(
    plan: EvaluationPlan,
    draft: Draft,
    subject: ExportSubject,
    trust_remote_code: bool = False,
    progress: Progress = SILENT,
    cache: ScoreCache | None = None,
    key: Mapping[str, Any] | None = None,
) -> tuple[Draft, Mapping[str, JudgedArtifact]]:
    """Judge artifacts of a draft; return it with their verdicts, checks and certificates, and the judgements by path.

    Raises InputError if the suite does not fit the model or there is nothing to judge, ConversionError if an artifact
    does not run.

    Args:
        key: everything that shapes the source, for the cache.
    """
    chosen = [artifact for artifact in draft.artifacts if _is_chosen(artifact, plan)]
    if not chosen:
        raise InputError(
            "the evaluation judges nothing: every output is in full precision",
            "name the outputs: evaluation: {artifacts: [...]}, or quantize one",
        )
    evaluation = SourceEvaluation(plan, lambda: subject, trust_remote_code, cache, key)
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
        for check in judgement.metric.checks(judgement, plan.name(judgement.metric.id), dataset)
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
