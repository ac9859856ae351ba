"""A text classifier on a text, or on a pair of texts: the score of each class.

Scores are made as pipelines of transformers make them: by the sigmoid if the classes do not exclude each other,
or there is only one; not at all for a regression; otherwise by the softmax.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.texts.text_model import TextModel, numbers_of


@dataclass(frozen=True)
class ClassScores:
    """Labels with their scores, the best first; `activation` is softmax, sigmoid or none."""

    scores: tuple[tuple[str, float], ...]
    activation: str
    is_cut: bool

    def to_json(self) -> dict[str, Any]:
        classes = [{"label": label, "score": score} for label, score in self.scores]
        return {"classes": classes, "activation": self.activation, "truncated": self.is_cut}


def classify(model: TextModel, text: str, pair: str | None = None) -> ClassScores:
    """The classes of a text. ConversionError if the graph does not run, or fits not the labels."""
    row = model.tokenizer.row(text, pair)
    logits = numbers_of(model.run(row.inputs), "logits")
    labels, activation = model.check_labels(len(logits)), _activation(model.config, len(logits))
    scores = activate(logits, activation)
    order = np.argsort(-scores, kind="stable")
    return ClassScores(
        tuple((labels[number], float(scores[number])) for number in order), activation, row.is_cut
    )


def _activation(config: Mapping[str, Any], count: int) -> str:
    problem = config.get("problem_type")
    if problem == "regression":
        return "none"
    return "sigmoid" if problem == "multi_label_classification" or count == 1 else "softmax"


def activate(logits: Floats, activation: str) -> Floats:
    """Scores of logits, float64 `[classes]`."""
    if activation == "softmax":
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())
    return 1 / (1 + np.exp(-logits)) if activation == "sigmoid" else logits
