"""Derive the verdict of a certificate from its published item scores alone."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.evaluation.certificate import record
from onnxreg.converters.evaluation.judgement import Judgement, combine
from onnxreg.converters.evaluation.metrics import metric_catalog
from onnxreg.converters.evaluation.metrics.metric import blame_metric
from onnxreg.converters.evaluation.scores import ScoreTable
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.gates.evaluation import EvaluationDocument, MetricRecord

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


def _table(recorded: MetricRecord, read: Callable[[Digest], bytes], label: str) -> ScoreTable:
    if recorded.item_scores is None:
        raise NotFoundError(
            f"{label} has no item scores, so its verdict cannot be recomputed", Advice("publish-item-scores")
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
