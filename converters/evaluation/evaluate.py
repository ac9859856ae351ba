"""Evaluate artifacts: check suite and metrics before hours of work, judge the artifacts, write their certificates.

A certificate has aggregates only: no text of the suite. `recompute` derives its verdict from published item scores.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxreg.converters.evaluation import metrics
from onnxreg.converters.evaluation.evaluator import Reading, TaskEvaluator
from onnxreg.converters.evaluation.evaluators import EVALUATORS, TokenSpans
from onnxreg.converters.evaluation.latency import Latency, compare, typical_inputs
from onnxreg.converters.evaluation.metric import (
    LEVEL,
    RESAMPLES,
    SEED,
    EvaluationError,
    Judgement,
    Metric,
    ScoreTable,
    combine,
    library,
    metric_errors,
)
from onnxreg.converters.evaluation.predict import Runner, artifact_runner, parent_runner, predict, runner_of
from onnxreg.converters.evaluation.suite import Suite, load, relabel
from onnxreg.converters.evaluation.tokens import Floats
from onnxreg.converters.onnx.onnx_graph import external_digests, external_files, load_onnx
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.converters.source.toolchain import tools
from onnxreg.converters.tasks.generation import GENERATORS
from onnxreg.converters.tasks.processed import Masks
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.canonical import Digest, Record
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError, suggest
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.gates.statements import FULL_PRECISION, EvaluationDocument, MetricRecord
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, MetricLimit
from onnxreg.schema.log.state import CERTIFICATE, ITEM_SCORES
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

SCORES, SCORES_VERSION = "scores", 9
"""The kind of a cache entry, and its version. Increase the version when a change of code changes scores."""
DISTANCE_INPUTS = 48
BASE = "the graph in full precision"  # the name of a parent that is not an output of the export
CERTIFICATES = "certificates"
TOGETHER = (*GENERATORS, ("text", "vision"), ("text", "audio"), ("model",), tuple(Masks.members))
"""The groups of members of a pipeline that run together, for example to generate a text."""
RELATIVE_TOLERANCE = 1e-9
"""Figures that differ by at most this share are equal: machines may add floats in different orders."""


@dataclass(frozen=True)
class EvaluationPlan:
    """A checked request for an evaluation. `full_suite` is the whole file; `suite` is all of it or a half."""

    request: EvaluationRequest
    task: str
    full_suite: Suite
    suite: Suite
    evaluator: type[TaskEvaluator]
    metrics: tuple[Metric, ...]

    def half(self, name: Literal["choose", "confirm"], seed: int) -> "EvaluationPlan":
        """Return the plan for a half of the suite, with the metrics that fit this half."""
        request = self.request.model_copy(update={"half": name, "seed": seed})
        return _plan(request, self.task, self.full_suite, self.evaluator)

    @property
    def versions(self) -> dict[str, int]:
        return {metric.id: metric.version for metric in self.metrics}

    def recorded(self) -> dict[str, Any]:
        """Return the request in the manifest's form: a digest replaces the path of the suite."""
        return {**self.request.to_json(), "suite": str(self.full_suite.digest)}

    def warnings(self) -> list[str]:
        """Return warnings if the suite may give no verdict, or a verdict that the user does not expect."""
        gold = {span.label for item in self.suite.items for span in getattr(item, "spans", ())}
        messages = [
            f"the label map names {name[:80]}, which no gold of the suite has"
            for name in sorted(self.request.label_map.keys() - gold)
        ]
        if not self.request.metrics and "output_cosine" in self.versions:
            kinds = (kind for kind in metrics.METRICS if self.task in kind.tasks - kind.on_request)
            word = "the suite has no labels: output_cosine judges it, not"
            messages += [f"{word} {kind.id}" for kind in kinds if kind.gold]
        for metric in self.metrics:
            with metric_errors(metric):
                messages += metric.warnings(self._items)
        return [*dict.fromkeys([*messages, *self.obstacles()])]

    def obstacles(self) -> Iterator[str]:
        groups, name = len(set(self.suite.groups)), Path(self.request.suite).name
        for metric in self.metrics:
            with metric_errors(metric):
                yield from (f"{name}: {text}" for text in metric.obstacles(self._items, groups))

    @property
    def _items(self) -> Sequence[Any]:
        label_map = self.request.label_map
        return relabel(self.suite.items, label_map) if label_map else self.suite.items


