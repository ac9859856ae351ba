"""Certificates: the figures behind the verdict on one artifact and, if published, the item scores behind the figures.

A certificate is an evaluation document (`schema.gates.statements`) with a record for each metric. It has aggregates only:
no text, id, span or offset of the suite. `recompute` derives the verdict from the published item scores alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation import metrics
from onnxreg.converters.evaluation.metric import (
    LEVEL,
    RESAMPLES,
    SEED,
    Judgement,
    ScoreTable,
    combine,
)
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.gates.statements import EvaluationDocument, MetricRecord
from onnxreg.schema.log.state import CERTIFICATE, ITEM_SCORES
from onnxreg.schema.manifest.draft import DraftArtifact, DraftFile

DIRECTORY = "certificates"
RELATIVE_TOLERANCE = 1e-9
"""Figures of two machines that differ by at most this share count as equal: they may add floats in another order."""


@dataclass(frozen=True)
class FigureDifference:
    """A figure of a certificate that differs from the item scores. `metric` is "" for the verdict as a whole."""

    metric: str
    key: str
    recorded: Any
    recomputed: Any

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.metric or 'the verdict'}: {self.key} is {self.recorded}, recomputed {self.recomputed}"


def write(
    artifact: DraftArtifact, judgements: Sequence[Judgement], root: Path, item_scores: bool, **facts: Any
) -> Iterator[DraftFile]:
    """Write the certificate of a judged artifact below `root`, with the item scores if they are published; yield the files.

    The same suite, source and artifact give the same bytes on any number of cores.

    Args:
        facts: further keys of the certificate.
    """
    path, verdict, records = path_of(artifact.path), artifact.verdict, []
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    for judgement in judgements:
        records.append(judgement.record.to_json())
        if item_scores:
            file = f"{DIRECTORY}/{artifact.path}.{judgement.metric.id}.csv"
            (root / file).write_bytes(data := judgement.table.encode())
            records[-1]["item_scores"] = {"path": file, "digest": str(Digest.of(data))}
            yield DraftFile(ITEM_SCORES, file)
    unit = "group" if any(one.record.groups < one.record.samples for one in judgements) else "item"
    value = {
        "format": "onnxreg-evaluation",
        "format_version": 1,
        "artifact": str(digest_file(root / artifact.path)),
        "suite": str(verdict.suite),
        "state": verdict.state,
        "reasons": list(verdict.reasons),
        "metrics": records,
        "resampling": {"unit": unit, "level": LEVEL, "resamples": RESAMPLES, "seed": SEED},
        **({} if verdict.synthetic is None else {"synthetic": verdict.synthetic}),
        **facts,
    }
    document = EvaluationDocument.from_json(value, "certificate").to_json()
    (root / path).write_bytes(canonical.encode(document) + b"\n")
    yield DraftFile(CERTIFICATE, path)


def recompute(
    certificate: EvaluationDocument, read: Callable[[Digest], bytes], label: str
) -> list[FigureDifference]:
    """Compare every figure of a certificate with the item scores; return the differences.

    Args:
        read: returns the bytes of a published file.
        label: the name of the certificate in messages.

    Raises NotFoundError if no item scores were published, InputError if a metric is not installed or has another version
    here, IntegrityError for scores that do not belong to the certificate.
    """
    records: list[MetricRecord] = []
    differences: list[FigureDifference] = []
    for recorded in certificate.metrics:
        if recorded.item_scores is None:
            raise NotFoundError(
                f"{label} has no item scores, so its verdict cannot be recomputed",
                "export again with --item-scores; by default reports hold aggregates only",
            )
        try:
            table = ScoreTable.decode(read(recorded.item_scores.digest), recorded.item_scores.path)
        except InputError as error:
            raise IntegrityError(error.message) from error
        metric = metrics.find(recorded.metric)()
        metric.limit = recorded.limit
        if metric.rule != recorded.rule:
            raise IntegrityError(f"{label}: its rule and scores do not fit the metric {recorded.metric}")
        if metric.version != recorded.version:
            raise InputError(
                f"{label} was judged by {recorded.metric} version {recorded.version}, this build has {metric.version}",
                f"install the version of {recorded.package or 'onnxreg'} that wrote it",
            )
        try:
            record = metric.judge(table, recorded.settings).record
        except (ConversionError, InputError) as error:
            raise IntegrityError(
                f"{label}: the item scores do not fit the metric {recorded.metric}"
            ) from error
        records.append(record)
        old, new = recorded.to_json(), record.to_json()
        differences += [
            FigureDifference(recorded.metric, key, old.get(key), new.get(key))
            for key in sorted((old.keys() | new.keys()) - {"item_scores", "package"})
            if not _same(old.get(key), new.get(key))
        ]
    state = combine(records)[0] if records else "unknown"
    if state != certificate.state:
        differences.append(FigureDifference("", "state", certificate.state, state))
    return differences


def path_of(artifact: str) -> str:
    """The path of an artifact's certificate, from the artifact's path."""
    return f"{DIRECTORY}/{artifact}.json"


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)
    return bool(old == new)
