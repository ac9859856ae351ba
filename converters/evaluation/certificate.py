"""Certificates: the figures behind the verdict on one artifact, and, if they are published, the scores behind those.

A certificate is an evaluation document (`schema.gates.evaluation`) with a record for each metric. Aggregates only: no
text, id, span or offset of the suite.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
from onnxreg.converters.evaluation.judgement import JudgedArtifact, Judgement
from onnxreg.converters.evaluation.resample import LEVEL, RESAMPLES, SEED
from onnxreg.converters.evaluation.scores import ScoreTable
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.evaluation import EvaluationDocument
from onnxreg.schema.log.summary import CERTIFICATE, ITEM_SCORES
from onnxreg.schema.manifest.draft import Draft, DraftFile

DIRECTORY = "certificates"


def path_of(artifact: str) -> str:
    """The path of the certificate of the artifact at a path."""
    return f"{DIRECTORY}/{artifact}.json"


def write(
    plan: EvaluationPlan, item: JudgedArtifact, subject: ExportSubject, draft: Draft
) -> Iterator[DraftFile]:
    """Write the certificate of an artifact into the draft's workspace, and its item scores if they are published.

    Yields the files. The same suite, source and artifact give the same bytes, whatever the number of cores.
    """
    path = draft.root / path_of(item.artifact.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scores: dict[str, dict[str, Any]] = {}
    if plan.request.item_scores:
        for judgement, table in zip(item.judgements, item.tables, strict=True):
            file = f"{DIRECTORY}/{item.artifact.path}.{judgement.metric.id}.csv"
            data = table.encode()
            (draft.root / file).write_bytes(data)
            scores[judgement.metric.id] = {"path": file, "digest": str(Digest.of(data))}
            yield DraftFile(ITEM_SCORES, file)
    document = _document(plan, item, subject, draft.root / item.artifact.path, scores)
    path.write_bytes(canonical.encode(document) + b"\n")
    yield DraftFile(CERTIFICATE, path_of(item.artifact.path))


def _document(
    plan: EvaluationPlan,
    item: JudgedArtifact,
    subject: ExportSubject,
    path: Path,
    scores: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    dataset = str(plan.suite.digest)
    value: dict[str, Any] = {
        "format": "onnxreg-evaluation",
        "format_version": 1,
        "artifact": str(_digest(path)),
        "suite": dataset,
        "state": item.state,
        "reasons": list(item.reasons),
        "checks": [
            check
            for judgement in item.judgements
            for check in judgement.checks(plan.name(judgement.metric.id), dataset)
        ],
        "task": subject.fields.get("task", plan.evaluator.tasks[0]),
        "metrics": [
            record(judgement) | ({"item_scores": scores[judgement.metric.id]} if scores else {})
            for judgement in item.judgements
        ],
        "resampling": _resampling(item.tables),
    }
    if subject.origin.digest is not None:
        value["parent"] = str(subject.origin.digest)
    if plan.suite.synthetic is not None:
        value["synthetic"] = plan.suite.synthetic
    return EvaluationDocument.from_json(value, "certificate").to_json()


def record(judgement: Judgement) -> dict[str, Any]:
    """The record of one metric, in JSON form: see `schema.gates.evaluation.MetricRecord`."""
    value: dict[str, Any] = {
        "metric": judgement.metric.id,
        "version": judgement.metric.version,
        "direction": judgement.metric.direction,
        "rule": judgement.rule,
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


def _resampling(tables: tuple[ScoreTable, ...]) -> dict[str, Any]:
    unit = "group" if any(table.is_grouped for table in tables) else "item"
    return {"unit": unit, "level": LEVEL, "resamples": RESAMPLES, "seed": SEED}


def _digest(path: Path) -> Digest:
    with path.open("rb") as stream:
        return Digest(hashlib.file_digest(stream, "sha256").hexdigest())