def plan_evaluation(
    request: EvaluationRequest, task: str, directory: Path, outputs: Iterable[str]
) -> EvaluationPlan:
    """Read the suite, whose path is relative to `directory`, and choose the metrics for an export task.

    Raises NotFoundError if the suite is missing, InputError if a suite, metric or artifact does not fit.
    """
    path = directory / request.suite
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    evaluator = next(one for one in EVALUATORS if task in one.tasks)
    if (request.label_map or request.label_names) and evaluator is not TokenSpans:
        raise InputError(f"a label map is of spans, and the task is {task}", "leave --label-map out")
    paths = list(outputs)
    for artifact in request.artifacts:
        if artifact not in paths:
            message = f"the evaluation names {artifact}, which is not an output"
            raise InputError(message, suggest(artifact, paths))
    try:
        suite = load(evaluator, path)
    except InputError as error:
        error.hint = "; ".join(filter(None, (error.hint, f"an item of {task} is {evaluator.form}")))
        raise
    return _plan(request, task, suite, evaluator)


def _plan(
    request: EvaluationRequest, task: str, full_suite: Suite, evaluator: type[TaskEvaluator]
) -> EvaluationPlan:
    """Choose the half of the suite, and the metrics: those requested, or all that fit the items."""
    suite = full_suite if request.half is None else full_suite.half(request.half, request.seed)
    of_task = [kind() for kind in metrics.METRICS if task in kind.tasks]
    names = ", ".join(metric.id for metric in of_task)
    choices = request.metrics or tuple(
        MetricLimit(metric=metric.id)
        for metric in of_task
        if task not in metric.on_request and metric.supports(suite.items)
    )
    if not choices:
        message = f"the items of {request.suite} fit no metric of {task}"
        hint = f"its metrics are {names}: docs/certification.md shows the items of each task"
        raise InputError(message, hint)
    if len({choice.metric for choice in choices}) < len(choices):
        raise InputError("the evaluation names a metric twice", "state one limit")
    chosen = []
    for choice in choices:
        kind = metrics.find(choice.metric)
        if task not in kind.tasks:
            raise InputError(f"the metric {kind.id} is not one of {task}", f"its metrics are {names}")
        library(kind.uses)
        with metric_errors(kind):
            metric = kind(choice.limit, choice.settings)
            if not metric.supports(suite.items):
                message = f"the evaluation suite lacks what the metric {metric.id} compares with"
                raise InputError(message, "docs/certification.md shows the items of each task")
        chosen.append(metric)
    return EvaluationPlan(request, task, full_suite, suite, evaluator, tuple(chosen))


