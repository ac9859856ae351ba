"""Metrics of texts that a decoder writes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.evaluation.scores import Floats

TASKS = frozenset({"text-generation"})


class Perplexity(Metric):
    """The exponential of the mean negative log-likelihood of a completion's tokens, in nats.

    The loss is relative: 0.05 is a perplexity 5 % above the parent's.
    """

    id = "perplexity"
    tasks = TASKS
    direction = "lower"
    limit = 0.05
    min_groups = 100

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("nats", "tokens", "vocabulary")

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        rows = [(prediction.nats, prediction.tokens, prediction.vocabulary) for prediction in predictions]
        return np.array(rows, dtype=np.float64)

    def value(self, rows: Floats) -> float:
        return float(np.exp(rows[:, 0].sum() / rows[:, 1].sum()))

    def loss(self, parent: float, value: float) -> float:
        return value / parent - 1.0

    def skill(self, rows: Floats) -> float:
        """1 minus the nats of a token, in parts of those of a uniform guess."""
        return float(1.0 - rows[:, 0].sum() / rows[:, 1].sum() / np.log(rows[0, 2]))


class CompletionMatch(Metric):
    """The share of prompts whose completion has the highest probability at every token (greedy decoding gives it)."""

    id = "completion_match"
    tasks = TASKS
    limit = 0.01
    is_default = False

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("match",)

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        return np.array([float(prediction.is_greedy) for prediction in predictions]).reshape(-1, 1)

    def value(self, rows: Floats) -> float:
        return float(rows.mean())
