"""The tasks of text models but token classification: classes, answers, vectors, completions."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np

from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.evaluation.suite import Word
from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TaskEvaluator,
    numbers,
    output,
    plain,
)
from onnxreg.converters.evaluation.tokens import TextTokenizer, TokenRow
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.checkpoints.checkpoint import load_tokenizer
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError

MAX_ANSWER_TOKENS = 30
"""Tokens of the longest answer, as in the example scripts of Transformers."""
STRIDE = 128
"""Tokens that two windows of one context share, if the model's length allows."""
MAX_TOKENS = 2048
"""Tokens of a prompt and its completion together."""


class LabelledText(msgspec.Struct, frozen=True):
    """A text, maybe with a second one, and the label that is right."""

    text: Word
    label: Word
    text_pair: Word | None = None


class TextClasses(TaskEvaluator):
    """`{text, text_pair?, label}`. A prediction is the number of the class with the largest logit."""

    tasks = ("text-classification",)
    Item = LabelledText

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.subject.loaded.labels)

    @classmethod
    def identity(cls, item: LabelledText) -> Hashable:
        return tuple(plain(text) for text in (item.text, item.text_pair or ""))

    def check(self, items: Sequence[LabelledText]) -> None:
        for number, item in enumerate(items, start=1):
            if item.label not in self.labels:
                raise InputError(
                    f"item {number} of the evaluation suite has a label that the model does not have: {item.label[:80]!r}",
                    f"its labels are {', '.join(self.labels[:20])}",
                )
        if len({item.text_pair is None for item in items}) > 1:
            raise InputError("some items of the evaluation suite have a `text_pair`, and others have none")

    def inputs(self, items: Sequence[LabelledText]) -> list[ModelInput]:
        tokenizer, names = self.tokenizer, self.subject.sample.feeds[0]
        rows = (tokenizer.row(item.text, item.text_pair) for item in items)
        return [ModelInput(number, _feed(row, names)) for number, row in enumerate(rows)]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> int:
        return int(numbers(output(outputs, "logits", (len(self.labels),))).argmax())


def _feed(row: TokenRow, names: Mapping[str, Any]) -> Feed:
    return {name: row.inputs[name] for name in names}


class Question(msgspec.Struct, frozen=True):
    """A question about a context, with every right answer; none if the context has no answer."""

    question: Word
    context: Word
    answers: tuple[Word, ...]


class AnswerSpan(msgspec.Struct, frozen=True):
    """The best answer in one window: its score (the sum of two logits), and its half-open range of characters."""

    score: float
    start: int
    end: int


class Answers(TaskEvaluator):
    """`{question, context, answers: [text]}`. A prediction is a part of the context; "" means none.

    A context longer than the model takes is cut into overlapping windows, and the best answer of all windows counts. An
    empty answer is one whose beginning and end are the first token.
    """

    tasks = ("question-answering",)
    Item = Question

    @classmethod
    def identity(cls, item: Question) -> Hashable:
        return plain(item.question), plain(item.context)

    def inputs(self, items: Sequence[Question]) -> list[ModelInput]:
        tokenizer, names, inputs = self.tokenizer, self.subject.sample.feeds[0], []
        for number, item in enumerate(items):
            try:
                rows = list(tokenizer.pair_windows(item.question, item.context, STRIDE))
            except InputError as error:
                label = f"item {number + 1} of the evaluation suite"
                raise InputError(f"{label}: {error.message}", error.hint) from error
            inputs += [ModelInput(number, _feed(row, names), row) for row in rows]
        return inputs

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> tuple[AnswerSpan, float]:
        start, end = (
            output(outputs, f"{name}_logits").astype(np.float64, copy=False) for name in ("start", "end")
        )
        return best_span(start, end, model_input.context), float(start[0] + end[0])

    def prediction(self, item: Question, parts: Sequence[tuple[AnswerSpan, float]]) -> str:
        best = max((candidate for candidate, _ in parts), key=lambda candidate: candidate.score)
        return "" if min(score for _, score in parts) > best.score else item.context[best.start : best.end]


def best_span(start: Any, end: Any, row: TokenRow) -> AnswerSpan:
    """The pair of tokens of the second text with the largest sum of logits, the end not before the beginning."""
    tokens = np.flatnonzero(row.sequences == 1)
    if not len(tokens):
        return AnswerSpan(float("-inf"), 0, 0)
    sums = start[tokens][:, None] + end[tokens][None]
    distance = np.arange(len(tokens))[None] - np.arange(len(tokens))[:, None]
    sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    (begin, _), (_, stop) = row.offsets[tokens[first]], row.offsets[tokens[last]]
    return AnswerSpan(float(sums[first, last]), int(begin), int(stop))


