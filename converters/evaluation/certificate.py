"""Certificates: the figures behind the verdict on one artifact, and, if they are published, the scores behind those.

A certificate is an evaluation document (`schema.gates.statements`) with a record for each metric. Aggregates only: no
text, id, span or offset of the suite. `recompute` derives the verdict from the published item scores alone.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
from onnxreg.converters.evaluation.judgement import JudgedArtifact, Judgement, combine
from onnxreg.converters.evaluation.metrics import metric_catalog
from onnxreg.converters.evaluation.metrics.metric import blame_metric
from onnxreg.converters.evaluation.scores import LEVEL, RESAMPLES, SEED, ScoreTable
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.gates.statements import EvaluationDocument, MetricRecord
from onnxreg.schema.log.summary import CERTIFICATE, ITEM_SCORES
from onnxreg.schema.manifest.draft import Draft, DraftFile

DIRECTORY = "certificates"
RELATIVE_TOLERANCE = 1e-9
"""Two machines add floats in another order."""


@dataclass(frozen=True)
class FigureDifference:
    """A figure of a certificate that is not what its item scores give. `metric` is "" for the verdict as a whole."""

    metric: str
    key: str
    recorded: Any
    recomputed: Any

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "key": self.key,
            "recorded": self.recorded,
            "recomputed": self.recomputed,
        }

    def __str__(self) -> str:
        return f"{self.metric or 'the verdict'}: {self.key} is {self.recorded}, recomputed {self.recomputed}"


def write(
    plan: EvaluationPlan, item: JudgedArtifact, subject: ExportSubject, draft: Draft
) -> Iterator[DraftFile]:
    """Write the certificate of an artifact into the draft's workspace, and its item scores if they are published.

    Yields the files. The same suite, source and artifact give the same bytes, whatever the number of cores.
    """
    path, dataset = draft.root / path_of(item.artifact.path), str(plan.suite.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    records, checks = [], []
    for judgement, table in zip(item.judgements, item.tables, strict=True):
        records.append(record(judgement))
        checks += judgement.metric.checks(judgement, plan.name(judgement.metric.id), dataset)
        if plan.request.item_scores:
            file, data = f"{DIRECTORY}/{item.artifact.path}.{judgement.metric.id}.csv", table.encode()
            (draft.root / file).write_bytes(data)
            records[-1]["item_scores"] = {"path": file, "digest": str(Digest.of(data))}
            yield DraftFile(ITEM_SCORES, file)
    unit = "group" if any(table.is_grouped for table in item.tables) else "item"
    value: dict[str, Any] = {
        "format": "onnxreg-evaluation",
        "format_version": 1,
        "artifact": str(digest_file(draft.root / item.artifact.path)),
        "suite": dataset,
        "state": item.state,
        "reasons": list(item.reasons),
        "checks": checks,
        "task": subject.fields.get("task", plan.evaluator.tasks[0]),
        "metrics": records,
        "resampling": {"unit": unit, "level": LEVEL, "resamples": RESAMPLES, "seed": SEED},
    }
    if subject.origin.digest is not None:
        value["parent"] = str(subject.origin.digest)
    if plan.suite.synthetic is not None:
        value["synthetic"] = plan.suite.synthetic
    document = EvaluationDocument.from_json(value, "certificate").to_json()
    path.write_bytes(canonical.encode(document) + b"\n")
    yield DraftFile(CERTIFICATE, path_of(item.artifact.path))


def recompute(
    certificate: EvaluationDocument, read: Callable[[Digest], bytes], label: str
) -> list[FigureDifference]:
    """Compare every figure of a certificate with what its item scores give; empty if all are the same.

    Args:
        read: reads the bytes of a published file.
        label: the name of the certificate in messages.

    Raises NotFoundError if no item scores were published, InputError for a metric that is not installed or is of another
    version here, IntegrityError for scores that are not those of the certificate.
    """
    judgements: list[Judgement] = []
    differences: list[FigureDifference] = []
    for recorded in certificate.metrics:
        table = _table(recorded, read, label)
        metric = metric_catalog.find(recorded.metric)
        if metric.rule != recorded.rule:
            raise IntegrityError(f"{label}: its rule and scores do not fit the metric {recorded.metric}")
        if metric.version != recorded.version:
            raise InputError(
                f"{label} was judged by {recorded.metric} version {recorded.version}, this build has {metric.version}",
                f"install the version of {recorded.package or 'onnxreg'} that wrote it",
            )
        try:
            with blame_metric(metric.id):
                judgement = metric.judge(table, recorded.limit, recorded.settings)
        except (ConversionError, InputError) as error:
            raise IntegrityError(
                f"{label}: the item scores do not fit the metric {recorded.metric}"
            ) from error
        judgements.append(judgement)
        differences += _differences(recorded.metric, recorded.to_json(), record(judgement))
    state = combine(judgements)[0] if judgements else "unknown"
    if state != certificate.state:
        differences.append(FigureDifference("", "state", certificate.state, state))
    return differences


def path_of(artifact: str) -> str:
    """The path of the certificate of the artifact at a path."""
    return f"{DIRECTORY}/{artifact}.json"


def record(judgement: Judgement) -> dict[str, Any]:
    """The record of one metric, in JSON form: see `schema.gates.statements.MetricRecord`."""
    value: dict[str, Any] = {
        "metric": judgement.metric.id,
        "version": judgement.metric.version,
        "direction": judgement.metric.direction,
        "rule": judgement.metric.rule,
        "limit": judgement.limit,
        "parent": judgement.parent,
        "value": judgement.value,
        "loss": judgement.loss,
        "samples": judgement.samples,
        "groups": judgement.groups,
        "state": judgement.state,
        "reasons": list(judgement.reasons),
        "settings": dict(judgement.settings),
    }
    if judgement.interval is not None:
        value["interval"] = list(judgement.interval)
    if judgement.metric.package is not None:
        value["package"] = judgement.metric.package
    return value


def _table(recorded: MetricRecord, read: Callable[[Digest], bytes], label: str) -> ScoreTable:
    if recorded.item_scores is None:
        raise NotFoundError(
            f"{label} has no item scores, so its verdict cannot be recomputed",
            "export again with --item-scores; by default reports hold aggregates only",
        )
    path = recorded.item_scores.path
    data = read(recorded.item_scores.digest)
    try:
        return ScoreTable.decode(data, path)
    except InputError as error:
        raise IntegrityError(error.message) from error


def _differences(
    metric: str, recorded: dict[str, Any], recomputed: dict[str, Any]
) -> Iterator[FigureDifference]:
    for key in sorted((recorded.keys() | recomputed.keys()) - {"item_scores", "package"}):
        old, new = recorded.get(key), recomputed.get(key)
        if not _same(old, new):
            yield FigureDifference(metric, key, old, new)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)
    return bool(old == new)
