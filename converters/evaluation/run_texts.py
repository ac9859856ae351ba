"""Run an artifact on texts; the inputs and outputs of the graph decide the kind of answer.

A token classifier tags spans, a text classifier scores classes, a graph with `start_logits` and `end_logits` answers
questions; other graphs give vectors or text. Spans and answers are decoded as in an
evaluation. Scores of classes are made as in pipelines of transformers: by the sigmoid if several classes may be
right at once, or there is only one; unchanged for a regression; otherwise by the softmax.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.evaluators import STRIDE, AnswerSpan, best_span, output, tags_of
from onnxreg.converters.evaluation.metric import Floats
from onnxreg.converters.evaluation.predict import Runner, artifact_runner
from onnxreg.converters.evaluation.tokens import TextTokenizer, TokenRow, decode, runs, tag_scheme
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.source_files import GENAI_CONFIG
from onnxreg.converters.tasks.greedy import positions_of
from onnxreg.converters.tasks.task_catalog import ALIASES
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, InputError

PER_TOKEN = ("logits", "start_logits", "end_logits", "last_hidden_state", "token_embeddings")
"""Outputs with a value for each token: a graph of fixed shape also gives values for padding."""
OF_TEXTS = ("embeddings", "sentence_embedding", "text_embeds")
OF_TOKENS = ("last_hidden_state", "token_embeddings")
"""Outputs with a vector for each token; if a graph has several, the first name counts."""
Answer = dict[str, Any]
"""A JSON object with the documented keys of `reg run --text --json`."""


@dataclass(frozen=True)
class TextModel:
    """An ONNX or ORT-format file, a tokenizer, labels in the order of the logits, the checkpoint's config.json.

    Without labels or a config, `labels` or `config` is empty.
    """

    graph: Path
    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def runner(self) -> Runner:
        """The loaded graph. Raise ConversionError if ONNX Runtime cannot load the graph."""
        padding = self.config.get("pad_token_id")
        return artifact_runner(self.graph, PER_TOKEN, padding if isinstance(padding, int) else 0)

    def run(self, feed: Feed) -> Mapping[str, Any]:
        """The outputs for one row. InputError for a row without tokens; ConversionError if the graph does not run."""
        if not feed["input_ids"].size:
            raise InputError("the text has no tokens", "write a text that is not empty")
        try:
            return self.runner(feed)
        except ConversionError as error:
            hint = error.hint or error.message
            raise ConversionError(f"{self.graph.name} does not run on that text", hint) from error


def run_texts(
    model: TextModel,
    texts: Sequence[str],
    context: str | None = None,
    max_tokens: int = 32,
    task: str | None = None,
) -> Answer:
    """Run a graph on texts.

    Args:
        texts: one text, or several texts for vectors.
        context: the text that a question is about, or the second text of a pair.
        max_tokens: the most tokens that text generation adds.
        task: the version's task, for a graph whose inputs and outputs do not decide the kind of answer.

    Returns:
        One of `{spans}`, `{classes, activation, truncated}`, `{answer}`, `{embeddings, pooling, prompt?, similarity}`,
        `{completion}`, in JSON form.

    Raise InputError if the texts do not fit the kind of graph; ConversionError if the graph does not run.
    """
    if model.runner.length is not None:
        model.tokenizer.max_length = min(model.tokenizer.max_length, model.runner.length)
    gives, task, name = model.runner.gives, ALIASES.get(task or "", task), model.graph.name
    is_answering = {"start_logits", "end_logits"} <= gives.keys()
    is_classifier = gives.get("logits") == 2 or (gives.get("logits") == 0 and task == "text-classification")
    if is_answering and context is None:
        raise InputError("a question needs the text that it is about", "add it: --context TEXT")
    if context is not None and not (is_answering or is_classifier):
        raise InputError(
            f"{name} takes no second text",
            "it answers no questions and compares no texts: leave --context out",
        )
    if len(texts) != 1 and (is_answering or is_classifier or "logits" in gives):
        raise InputError(
            "this model takes one text at a time", "several are compared by models that give embeddings"
        )
    if is_answering:
        return {"answer": _answer(model, texts[0], context or "")}
    if is_classifier:
        return _classes(model, texts[0], context)
    if "logits" not in gives:
        return _vectors(model, texts)
    if task == "text-generation" or model.runner.has_past:
        return {"completion": _completion(model, texts[0], max_tokens)}
    if not model.labels:
        raise refuse(name, "gives a value for each token, and its version has no labels for them")
    return {"spans": _spans(model, texts[0])}


def refuse(label: str, why: str) -> InputError:
    """Make the error for a version that cannot run on texts."""
    return InputError(f"{label} {why}", "run it on tensors: --input")


def _classes(model: TextModel, text: str, pair: str | None) -> Answer:
    """The classes of a text; see `classes_of`."""
    row = model.tokenizer.row(text, pair)
    logits = _numbers(model.run(row.inputs), "logits")
    return {**classes_of(logits, model.labels, model.config, model.graph.name), "truncated": row.is_cut}


def classes_of(logits: Floats, labels: Sequence[str], config: Mapping[str, Any], name: str) -> Answer:
    """The classes with their scores, the best first. ConversionError, naming the graph, for another number of labels."""
    labels = labels or tuple(f"LABEL_{number}" for number in range(len(logits)))
    if len(labels) != len(logits):
        raise ConversionError(
            f"{name} gives {len(logits)} logits, and the version has {len(labels)} labels",
            "the number of labels in config.json must be the number of logits",
        )
    problem, activation, scores = config.get("problem_type"), "softmax", _softmax(logits)
    if problem == "regression":
        activation, scores = "none", logits
    elif problem == "multi_label_classification" or len(logits) == 1:
        activation, scores = "sigmoid", 1 / (1 + np.exp(-logits))
    order = np.argsort(-scores, kind="stable")
    classes = [{"label": labels[number], "score": float(scores[number])} for number in order]
    return {"classes": classes, "activation": activation}


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _spans(model: TextModel, text: str) -> list[Answer]:
    """The spans of a text, in order. A text longer than the model's input is cut into overlapping windows."""
    scheme, windows = tag_scheme(model.labels), list(model.tokenizer.windows(text))
    if not any(len(window.positions) for window in windows):
        return []
    parts = [tags_of(window, model.run(window.inputs), len(model.labels)) for window in windows]
    tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return [
        {"start": start, "end": end, "label": scheme.names[label], "text": text[start:end]}
        for start, end, label in runs(decode(tags, offsets, len(text), scheme))
    ]