class Document(msgspec.Struct, frozen=True):
    """A text, and how relevant it is to another one."""

    text: Word
    relevance: Annotated[float, msgspec.Meta(ge=0)]


class Texts(msgspec.Struct, frozen=True):
    """Texts to compare with the first: a pair with its `score`, or documents with the `relevance` of each.

    A text alone has neither.
    """

    texts: tuple[str, ...]
    score: float | None = None
    relevance: tuple[float, ...] | None = None


class _TextsRow(msgspec.Struct, frozen=True):
    text: Word
    text_pair: Word | None = None
    score: float | None = None
    documents: Annotated[tuple[Document, ...], msgspec.Meta(min_length=2, max_length=1000)] | None = None


class Embeddings(TaskEvaluator):
    """`{text, text_pair, score}`, `{text, documents: [{text, relevance}]}` or `{text}`.

    A prediction is float64 `[texts, size]`. Of the output `last_hidden_state` it is the mean over the tokens.
    """

    tasks = ("pooling", "feature-extraction")
    Item = Texts

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Texts:
        item = convert(row, _TextsRow, position)
        if item.documents is not None:
            relevance = tuple(document.relevance for document in item.documents)
            if not any(relevance):
                raise InputError(f"{position}: no document is relevant")
            return Texts((item.text, *(document.text for document in item.documents)), relevance=relevance)
        if (item.text_pair is None) != (item.score is None):
            raise InputError(f"{position}: a pair has both `text_pair` and `score`")
        return Texts((item.text,) if item.text_pair is None else (item.text, item.text_pair), item.score)

    @classmethod
    def identity(cls, item: Texts) -> Hashable:
        return frozenset(map(plain, item.texts))

    def inputs(self, items: Sequence[Texts]) -> list[ModelInput]:
        tokenizer, names = self.tokenizer, self.subject.sample.feeds[0]
        prompt = self.subject.resolved_options.get("pooling", {}).get("prompt", "")
        return [
            ModelInput(number, _feed(tokenizer.row(prompt + text), names))
            for number, item in enumerate(items)
            for text in item.texts
        ]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Floats:
        if "embeddings" in outputs:
            return np.asarray(output(outputs, "embeddings"), dtype=np.float64)
        states = output(outputs, "last_hidden_state")
        mask = model_input.feed["attention_mask"][0].astype(bool)
        return np.asarray(states[mask].astype(np.float64).mean(axis=0))

    def prediction(self, item: Texts, parts: Sequence[Floats]) -> Floats:
        return np.stack(parts)


class Completion(msgspec.Struct, frozen=True):
    """A prompt, if there is one, and the text that follows it."""

    completion: Word
    prompt: str | None = None


class Likelihood(msgspec.Struct, frozen=True):
    """The negative log-likelihood of a completion in nats, its tokens, the size of the vocabulary.

    `is_greedy`: every token of the completion has the largest logit.
    """

    nats: float
    tokens: int
    vocabulary: int
    is_greedy: bool


class Completions(TaskEvaluator):
    """`{prompt?, completion}`. A prediction is the `Likelihood` of the completion."""

    tasks = ("text-generation",)
    Item = Completion

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        return TextTokenizer(load_tokenizer(self.subject.start, False).backend_tokenizer, MAX_TOKENS)

    @classmethod
    def identity(cls, item: Completion) -> Hashable:
        return plain((item.prompt or "") + item.completion)

    def inputs(self, items: Sequence[Completion]) -> list[ModelInput]:
        return [self._input(number, item) for number, item in enumerate(items)]

    def _input(self, number: int, item: Completion) -> ModelInput:
        """The tokens of the whole text; those that begin after the prompt are the completion's, but never the first."""
        label, prompt = f"item {number + 1} of the evaluation suite", item.prompt or ""
        row = self.tokenizer.whole(prompt + item.completion)
        if len(row.tokens) > MAX_TOKENS:
            raise InputError(f"{label} has {len(row.tokens)} tokens, at most {MAX_TOKENS} are read")
        offsets = row.offsets.tolist()
        scored = [at for at, (start, end) in enumerate(offsets) if at and end > start and end > len(prompt)]
        if not scored:
            raise InputError(f"{label} has a completion without a token to score")
        return ModelInput(number, {"input_ids": row.inputs["input_ids"]}, np.array(scored))

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Likelihood:
        scored = model_input.context
        logits = output(outputs, "logits")[scored - 1].astype(np.float64)
        tokens = model_input.feed["input_ids"][0, scored]
        own = logits[np.arange(len(tokens)), tokens]
        largest = logits.max(axis=1)
        nats = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - own
        return Likelihood(float(nats.sum()), len(tokens), logits.shape[1], bool((own == largest).all()))
