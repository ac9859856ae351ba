"""An artifact on texts: the kind of answer that its graph gives, decided by its inputs and outputs.

A token classifier tags spans, a text classifier scores classes, a graph with `start_logits` and `end_logits` answers
questions; the others give vectors or text. Spans and answers are decoded as in an
evaluation. Scores of classes are made as pipelines of transformers make them: by the sigmoid if the classes do not
exclude each other, or there is only one; not at all for a regression; otherwise by the softmax.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING, decode, tag_scheme
from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.evaluation.tasks.extractive_answers import STRIDE, AnswerSpan, best_span
from onnxreg.converters.evaluation.tasks.token_spans import TokenWindow, kept_tokens, tags_of
from onnxreg.converters.source.source_files import GENAI_CONFIG
from onnxreg.converters.tasks.task_catalog import ALIASES
from onnxreg.converters.texts.text_model import TextModel, TextTokenizer, TokenRow, numbers_of, refuse
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, InputError

TEXT_OUTPUTS = ("embeddings", "sentence_embedding", "text_embeds")
OF_TOKENS = ("last_hidden_state", "token_embeddings")
"""Outputs that are taken if a graph has several, the first choice first."""


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


@dataclass(frozen=True)
class GreedyCompletion:
    """The text that follows a prompt; `finish` is `end` if the model ended it, `length` if the limit did."""

    text: str
    tokens: int
    finish: str

    def to_json(self) -> dict[str, Any]:
        return {"completion": {"text": self.text, "tokens": self.tokens, "finish": self.finish}}


@dataclass(frozen=True)
class TextVector:
    """A text's vector, float64 `[size]`; if the graph gives one for each token, those too, `[tokens, size]`."""

    text: str
    vector: Floats
    row: TokenRow
    tokens: Floats | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"text": self.text, "vector": self.vector.tolist(), "truncated": self.row.is_cut}
        if self.tokens is None:
            return value
        parts = zip(self.row.tokens, self.row.offsets.tolist(), self.tokens.tolist(), strict=True)
        return value | {
            "tokens": [
                {"token": token, "start": start, "end": end, "vector": vector}
                for token, (start, end), vector in parts
            ]
        }


@dataclass(frozen=True)
class TextVectors:
    """The vectors of texts. `pooling` is `graph`, or `mean` if it is over the tokens that the graph gives.

    `prompt` is the text of the model that was put before each of them.
    """

    vectors: tuple[TextVector, ...]
    pooling: str
    prompt: str = ""

    @property
    def similarity(self) -> Floats:
        """The cosine of each text with each, float64 `[texts, texts]`."""
        rows = np.stack([item.vector for item in self.vectors])
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return np.asarray(units @ units.T)

    def to_json(self) -> dict[str, Any]:
        embeddings = [item.to_json() for item in self.vectors]
        prompt = {"prompt": self.prompt} if self.prompt else {}
        return {
            "embeddings": embeddings,
            "pooling": self.pooling,
            **prompt,
            "similarity": self.similarity.tolist(),
        }


TextAnswer = list[TaggedSpan] | ClassScores | ContextAnswer | TextVectors | GreedyCompletion | None
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
            raise InputError("a question needs the text that it is about", "add it: --context TEXT")
        return answer_question(model, _one(texts), context)
    is_classifier = gives.get("logits") == 2 or (gives.get("logits") == 0 and task == "text-classification")
    if context is not None and not is_classifier:
        raise InputError(
            f"{model.graph.name} takes no second text",
            "it answers no questions and compares no texts: leave --context out",
        )
    if is_classifier:
        return classify_text(model, _one(texts), context)
    if "logits" not in gives:
        return embed(model, texts)
    if task == "text-generation" or model.runner.has_past:
        return complete(model, _one(texts), max_tokens)
    if not model.labels:
        raise refuse(model.graph.name, "gives a value for each token, and its version has no labels for them")
    return tag_spans(model, _one(texts))


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


