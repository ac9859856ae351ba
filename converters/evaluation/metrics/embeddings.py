"""Metrics of vectors of texts."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.metrics.classification import IMAGES
from onnxreg.converters.evaluation.metrics.metric import Metric, scikit_metrics, scipy_stats
from onnxreg.converters.evaluation.scores import Floats

TASKS = frozenset({"pooling", "feature-extraction"})
TOP = 10
"""Documents that nDCG looks at."""


class VectorMetric(Metric):
    """A metric of the vectors of an item: float `[texts, size]`, in the order of the item's texts."""

    tasks = TASKS


class Spearman(VectorMetric):
    """The rank correlation of cosines with the scores of pairs (as `scipy.stats.spearmanr`)."""

    id = "spearman"
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("score", "cosine")

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        rows = [
            (item.score, float(cosines(vectors[:1], vectors[1:])[0]))
            for item, vectors in zip(items, predictions, strict=True)
        ]
        return np.array(rows, dtype=np.float64)

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.score is not None for item in items)

    def value(self, rows: Floats) -> float:
        ranks = scipy_stats().rankdata(rows, axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.corrcoef(ranks, rowvar=False)[1, 0])


class NormalizedGain(VectorMetric):
    """The mean nDCG of the first ten documents, ordered by cosine (`sklearn.metrics.ndcg_score`)."""

    id = "ndcg_10"
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("ndcg", "chance")

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        metrics, rows = scikit_metrics(), []
        for item, vectors in zip(items, predictions, strict=True):
            relevance = np.array([item.relevance], dtype=np.float64)
            similarities = cosines(np.repeat(vectors[:1], len(vectors) - 1, axis=0), vectors[1:])[None]
            rows.append(
                [
                    float(metrics.ndcg_score(relevance, values, k=TOP))
                    for values in (similarities, np.zeros_like(similarities))
                ]
            )
        return np.array(rows, dtype=np.float64)

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.relevance is not None for item in items)

    def value(self, rows: Floats) -> float:
        return float(rows[:, 0].mean())

    def skill(self, rows: Floats) -> float:
        chance = float(rows[:, 1].mean())
        return (self.value(rows) - chance) / (1.0 - chance) if chance < 1.0 else 0.0


class MeanCosine(VectorMetric):
    """The mean cosine of each text's vector with the parent's: 1 for the parent itself. It needs no gold."""

    id = "mean_cosine"
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("cosine",)

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        rows = [cosines(own, parents).mean() for own, parents in zip(predictions, reference, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(-1, 1)

    def value(self, rows: Floats) -> float:
        return float(rows.mean())


class OutputCosine(MeanCosine):
    """The mean over rows of the lowest cosine of an output with the parent's: 1 for the parent itself. It needs no gold."""

    id = "output_cosine"
    tasks = IMAGES

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        rows = [_least(own, parents) for own, parents in zip(predictions, reference, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(-1, 1)

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is None for item in items)


def _least(own: Any, parents: Any) -> float:
    """The lowest cosine of an output; 0 if its shape differs or it alone is zero, 1 if both are."""
    if own.shape != parents.shape:
        return 0.0
    both_zero = ~own.any(axis=1) & ~parents.any(axis=1)
    return float(np.where(both_zero, 1.0, np.nan_to_num(cosines(own, parents), nan=0.0)).min())


def cosines(left: Any, right: Any) -> Any:
    """The cosine of each pair of rows; NaN if one is zero."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.divide((left * right).sum(axis=1), norms, out=np.full(len(left), math.nan), where=norms > 0)
