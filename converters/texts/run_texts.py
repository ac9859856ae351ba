"""An artifact on texts: the kind of answer that its graph gives, decided by its inputs and outputs.

A token classifier tags spans, a text classifier scores classes, a graph with `start_logits` and `end_logits` answers
questions; the others give vectors (`vectors`) or text (`completion`). Spans and answers are decoded as in an
evaluation. Scores of classes are made as pipelines of transformers make them: by the sigmoid if the classes do not
exclude each other, or there is only one; not at all for a regression; otherwise by the softmax.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING, decode, tag_scheme
from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.evaluation.tasks.extractive_answers import STRIDE, AnswerSpan, best_span
from onnxreg.converters.evaluation.tasks.token_spans import tags_of
from onnxreg.converters.evaluation.windows import TokenWindow, kept_tokens
from onnxreg.converters.tasks.task_catalog import ALIASES
from onnxreg.converters.texts import completion, vectors
from onnxreg.converters.texts.text_model import TextModel, numbers_of, refuse
from onnxreg.converters.texts.text_tokenizer import TextTokenizer, TokenRow
from onnxreg.schema.core.errors import Advice, InputError


@dataclass(frozen=True)
class TaggedSpan:
    """A labelled part of a text: half-open, in code points."""

    start: int
    end: int
    label: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "label": self.label, "text": self.text}


@dataclass(frozen=True)
class ClassScores:
    """Labels with their scores, the best first; `activation` is softmax, sigmoid or none."""

    scores: tuple[tuple[str, float], ...]
    activation: str
    is_cut: bool

    def to_json(self) -> dict[str, Any]:
        classes = [{"label": label, "score": score} for label, score in self.scores]
        return {"classes": classes, "activation": self.activation, "truncated": self.is_cut}


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


TextAnswer = (
    list[TaggedSpan] | ClassScores | ContextAnswer | vectors.TextVectors | completion.GreedyCompletion | None
)
"""Spans of a token classifier, scores of a text classifier, a part of a context (None: no answer), vectors, or
the text that follows."""


def run_texts(
    model: TextModel,
    texts: Sequence[str],
    context: str | None = None,
    max_tokens: int = 32,
    task: str | None = None,
) -> TextAnswer:
    """Run a graph on texts.

    Args:
        texts: one, or several for vectors.
        context: the text that a question is about, or the second text of a pair.
        task: the version's, for a graph that does not say enough by itself.

    Raise InputError if the texts do not fit the kind of graph; ConversionError if the graph does not run.
    """
    model.tokenizer.limit(model.runner.length)
    gives, task = model.runner.gives, ALIASES.get(task or "", task)
    if {"start_logits", "end_logits"} <= gives.keys():
        if context is None:
            raise InputError("a question needs the text that it is about", Advice("add-context"))
        return answer_question(model, _one(texts), context)
    is_classifier = gives.get("logits") == 2 or (gives.get("logits") == 0 and task == "text-classification")
    if context is not None and not is_classifier:
        raise InputError(f"{model.graph.name} takes no second text", Advice("omit-context"))
    if is_classifier:
        return classify_text(model, _one(texts), context)
    if "logits" not in gives:
        return vectors.embed(model, texts)
    if task == "text-generation" or model.runner.has_past:
        return completion.complete(model, _one(texts), max_tokens)
    if not model.labels:
        raise refuse(model.graph.name, "gives a value for each token, and its version has no labels for them")
    return tag_spans(model, _one(texts))


def _one(texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise InputError(
            "this model takes one text at a time", "several are compared by models that give embeddings"
        )
    return texts[0]


def classify_text(model: TextModel, text: str, pair: str | None = None) -> ClassScores:
    """The classes of a text. ConversionError if the graph does not run, or does not match the labels."""
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


def tag_spans(model: TextModel, text: str) -> list[TaggedSpan]:
    """The spans of a text, in order. A text longer than the model takes is cut into overlapping windows.

    Args:
        model: an ONNX or ORT-format token classifier with the output `logits`; its labels are tags.

    Raises ConversionError if the graph does not load, or fits neither tokenizer nor labels.
    """
    scheme = tag_scheme(model.labels)
    cut = list(text_windows(model.tokenizer, text))
    if not any(len(window.positions) for window in cut):
        return []
    outputs = [model.run(window.inputs) for window in cut]
    shapes = [(1, len(window.offsets), len(model.labels)) for window in cut]
    parts = [tags_of(*window) for window in zip(cut, outputs, shapes, strict=True)]
    tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return list(_spans(text, decode(tags, offsets, len(text), scheme).tolist(), scheme.names))


def _spans(text: str, labels: Sequence[int], names: Sequence[str]) -> Iterator[TaggedSpan]:
    for label, group in groupby(range(len(text)), key=lambda index: labels[index]):
        indices = list(group)
        if label != NOTHING:
            start, end = indices[0], indices[-1] + 1
            yield TaggedSpan(start, end, names[label], text[start:end])


def text_windows(tokenizer: TextTokenizer, text: str) -> Iterator[TokenWindow]:
    """Cut a text into windows, as `evaluation.windows` does with a tokenizer of Transformers."""
    rows, overlap = list(tokenizer.windows(text)), tokenizer.overlap()
    for number, row in enumerate(rows):
        positions = kept_tokens(row.special, overlap, number > 0, number + 1 < len(rows))
        yield TokenWindow(0, row.inputs, row.offsets, positions)


def answer_question(model: TextModel, question: str, context: str) -> ContextAnswer | None:
    """The best answer of all windows of the context; None if the first token alone scores higher everywhere.

    Raise InputError if the question leaves no room for its context; ConversionError if the graph does not run.
    """
    stride = min(STRIDE, model.tokenizer.max_length // 4)
    read = [_read_window(model, row) for row in model.tokenizer.pair_windows(question, context, stride)]
    best, score, _ = max(read, key=lambda item: item[0].score)
    if best.end <= best.start or min(nothing for _, _, nothing in read) > best.score:
        return None
    return ContextAnswer(context[best.start : best.end], best.start, best.end, score)


def _read_window(model: TextModel, row: TokenRow) -> tuple[AnswerSpan, float, float]:
    """The best answer in a window, its probability, and the score of none: both logits of the first token."""
    outputs = model.run(row.inputs)
    start, end = (numbers_of(outputs, f"{name}_logits") for name in ("start", "end"))
    offsets = np.where((row.sequences != 1)[:, None], -1, row.offsets)
    best, is_context = best_span(start, end, offsets), offsets[:, 0] >= 0
    probability = _probability(start, is_context & (offsets[:, 0] == best.start), is_context)
    probability *= _probability(end, is_context & (offsets[:, 1] == best.end), is_context)
    return best, probability, float(start[0] + end[0])


def _probability(logits: Floats, chosen: Any, among: Any) -> float:
    """The largest probability of the chosen tokens among some; 0 if there are none."""
    if not chosen.any():
        return 0.0
    return float(activate(logits[among], "softmax")[chosen[among]].max())
