"""Certificates: the figures behind the verdict on one artifact and, if published, the item scores behind the figures.

A certificate is an evaluation document (`schema.gates.statements`) with a record for each metric. It has aggregates only:
no text, id, span or offset of the suite. `recompute` derives the verdict from the published item scores alone.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from onnxreg.converters.evaluation import metrics
from onnxreg.converters.evaluation.metric import Judgement, ScoreTable, blame_metric, combine
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.gates.statements import EvaluationDocument

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
    judgements: list[Judgement] = []
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
        metric = metrics.find(recorded.metric)
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
        old, new = recorded.to_json(), record(judgement)
        differences += [
            FigureDifference(recorded.metric, key, old.get(key), new.get(key))
            for key in sorted((old.keys() | new.keys()) - {"item_scores", "package"})
            if not _same(old.get(key), new.get(key))
        ]
    state = combine(judgements)[0] if judgements else "unknown"
    if state != certificate.state:
        differences.append(FigureDifference("", "state", certificate.state, state))
    return differences


def path_of(artifact: str) -> str:
    """The path of an artifact's certificate, from the artifact's path."""
    return f"{DIRECTORY}/{artifact}.json"


def record(judgement: Judgement) -> dict[str, Any]:
    """Return the record of one metric, in JSON form; see `schema.gates.statements.MetricRecord`."""
    metric, figures = judgement.metric, ("limit", "parent", "value", "loss", "samples", "groups", "state")
    return {
        "metric": metric.id,
        **{name: getattr(metric, name) for name in ("version", "direction", "rule")},
        **{name: getattr(judgement, name) for name in figures},
        "reasons": list(judgement.reasons),
        "settings": dict(judgement.settings),
        **({} if judgement.interval is None else {"interval": list(judgement.interval)}),
        **({} if metric.package is None else {"package": metric.package}),
    }


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)
    return bool(old == new)