class SourceEvaluation:
    """Evaluates artifacts of a source, which runs once for all of them.

    `cache` stores the scores of each artifact. `key` is for its keys: all that can change the results of the source.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        subject: ExportSubject,
        trust_remote_code: bool = False,
        cache: Any = None,
        key: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise InputError, with the position of the item, if the suite does not fit the source."""
        self.plan, self.subject, self._trust = plan, subject, trust_remote_code
        self._cache, self._key = cache, key
        self._loaded: dict[bool, tuple[Path, Runner]] = {}
        self._outputs: dict[Path, list[Mapping[str, Any]]] = {}
        self.graphs: dict[Path | None, Mapping[str, Path]] = {}
        self._full: Path | None = None
        self._scored: dict[tuple[Path, ...], list[ScoreTable]] = {}
        self._evaluator, self._readings, suite = plan.evaluator(subject), list[Reading](), plan.suite
        self._evaluator.check(suite)
        self._items, self._facts = self._evaluator.match(suite.items, plan.request)
        for position, item in zip(suite.positions, suite.items, strict=True):
            try:
                self._readings.append(self._evaluator.reading(item))
            except (InputError, NotFoundError) as error:
                raise InputError(f"{position}: {error.message}", error.hint) from error
        self._feeds = [feed for reading in self._readings for feed in reading.feeds]
        if self._feeds and not self._evaluator.shares_runs and subject.part.start is not None:
            with self._run_source() as run:
                try:  # the source ran on its sample, so the suite is at fault
                    run(self._feeds[0])
                except ConversionError as error:
                    message = f"the evaluation suite does not fit the model: {error.message}"
                    raise InputError(message) from error

    def _run_source(self) -> AbstractContextManager[Runner]:
        if self._full is not None:
            return nullcontext(self._runner(self._full))
        part = self.subject.part
        return parent_runner(part.start, self._trust, part.per_token)

    def join(self, draft: Draft) -> None:
        """Choose the graphs that run with each graph of a pipeline: its group in `TOGETHER`, in its precision if
        possible.

        Raises InputError if no group has all of its graphs in full precision.
        """
        members = draft.fields["model_family"]["members"] if self.subject.is_joint else ()
        names = {path: member["name"] for member in members for path in member["artifacts"]}
        graphs = [artifact for artifact in draft.artifacts if artifact.path in names]
        for graph in graphs:
            partners = [one for one in reversed(graphs) if one.precision in (graph.precision, FULL_PRECISION)]
            partners.sort(key=lambda one: (one.precision == graph.precision, one.format == graph.format))
            files = {names[one.path]: draft.root / one.path for one in (*partners, graph)}
            together = (own for own in TOGETHER if names[graph.path] in own and files.keys() >= {*own})
            if own := next(together, None):
                self.graphs[draft.root / graph.path] = {name: files[name] for name in own}
        full = (draft.root / graph.path for graph in graphs if graph.precision == FULL_PRECISION)
        self._full = next((file for file in full if file in self.graphs), None)
        if graphs and self._full is None:
            message = "the evaluation compares with graphs in full precision, which are not published"
            raise InputError(message, "add the graphs that are run together in float32 to the outputs")

    @cached_property
    def _parent(self) -> tuple[list[Any], list[Floats]]:
        try:
            with self._run_source() as run:
                reference = predict(run, self._readings, self._evaluator.shares_runs)
        except ConversionError as error:
            raise EvaluationError(f"the source: {error.message}", error.hint) from error
        scores = []
        for metric in self.plan.metrics:
            with metric_errors(metric):
                scores.append(metric.scores(self._items, reference, reference, self._evaluator.labels))
        return reference, scores

    def judge(self, path: Path | None) -> list[Judgement]:
        """Judge a file by every metric. If `path` is None, judge the source itself.

        Raises ConversionError if the file does not run, and EvaluationError if the source or a metric fails.
        """
        graphs = {} if path is None else self.graphs.get(path, {"": path})
        files = tuple(graphs.values())
        if files not in self._scored:
            self._scored[files] = self._measure(path) if self._cache is None else self._cached(path, graphs)
        facts = {**self._facts, **({"margin": True} if self.plan.request.margin else {})}
        if path in self.graphs:
            facts["graphs"] = _digests(graphs)
        judgements = []
        for metric, table in zip(self.plan.metrics, self._scored[files], strict=True):
            with metric_errors(metric):
                judgements.append(metric.judge(table, {**metric.settings, **facts}))
        return judgements

    def _cached(self, path: Path | None, graphs: Mapping[str, Path]) -> list[ScoreTable]:
        beside = [file.parent / GENAI_CONFIG for file in graphs.values()]
        for file in (file for file in graphs.values() if file.suffix == ".onnx"):
            beside += [file.parent / name for name in external_files(load_onnx(file), file)]
        key = {
            "version": SCORES_VERSION,
            "evaluation": self.plan.recorded(),
            "metrics": self.plan.versions,
            "suite": str(self.plan.suite.digest),
            "source": {"subject": self._key},
            "graphs": _digests(graphs),
            "beside": {file.name: str(digest_file(file)) for file in beside if file.is_file()},
            "tools": tools(),
        }
        value = self._cache.find_value(SCORES, key)
        try:
            tables = [ScoreTable.decode(one.encode(), SCORES) for one in value["tables"]]
        except (InputError, TypeError, KeyError, AttributeError):  # none, or a damaged one
            tables = []
        if len(tables) != len(self.plan.metrics):
            tables = self._measure(path)
            self._cache.remember(SCORES, key, {"tables": [table.encode().decode() for table in tables]})
        return tables

    def _measure(self, path: Path | None) -> list[ScoreTable]:
        predictions, parent_scores = self._parent
        reference, labels = predictions, self._evaluator.labels
        if path is not None:
            predictions = predict(self._runner(path), self._readings, self._evaluator.shares_runs)
        tables = []
        for metric, parent in zip(self.plan.metrics, parent_scores, strict=True):
            with metric_errors(metric):
                scores = metric.scores(self._items, predictions, reference, labels)
                tables.append(ScoreTable.of(metric.columns(labels), parent, scores, self.plan.suite.groups))
        return tables

    def time(self, path: str, file: Path, parent_path: str, parent: Path) -> list[Latency]:
        """Time a file and its parent on a short and a long input. The results name them `path` and `parent_path`."""
        inputs = typical_inputs(self._feeds)
        return compare(path, self._runner(file), parent_path, self._runner(parent, is_parent=True), inputs)

    def distance(self, file: Path, parent: Path) -> float:
        """Return the mean distance between the outputs of a file and its parent, as a share of the parent's norm."""
        feeds = self._feeds[:: -(-len(self._feeds) // DISTANCE_INPUTS)]
        if parent not in self._outputs:
            self._outputs = {parent: [*map(self._runner(parent, is_parent=True), feeds)]}
        runner, distances = self._runner(file), []
        for feed, expected in zip(feeds, self._outputs[parent], strict=True):
            given = runner(feed)
            floats = {name: array for name, array in expected.items() if array.dtype.kind == "f"}
            distances += [
                float(np.linalg.norm(given[name] - array)) / (float(np.linalg.norm(array)) or 1.0)
                if given[name].shape == array.shape  # a sound may have another length
                else math.inf
                for name, array in floats.items()
            ]
        return float(np.mean(distances))

    def _runner(self, file: Path, is_parent: bool = False) -> Runner:
        if self._loaded.get(is_parent, (None,))[0] != file:
            self._loaded.pop(is_parent, None)  # frees its memory
            subject, graphs = self.subject, self.graphs.get(file)
            padding = getattr(getattr(subject.loaded, "config", None), "pad_token_id", None)
            if graphs is None:
                runner = artifact_runner(file, subject.part.per_token, padding or 0)
            else:
                runner = runner_of(graphs, subject.directory)
            self._loaded[is_parent] = file, runner
        return self._loaded[is_parent][1]


def _digests(graphs: Mapping[str, Path]) -> dict[str, str]:
    return {name: str(digest_file(file)) for name, file in graphs.items()}


def nothing_to_judge() -> InputError:
    message = "the evaluation judges nothing: every output is in full precision"
    return InputError(message, "add --quantize or --certify, or in a recipe a step that quantizes")


def evaluate(evaluation: SourceEvaluation, draft: Draft, progress: Progress = SILENT) -> Draft:
    """Judge the requested artifacts of a draft, or all in low precision. Return the draft with verdicts and
    certificates.

    Raises InputError if there is nothing to judge, and ConversionError if an artifact does not run.
    """
    plan, request, subject, root = evaluation.plan, evaluation.plan.request, evaluation.subject, draft.root
    evaluation.join(draft)
    chosen = request.artifacts or [one.path for one in draft.artifacts if one.precision != FULL_PRECISION]
    if not chosen:
        raise nothing_to_judge()
    suite, prefix = plan.suite, "" if request.name is None else f"{request.name}/"
    facts = {"task": subject.fields.get("task", plan.evaluator.tasks[0])}
    facts |= {} if subject.origin.digest is None else {"parent": str(subject.origin.digest)}
    facts |= {} if suite.synthetic is None else {"synthetic": suite.synthetic}
    artifacts, documents = list[DraftArtifact](), list(draft.companions)
    for artifact in draft.artifacts:
        path, report = artifact.path, f"{CERTIFICATES}/{artifact.path}.json"
        if path not in chosen:
            artifacts.append(artifact)
            continue
        progress.step(f"judging {path}")
        judgements, records, checks = evaluation.judge(root / path), [], list[dict[str, Any]]()
        (root / report).parent.mkdir(parents=True, exist_ok=True)
        for metric, judgement in zip(plan.metrics, judgements, strict=True):
            record = judgement.record.to_json()
            with metric_errors(metric):
                checks += metric.checks(judgement, f"{prefix}{metric.id}", str(suite.digest))
            if request.item_scores:
                file = f"{CERTIFICATES}/{path}.{metric.id}.csv"
                (root / file).write_bytes(data := judgement.table.encode())
                record["item_scores"] = {"path": file, "digest": str(Digest.of(data))}
                documents.append(DraftFile(ITEM_SCORES, file))
            records.append(record)
        state, reasons = combine([one.record for one in judgements])
        unit = "group" if any(one.record.groups < one.record.samples for one in judgements) else "item"
        value = {
            "format": "onnxreg-evaluation",
            "format_version": 1,
            "artifact": str(digest_file(root / path)),
            "suite": str(suite.digest),
            "state": state,
            "reasons": list(reasons),
            "metrics": records,
            "resampling": {"unit": unit, "level": LEVEL, "resamples": RESAMPLES, "seed": SEED},
            "checks": checks,
            **facts,
        }
        if weights := external_digests(evaluation.graphs.get(root / path, {"": root / path}).values()):
            value["external_data"] = weights
        (root / report).write_bytes(EvaluationDocument.from_json(value, "certificate").encode() + b"\n")
        documents.append(DraftFile(CERTIFICATE, report))
        rules = ", ".join(dict.fromkeys(one.record.rule for one in judgements))
        verdict = Verdict(state, rules, reasons, suite.digest, report, suite.synthetic)
        fields = {**artifact.fields, "checks": [*artifact.fields.get("checks", ()), *checks]}
        artifacts.append(replace(artifact, verdict=verdict, fields=fields))
    return replace(draft, artifacts=tuple(artifacts), companions=tuple(documents))


def time_judged(
    evaluation: SourceEvaluation, draft: Draft, base: Path | None = None, progress: Progress = SILENT
) -> Iterator[Latency]:
    """Time each judged artifact beside its nearest ancestor in full precision, or beside `base`. Skip pipelines."""
    if evaluation.subject.is_joint:
        return
    artifacts = {artifact.path: artifact for artifact in draft.artifacts}
    own = evaluation.plan.request.artifacts
    for artifact in draft.artifacts:
        is_judged = artifact.path in own if own else artifact.verdict.suite is not None
        if not is_judged or artifact.precision == FULL_PRECISION:
            continue
        parent = artifacts.get(artifact.parent or "")
        while parent is not None and parent.precision != FULL_PRECISION:
            parent = artifacts.get(parent.parent or "")
        name, file = (BASE, base) if parent is None else (parent.path, draft.root / parent.path)
        if file is not None:
            progress.step(f"timing {artifact.path}")
            yield from evaluation.time(artifact.path, draft.root / artifact.path, name, file)


class FigureDifference(Record, frozen=True):
    """A figure of a certificate that differs from the item scores. `metric` names a metric or a check, or is empty."""

    metric: str
    key: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.metric or 'the verdict'}: {self.key} is {self.recorded}, recomputed {self.recomputed}"


def recompute(
    certificate: EvaluationDocument, read: Callable[[Digest], bytes], label: str
) -> list[FigureDifference]:
    """Compare the figures of a certificate with its item scores, and return the differences.

    `read` returns a file by its digest. Messages call the certificate `label`. Raises NotFoundError if there are no
    item scores, InputError if a metric is missing or has another version, and IntegrityError if the scores do not fit.
    """
    records, checks, differences = list[MetricRecord](), list[dict[str, Any]](), list[FigureDifference]()
    for recorded in certificate.metrics:
        if recorded.item_scores is None:
            message = f"{label} has no item scores, so its verdict cannot be recomputed"
            hint = "export again with --item-scores; by default reports hold aggregates only"
            raise NotFoundError(message, hint)
        kind = metrics.find(recorded.metric)
        if kind.rule != recorded.rule:
            raise IntegrityError(f"{label}: its rule and scores do not fit the metric {recorded.metric}")
        if kind.version != recorded.version:
            raise InputError(
                f"{label} was judged by {recorded.metric} version {recorded.version}, this build has {kind.version}",
                f"install the version of {recorded.package or 'onnxreg'} that wrote it",
            )
        name = next((check.name for check in certificate.checks if check.metric == kind.id), kind.id)
        try:
            with metric_errors(kind):
                metric, scores = kind(recorded.limit), recorded.item_scores
                table = ScoreTable.decode(read(scores.digest), scores.path)
                judgement = metric.judge(table, recorded.settings)
                checks += metric.checks(judgement, name, str(certificate.suite))
        except (ConversionError, EvaluationError, InputError) as error:
            raise IntegrityError(f"{label}: scores do not fit {kind.id}: {error.message}") from error
        records.append(judgement.record)
        differences += _differences(recorded.metric, recorded.to_json(), judgement.record.to_json())
    stated_checks, none = [check.to_json() for check in certificate.checks], dict[str, Any]()
    for old, new in zip_longest(stated_checks, checks, fillvalue=none):
        differences += _differences(str((old or new)["name"]), old, new)
    state, reasons = combine(records) if records else ("unknown", ())
    stated = {"state": certificate.state, "reasons": certificate.reasons}
    return [*differences, *_differences("", stated, {"state": state, "reasons": reasons})]


def _differences(metric: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FigureDifference]:
    for key in sorted((old.keys() | new.keys()) - {"item_scores", "package"}):
        if not _same(old.get(key), new.get(key)):
            yield FigureDifference(metric, key, old.get(key), new.get(key))


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)
    return bool(old == new)
