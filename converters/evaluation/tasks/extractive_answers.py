"""Question answering: the part of a context that answers a question."""

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TextEvaluator,
    output,
    plain,
    text_of,
)
from onnxreg.schema.core.errors import InputError

MAX_ANSWER_TOKENS = 30
"""Tokens of the longest answer, as in the example scripts of Transformers."""
STRIDE = 128
"""Tokens that two windows of one context share, if the model's length allows."""


@dataclass(frozen=True)
class Question:
    """A question about a context, with every right answer; none if the context has no answer."""

    question: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class AnswerSpan:
    """The best answer in one window: its score (the sum of two logits), and its half-open range of characters."""

    score: float
    start: int
    end: int


class Answers(TextEvaluator):
    """`{question, context, answers: [text]}`. A prediction is a part of the context; "" means none.

    A context longer than the model takes is cut into overlapping windows, and the best answer of all windows counts. An
    empty answer is one whose beginning and end are the first token.
    """

    tasks = ("question-answering",)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Question:
        question, context = (str(text_of(row, key, position)) for key in ("question", "context"))
        answers = row.get("answers")
        if not isinstance(answers, list) or not all(isinstance(answer, str) and answer for answer in answers):
            raise InputError(
                f"{position}: `answers` must be a list of texts",
                "a question without answer has `answers: []`",
            )
        return Question(question, context, tuple(answers))

    @classmethod
    def identity(cls, item: Question) -> Hashable:
        return plain(item.question), plain(item.context)

    def inputs(self, items: Sequence[Question]) -> list[ModelInput]:
        if not items:
            return []
        tokenizer, names = copy.deepcopy(self.subject.loaded.text_reader), tuple(self.subject.sample.feeds[0])
        tokenizer.truncation_side = tokenizer.padding_side = "right"
        stride = min(STRIDE, self.max_length // 4)
        questions = [item.question for item in items]
        self._check_room(tokenizer, questions, stride)
        encoded = tokenizer(
            questions,
            [item.context for item in items],
            truncation="only_second",
            max_length=self.max_length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids="token_type_ids" in names,
        )
        owners = encoded["overflow_to_sample_mapping"]
        return [
            ModelInput(
                owner,
                {name: np.asarray([encoded[name][number]], dtype=np.int64) for name in names},
                _context_offsets(encoded, number),
            )
            for number, owner in enumerate(owners)
        ]

    def _check_room(self, tokenizer: Any, questions: Sequence[str], stride: int) -> None:
        """Raise InputError if a question leaves no more tokens for its context than two windows share."""
        encoded = tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"]
        room = self.max_length - tokenizer.num_special_tokens_to_add(True)
        for number, tokens in enumerate(encoded, start=1):
            if room - len(tokens) <= stride:
                raise InputError(
                    f"item {number} of the evaluation suite: the question has {len(tokens)} tokens, which leaves too "
                    f"little room for its context in {self.max_length}",
                    "shorten the question, or state a larger max_seq_length",
                )

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> tuple[AnswerSpan, float]:
        """The best answer, and the score of none: both logits of the first token."""
        start, end = (output(outputs, f"{name}_logits") for name in ("start", "end"))
        return best_span(start.astype(np.float64), end.astype(np.float64), model_input.context), float(
            start[0] + end[0]
        )

    def prediction(self, item: Question, parts: Sequence[tuple[AnswerSpan, float]]) -> str:
        best = max((candidate for candidate, _ in parts), key=lambda candidate: candidate.score)
        return "" if min(score for _, score in parts) > best.score else item.context[best.start : best.end]


def _context_offsets(encoded: Any, number: int) -> Any:
    """The range of characters of each token, int64 `[tokens, 2]`; -1 for a token that is not of the context."""
    offsets = np.asarray(encoded["offset_mapping"][number], dtype=np.int64).reshape(-1, 2)
    outside = np.array([part != 1 for part in encoded.sequence_ids(number)])
    return np.where(outside[:, None], -1, offsets)


def best_span(start: Any, end: Any, offsets: Any) -> AnswerSpan:
    """The pair of tokens of the context with the largest sum of logits, the end not before the beginning."""
    tokens = np.flatnonzero(offsets[:, 0] >= 0)
    if not len(tokens):
        return AnswerSpan(float("-inf"), 0, 0)
    sums = start[tokens][:, None] + end[tokens][None]
    distance = np.arange(len(tokens))[None] - np.arange(len(tokens))[:, None]
    sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    return AnswerSpan(float(sums[first, last]), int(offsets[tokens[first], 0]), int(offsets[tokens[last], 1]))
