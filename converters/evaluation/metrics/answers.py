"""Metrics of answers, as the benchmark SQuAD defines them.

Rajpurkar et al., SQuAD: 100,000+ Questions for Machine Comprehension of Text, 2016, section 6.1: lower case, without
punctuation, articles and repeated spaces; the best of several right answers counts.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.evaluation.scores import Floats

TASKS = frozenset({"question-answering"})
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerMetric(Metric):
    """The mean over questions of the best score against one of the right answers."""

    tasks = TASKS
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("score",)

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[str],
        reference: Sequence[str],
        labels: Sequence[str],
    ) -> Floats:
        rows = [
            max(self.score(answer, prediction) for answer in item.answers or ("",))
            for item, prediction in zip(items, predictions, strict=True)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 1)

    def score(self, answer: str, prediction: str) -> float:
        """Score a prediction against one right answer; "" means none."""
        raise NotImplementedError

    def value(self, rows: Floats) -> float:
        return float(rows.mean())


class ExactMatch(AnswerMetric):
    """The share of questions whose answer is a right one, but for case, punctuation and articles."""

    id = "exact_match"

    def score(self, answer: str, prediction: str) -> float:
        return float(normalized(answer) == normalized(prediction))


class AnswerF1(AnswerMetric):
    """The mean F1 of the words of an answer."""

    id = "answer_f1"

    def score(self, answer: str, prediction: str) -> float:
        expected, words = normalized(answer), normalized(prediction)
        if not expected or not words:
            return float(expected == words)
        common = (Counter(expected) & Counter(words)).total()
        return 2 * common / (len(expected) + len(words))


def normalized(text: str) -> list[str]:
    """The words that are compared."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