def _answer(model: TextModel, question: str, context: str) -> Answer | None:
    """Return the best answer in all windows of the context; None if "no answer" has a higher score in every window."""
    windows = model.tokenizer.pair_windows(question, context, STRIDE)
    read = [_read_window(model, row) for row in windows]
    best, score, _ = max(read, key=lambda item: item[0].score)
    if best.end <= best.start or min(nothing for _, _, nothing in read) > best.score:
        return None
    return {"text": context[best.start : best.end], "start": best.start, "end": best.end, "score": score}


def _read_window(model: TextModel, row: TokenRow) -> tuple[AnswerSpan, float, float]:
    """Return the best answer in a window, its probability, and the score of no answer (the sum of the first token's logits)."""
    outputs = model.run(row.inputs)
    logits = [_numbers(outputs, f"{name}_logits") for name in ("start", "end")]
    best, is_context, probability = best_span(logits[0], logits[1], row), row.sequences == 1, 1.0
    for side, (values, offset) in enumerate(zip(logits, (best.start, best.end), strict=True)):
        chosen = row.offsets[is_context][:, side] == offset
        probability *= float(_softmax(values[is_context])[chosen].max()) if chosen.any() else 0.0
    return best, probability, float(logits[0][0] + logits[1][0])


def _completion(model: TextModel, prompt: str, max_tokens: int) -> Answer:
    """Continue a prompt greedily by at most `max_tokens` tokens; `finish` is `end` if the model ended the text, or `length`."""
    path, settings = model.graph.parent / GENAI_CONFIG, model.config
    if path.is_file():
        value = canonical.decode(path.read_bytes(), GENAI_CONFIG)
        settings = value.get("model", {}) if isinstance(value, dict) else {}
    ends = settings.get("eos_token_id")
    prompt_ids = model.tokenizer.whole(prompt).inputs["input_ids"][0].tolist()
    ids, finish, limits = list(prompt_ids), "length", [len(prompt_ids) + max_tokens]
    if (positions := positions_of(model.config)) is not None:
        limits.append(positions + 1)  # the last position gives one more token
    while len(ids) < min(limits):
        feed = np.asarray([ids], dtype=np.int64)
        outputs = model.run({"input_ids": feed, "attention_mask": np.ones_like(feed)})
        token = int(_numbers(outputs, "logits")[-1].argmax())
        if token in (ends if isinstance(ends, list) else [ends]):
            finish = "end"
            break
        ids.append(token)
    start, text = model.tokenizer.text(prompt_ids), model.tokenizer.text(ids)
    added = (
        text.removeprefix(start) if text.startswith(start) else model.tokenizer.text(ids[len(prompt_ids) :])
    )
    return {"text": added, "tokens": len(ids) - len(prompt_ids), "finish": finish}


def _vectors(model: TextModel, texts: Sequence[str]) -> Answer:
    """Return each text's vector, after the default prompt. If the graph gives token vectors, return them too, and use their mean."""
    prompts, name = model.config.get("prompts"), model.config.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    prompt = prompt if isinstance(prompt, str) else ""
    rows, items, pooling = [], [], "graph"
    for text in texts:
        row = model.tokenizer.row(prompt + text)
        outputs = model.run(row.inputs)
        tokens: Answer = {}
        if (chosen := _chosen(outputs, 2, OF_TEXTS)) is not None:
            vector = _numbers(outputs, chosen)
        elif (chosen := _chosen(outputs, 3, OF_TOKENS)) is not None:
            states, pooling = _numbers(outputs, chosen), "mean"
            vector = states[row.inputs["attention_mask"][0].astype(bool)].mean(axis=0)
            parts = zip(row.tokens, row.offsets.tolist(), states.tolist(), strict=True)
            tokens["tokens"] = [
                {"token": token, "start": start, "end": end, "vector": own}
                for token, (start, end), own in parts
            ]
        else:
            raise ConversionError(f"{model.graph.name} gives no vectors: {', '.join(outputs)}")
        rows.append(vector)
        items.append({"text": text, "vector": vector.tolist(), "truncated": row.is_cut, **tokens})
    stacked = np.stack(rows)
    units = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    shown = {"prompt": prompt} if prompt else {}
    return {"embeddings": items, "pooling": pooling, **shown, "similarity": (units @ units.T).tolist()}


def _numbers(outputs: Mapping[str, Any], name: str) -> Floats:
    return np.asarray(output(outputs, name), dtype=np.float64)


def _chosen(outputs: Mapping[str, Any], axes: int, names: Sequence[str]) -> str | None:
    """Return the name of an output whose row has `axes` axes: the first of `names`, else the graph's only output."""
    fitting = [name for name, array in outputs.items() if array.ndim == axes and array.shape[0] == 1]
    named = [name for name in names if name in fitting]
    if named:
        return named[0]
    return fitting[0] if len(outputs) == len(fitting) == 1 else None
