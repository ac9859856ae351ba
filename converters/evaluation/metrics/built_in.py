"""Metrics of classes, vectors, answers and written texts."""

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onnxreg.converters.evaluation.metrics.metric import Metric, library
from onnxreg.converters.evaluation.scores import Floats

VECTORS = frozenset({"pooling", "feature-extraction"})
ROWS = frozenset({"image-classification", "onnx"})
TEXTS = frozenset({"text-generation"})
TOP = 10
"""Documents that nDCG looks at."""


class MeanMetric(Metric):
    """The mean of one number for each item."""

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("score",)

    def value(self, rows: Floats) -> float:
        return float(rows[:, 0].mean())


def above_chance(value: float, base: float) -> float:
    """A value above that of a guess, in parts of what is possible."""
    return (value - base) / (1.0 - base) if base < 1.0 else 0.0


class ClassMetric(Metric):
    """A metric of the right class and of the class that the model gives, by their numbers."""

    tasks = frozenset({"text-classification"})

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("label", "prediction")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return (labels.index(item.label), prediction)

    def skill(self, rows: Floats) -> float:
        """The value above that of a model that always gives the most frequent class."""
        classes, counts = np.unique(rows[:, 0], return_counts=True)
        guess = np.column_stack([rows[:, 0], np.full(len(rows), classes[counts.argmax()])])
        return above_chance(self.value(rows), self.value(guess))


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


class Top1(Metric):
    """The share of rows whose largest value is that of the right class (`sklearn.metrics.top_k_accuracy_score`).

    A score is the rank of the class, from 0; it passes below `k`.
    """

    id = "top_1"
    tasks = ROWS
    k: ClassVar[int] = 1

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is not None for item in items)

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("rank", "classes")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        ranks: Sequence[float] = prediction
        return ranks

    def value(self, rows: Floats) -> float:
        return float(np.mean(rows[:, 0] < self.k))

    def skill(self, rows: Floats) -> float:
        return above_chance(self.value(rows), float(np.mean(np.minimum(self.k / rows[:, 1], 1.0))))


class Top5(Top1):
    """The share of rows whose class is among the five largest values."""

    id = "top_5"
    k = 5
    is_default = False


class Spearman(Metric):
    """The rank correlation of cosines with the scores of pairs (as `scipy.stats.spearmanr`)."""

    id = "spearman"
    tasks = VECTORS
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("score", "cosine")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return (item.score, *cosines(prediction[:1], prediction[1:]))

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.score is not None for item in items)

    def value(self, rows: Floats) -> float:
        ranks = library("scipy.stats").rankdata(rows, axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(np.corrcoef(ranks, rowvar=False)[1, 0])


class NormalizedGain(MeanMetric):
    """The mean nDCG of the first ten documents, ordered by cosine (`sklearn.metrics.ndcg_score`)."""

    id = "ndcg_10"
    tasks = VECTORS
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("ndcg", "chance")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        relevance = np.array([item.relevance], dtype=np.float64)
        query = np.repeat(prediction[:1], len(prediction) - 1, axis=0)
        similarities = cosines(query, prediction[1:])[None]
        score = library("sklearn.metrics").ndcg_score
        return [score(relevance, values, k=TOP) for values in (similarities, np.zeros_like(similarities))]

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.relevance is not None for item in items)

    def skill(self, rows: Floats) -> float:
        return above_chance(self.value(rows), float(rows[:, 1].mean()))


class MeanCosine(MeanMetric):
    """The mean cosine of each text's vector with the parent's: 1 for the parent itself. It needs no gold."""

    id = "mean_cosine"
    tasks = VECTORS
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("cosine",)

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return [cosines(prediction, reference).mean()]


class OutputCosine(MeanCosine):
    """The mean over rows of the lowest cosine of an output with the parent's: 1 for the parent itself. It needs no gold."""

    id = "output_cosine"
    tasks = ROWS

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        """0 if the shape of an output differs or it alone is zero, 1 if both are."""
        if prediction.shape != reference.shape:
            return [0.0]
        both_zero = ~prediction.any(axis=1) & ~reference.any(axis=1)
        near = np.nan_to_num(cosines(prediction, reference), nan=0.0)
        return [np.where(both_zero, 1.0, near).min()]

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is None for item in items)


def cosines(left: Any, right: Any) -> Any:
    """The cosine of each pair of rows; NaN if one is zero."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.divide((left * right).sum(axis=1), norms, out=np.full(len(left), math.nan), where=norms > 0)


class ExactMatch(MeanMetric):
    """The share of questions whose answer is a right one, but for case, punctuation and articles."""

    id = "exact_match"
    tasks = frozenset({"question-answering"})
    limit = 0.01

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        """The best score against one of the right answers; "" means none."""
        words = answer_words(prediction)
        return [max(self.score(answer_words(answer), words) for answer in item.answers or ("",))]

    def score(self, answer: list[str], prediction: list[str]) -> float:
        return float(answer == prediction)


class AnswerF1(ExactMatch):
    """The mean F1 of the words of an answer."""

    id = "answer_f1"

    def score(self, answer: list[str], prediction: list[str]) -> float:
        if not answer or not prediction:
            return float(answer == prediction)
        common = (Counter(answer) & Counter(prediction)).total()
        return 2 * common / (len(answer) + len(prediction))


def answer_words(text: str) -> list[str]:
    """The words that are compared: lower case, without punctuation and articles.

    Rajpurkar et al., SQuAD: 100,000+ Questions for Machine Comprehension of Text, 2016, section 6.1.
    """
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


class Perplexity(Metric):
    """The exponential of the mean negative log-likelihood of a completion's tokens, in nats.

    The loss is relative: 0.05 is a perplexity 5 % above the parent's.
    """

    id = "perplexity"
    tasks = TEXTS
    direction = "lower"
    limit = 0.05
    min_groups = 100

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("nats", "tokens", "vocabulary")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return (prediction.nats, prediction.tokens, prediction.vocabulary)

    def value(self, rows: Floats) -> float:
        return float(np.exp(rows[:, 0].sum() / rows[:, 1].sum()))

    def loss(self, parent: float, value: float) -> float:
        return value / parent - 1.0

    def skill(self, rows: Floats) -> float:
        """1 - (nats of a token) / log(vocabulary): 0 for a uniform guess, 1 for certainty."""
        return float(1.0 - rows[:, 0].sum() / rows[:, 1].sum() / np.log(rows[0, 2]))


class CompletionMatch(MeanMetric):
    """The share of prompts whose completion has the highest probability at every token (greedy decoding gives it)."""

    id = "completion_match"
    tasks = TEXTS
    limit = 0.01
    is_default = False

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("match",)

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return [float(prediction.is_greedy)]
