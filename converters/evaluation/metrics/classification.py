"""Metrics of classes: texts and images."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.evaluation.scores import Floats

TEXTS = frozenset({"text-classification"})
IMAGES = frozenset({"image-classification", "onnx"})


class ClassMetric(Metric):
    """A metric of the right class and of the class that the model gives, by their numbers."""

    tasks = TEXTS

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("label", "prediction")

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        numbers = {label: number for number, label in enumerate(labels)}
        rows = [
            (numbers[item.label], prediction) for item, prediction in zip(items, predictions, strict=True)
        ]
        return np.array(rows, dtype=np.float64)

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is not None for item in items)

    def skill(self, rows: Floats) -> float:
        """The value above that of a model that always gives the most frequent class, in parts of what is possible."""
        classes, counts = np.unique(rows[:, 0], return_counts=True)
        guess = np.column_stack([rows[:, 0], np.full(len(rows), classes[counts.argmax()])])
        base = self.value(guess)
        return (self.value(rows) - base) / (1.0 - base) if base < 1.0 else 0.0


class Accuracy(ClassMetric):
    """The share of texts with the right class (as `sklearn.metrics.accuracy_score`)."""

    id = "accuracy"

    def value(self, rows: Floats) -> float:
        return float(np.mean(rows[:, 0] == rows[:, 1]))


class MacroF1(ClassMetric):
    """The mean F1 of the classes that occur (as `sklearn.metrics.f1_score`, average macro)."""

    id = "macro_f1"
    limit = 0.01

    def value(self, rows: Floats) -> float:
        classes, numbers = np.unique(rows, return_inverse=True)
        right, predicted = numbers.reshape(rows.shape).T
        hits = np.bincount(right[right == predicted], minlength=len(classes))
        return float(np.mean(2 * hits / np.bincount(numbers.ravel())))


class TopK(Metric):
    """The share of rows whose class is among the `k` largest values. A score is the rank of the class, from 0."""

    tasks = IMAGES
    k: ClassVar[int]

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is not None for item in items)

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("rank", "classes")

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        return np.array(predictions, dtype=np.float64)

    def value(self, rows: Floats) -> float:
        return float(np.mean(rows[:, 0] < self.k))

    def skill(self, rows: Floats) -> float:
        base = float(np.mean(np.minimum(self.k / rows[:, 1], 1.0)))
        return (self.value(rows) - base) / (1.0 - base) if base < 1.0 else 0.0


class Top1(TopK):
    """The share of images whose largest value is that of the right class (`sklearn.metrics.top_k_accuracy_score`)."""

    id = "top_1"
    k = 1


class Top5(TopK):
    """The share of images whose class is among the five largest values."""

    id = "top_5"
    k = 5
    is_default = False