def complete(model: TextModel, prompt: str, max_tokens: int) -> GreedyCompletion:
    """Continue a prompt by at most so many tokens, greedily.

    Raise InputError for a prompt without tokens; ConversionError if the graph does not run.
    """
    prompt_ids = model.tokenizer.ids(prompt)
    ends, ids, finish = _ends(model), list(prompt_ids), "length"
    while len(ids) < len(prompt_ids) + max_tokens:
        feed = np.asarray([ids], dtype=np.int64)
        outputs = model.run({"input_ids": feed, "attention_mask": np.ones_like(feed)})
        token = int(numbers_of(outputs, "logits")[-1].argmax())
        if token in ends:
            finish = "end"
            break
        ids.append(token)
    start, text = model.tokenizer.text(prompt_ids), model.tokenizer.text(ids)
    added = (
        text.removeprefix(start) if text.startswith(start) else model.tokenizer.text(ids[len(prompt_ids) :])
    )
    return GreedyCompletion(added, len(ids) - len(prompt_ids), finish)


def embed(model: TextModel, texts: Sequence[str]) -> TextVectors:
    """The vectors of texts, each after the model's default prompt; what is longer than the model takes is cut at its end.

    Raise ConversionError if the graph does not run, or gives no vectors.
    """
    prompts, name = model.config.get("prompts"), model.config.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    prompt = prompt if isinstance(prompt, str) else ""
    vectors = tuple(_vector(model, text, prompt) for text in texts)
    return TextVectors(vectors, "graph" if vectors[0].tokens is None else "mean", prompt)


def _one(texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise InputError(
            "this model takes one text at a time", "several are compared by models that give embeddings"
        )
    return texts[0]


def _activation(config: Mapping[str, Any], count: int) -> str:
    problem = config.get("problem_type")
    if problem == "regression":
        return "none"
    return "sigmoid" if problem == "multi_label_classification" or count == 1 else "softmax"


def _spans(text: str, labels: Sequence[int], names: Sequence[str]) -> Iterator[TaggedSpan]:
    for label, group in groupby(range(len(text)), key=lambda index: labels[index]):
        indices = list(group)
        if label != NOTHING:
            start, end = indices[0], indices[-1] + 1
            yield TaggedSpan(start, end, names[label], text[start:end])


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


def _ends(model: TextModel) -> set[int]:
    """The tokens that end a text, of onnxruntime-genai's settings beside the graph, else of the config."""
    path: Path = model.graph.parent / GENAI_CONFIG
    settings: Mapping[str, Any] = model.config
    if path.is_file():
        value = canonical.decode(path.read_bytes(), GENAI_CONFIG)
        settings = value.get("model", {}) if isinstance(value, dict) else {}
    ends = settings.get("eos_token_id")
    return {end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)}


def _vector(model: TextModel, text: str, prompt: str) -> TextVector:
    row = model.tokenizer.row(prompt + text)
    outputs = model.run(row.inputs)
    name = _chosen(outputs, 2, TEXT_OUTPUTS)
    if name is not None:
        return TextVector(text, numbers_of(outputs, name), row)
    name = _chosen(outputs, 3, OF_TOKENS)
    if name is None:
        raise ConversionError(f"{model.graph.name} gives no vectors: {', '.join(outputs)}")
    tokens = numbers_of(outputs, name)
    mask = row.inputs["attention_mask"][0].astype(bool)
    return TextVector(text, tokens[mask].mean(axis=0), row, tokens)


def _chosen(outputs: Mapping[str, Any], axes: int, names: Sequence[str]) -> str | None:
    """The output of one row with so many axes: one of these names, else the only one if it has none of tokens."""
    fitting = [name for name, array in outputs.items() if array.ndim == axes and array.shape[0] == 1]
    named = [name for name in names if name in fitting]
    if named:
        return named[0]
    return fitting[0] if len(outputs) == len(fitting) == 1 else None
