"""Question answering: the part of a context that answers a question, chosen as in an evaluation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.evaluation.tasks.extractive_answers import STRIDE, AnswerSpan, best_span
from onnxreg.converters.texts.classes import activate
from onnxreg.converters.texts.text_model import TextModel, numbers_of
from onnxreg.converters.texts.text_tokenizer import TokenRow


@dataclass(frozen=True)
class ContextAnswer:
    """A half-open part of the context in code points; `score` is the probability of its first and last token,
    each among the tokens of the context in its window.
    """

    text: str
    start: int
    end: int
    score: float

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "start": self.start, "end": self.end, "score": self.score}


def answer(model: TextModel, question: str, context: str) -> ContextAnswer | None:
    """The best answer of all windows of the context; None if the first token alone scores higher everywhere.

    Raise InputError if the question leaves no room for its context; ConversionError if the graph does not run.
    """
    stride = min(STRIDE, model.tokenizer.max_length // 4)
    read = [_read(model, row) for row in model.tokenizer.pair_windows(question, context, stride)]
    best, score, _ = max(read, key=lambda item: item[0].score)
    if best.end <= best.start or min(nothing for _, _, nothing in read) > best.score:
        return None
    return ContextAnswer(context[best.start : best.end], best.start, best.end, score)


def _read(model: TextModel, row: TokenRow) -> tuple[AnswerSpan, float, float]:
    """The best answer in a window, its probability, and the score of none: both logits of the first token."""
    outputs = model.run(row.inputs)
    start, end = (numbers_of(outputs, f"{name}_logits") for name in ("start", "end"))
    offsets = np.where((row.sequences != 1)[:, None], -1, row.offsets)
    best, is_context = best_span(start, end, offsets), offsets[:, 0] >= 0
    chance = _chance(start, is_context & (offsets[:, 0] == best.start), is_context)
    chance *= _chance(end, is_context & (offsets[:, 1] == best.end), is_context)
    return best, chance, float(start[0] + end[0])


def _chance(logits: Floats, chosen: Any, among: Any) -> float:
    """The largest probability of the chosen tokens among some; 0 if there are none."""
    if not chosen.any():
        return 0.0
    return float(activate(logits[among], "softmax")[chosen[among]].max())
