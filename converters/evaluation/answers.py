"""The answers of `reg run` to texts, images and sounds. The task or the outputs decide the kind of answer.

An image or a sound (`run_numbers`) gives:

| output | answer |
|---|---|
| `logits` and `pred_boxes` | objects with their boxes, as shares of the image |
| `predicted_depth` | the depth of each pixel |
| `logits` with four axes | the label of each pixel, and the share of each label |
| `logits` with three axes | the spoken words, from the tokens of CTC |
| `logits` with two axes | classes |
| another output | a vector |

An image with texts (`run_named`) gives the objects that the texts name. With `logits_per_image`, texts are classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation import decoding
from onnxreg.converters.evaluation.decoding import output, sigmoid, softmax
from onnxreg.converters.evaluation.predict import Run, Runner, artifact_runner, pad
from onnxreg.converters.evaluation.tokens import Floats, TextTokenizer
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.source_files import GENAI_CONFIG, read_object
from onnxreg.converters.tasks.generation import positions_of
from onnxreg.converters.tasks.task import ALIASES
from onnxreg.schema.core.errors import ConversionError, InputError

PER_TOKEN = ("start_logits", "end_logits")
"""The outputs with two axes that have a number for each token. A graph of fixed shapes gives them padded."""
LEAST_SCORE, LEAST_NAMED_SCORE = 0.5, 0.1  # of objects of a class, and of objects that a text names
KINDS = {
    "question-answering": "answer",
    "text-classification": "classes",
    "token-classification": "spans",
    "text-generation": "completion",
    "text-to-audio": "sound",
    **dict.fromkeys(("pooling", "feature-extraction"), "embeddings"),
}
Answer = dict[str, Any]


@dataclass(frozen=True)
class TextModel:
    """A graph file, and what it needs for texts. `labels` are in the order of the logits; `config` is config.json."""

    graph: Path
    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def runner(self) -> Runner:
        padding = self.config.get("pad_token_id")
        return artifact_runner(self.graph, PER_TOKEN, padding if isinstance(padding, int) else 0)

    def run(self, feed: Feed) -> Mapping[str, Any]:
        """Run the graph on a row. Raise InputError for a row without tokens, and ConversionError if the graph fails."""
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
    """Run a graph on texts. Raise InputError if they do not fit the graph, and ConversionError if it does not run.

    Args:
        texts: one text, or several texts for vectors.
        context: the text that a question is about, or the second text of a pair.
        max_tokens: the maximum number of tokens to generate.
        task: the version's task. If it is unknown or contradicts the outputs, the outputs decide the kind of answer.

    Returns `{spans}`, `{classes, activation, truncated}`, `{answer}`, `{embeddings, pooling, prompt?, similarity}`,
    `{completion}` or `{waveform, sampling_rate, truncated}`.
    """
    if model.runner.length is not None:
        model.tokenizer.max_length = min(model.tokenizer.max_length, model.runner.length)
    gives, name = model.runner.output_ranks, model.graph.name
    kind = KINDS.get(ALIASES.get(task or "", task or ""))
    if kind is None or not _is_possible(kind, gives):
        kind = "embeddings" if "logits" not in gives else "classes" if gives["logits"] == 2 else "spans"
        kind = "answer" if {"start_logits", "end_logits"} <= gives.keys() else kind
        kind = "sound" if "waveform" in gives else kind
        kind = "completion" if kind == "spans" and model.runner.has_past else kind
    if kind == "answer" and context is None:
        raise InputError("a question needs the text that it is about", "add it: --context TEXT")
    if context is not None and kind not in ("answer", "classes"):
        message = f"{name} takes no second text"
        raise InputError(message, "it answers no questions and compares no texts: leave --context out")
    if kind == "embeddings":
        return _vectors(model, texts)
    if len(texts) != 1:
        message = "this model takes one text at a time"
        raise InputError(message, "several are compared by models that give embeddings")
    if kind == "answer":
        return {"answer": _answer(model, texts[0], context or "")}
    if kind == "classes":
        row = model.tokenizer.row(texts[0], context)
        logits = _numbers(model.run(row.inputs), "logits")
        return {**_classes(logits, model.labels, model.config, name), "truncated": row.is_cut}
    if kind == "sound":
        row = model.tokenizer.row(texts[0])
        waveform, rate = _numbers(model.run(row.inputs), "waveform"), model.config.get("sampling_rate")
        if not isinstance(rate, int) or not 0 < rate <= 1_000_000:
            raise refuse(name, "has no sampling_rate in its config.json")
        return {"waveform": waveform.tolist(), "sampling_rate": rate, "truncated": row.is_cut}
    if kind == "completion":
        return {"completion": _completion(model, texts[0], max_tokens)}
    if not model.labels:
        raise refuse(name, "gives a value for each token, and its version has no labels for them")
    return {"spans": _spans(model, texts[0])}


def _is_possible(kind: str, ranks: Mapping[str, int]) -> bool:
    """Return True if a graph can give this kind of answer. `ranks` has the number of axes by output (0: unknown)."""
    if kind == "answer":
        return {"start_logits", "end_logits"} <= ranks.keys()
    if kind == "sound":
        return "waveform" in ranks
    if kind == "embeddings":
        return ranks.keys() != {"logits"}
    return ranks.get("logits") in (0, 2 if kind == "classes" else 3)


def refuse(label: str, why: str) -> InputError:
    return InputError(f"{label} {why}", "run it on tensors: --input")


def _classes(logits: Floats, labels: Sequence[str], config: Mapping[str, Any], name: str) -> Answer:
    labels = labels or tuple(f"LABEL_{number}" for number in range(len(logits)))
    if len(labels) != len(logits):
        message = f"{name} gives {len(logits)} logits, and the version has {len(labels)} labels"
        raise ConversionError(message, "the number of labels in config.json must be the number of logits")
    problem, activation, scores = config.get("problem_type"), "softmax", softmax(logits)
    if problem == "regression":
        activation, scores = "none", logits
    elif problem == "multi_label_classification" or len(logits) == 1:
        activation, scores = "sigmoid", sigmoid(logits)
    order = np.argsort(-scores, kind="stable")
    classes = [{"label": labels[number], "score": float(scores[number])} for number in order]
    return {"classes": classes, "activation": activation}


def _spans(model: TextModel, text: str) -> list[Answer]:
    names, windows = decoding.tag_scheme(model.labels).names, list(model.tokenizer.windows(text))
    if not any(len(window.positions) for window in windows):
        return []
    labels = decoding.labels_of(
        len(text), windows, [model.run(window.inputs) for window in windows], model.labels
    )
    return [
        {"start": start, "end": end, "label": names[label], "text": text[start:end]}
        for start, end, label in decoding.runs(labels)
    ]


def _answer(model: TextModel, question: str, context: str) -> Answer | None:
    """Return the best answer in any window of the context, or None. The score is its probability in the window."""
    rows = list(model.tokenizer.windows(question, context))
    outputs = [model.run(row.inputs) for row in rows]
    best = decoding.best_answer(outputs, rows)
    if best is None:
        return None
    start, end, window = best
    row, own = rows[window], outputs[window]
    is_context, score = row.sequences == 1, 1.0
    for side, (name, edge) in enumerate((("start", start), ("end", end))):
        is_edge = row.offsets[is_context][:, side] == edge
        score *= float(softmax(_numbers(own, f"{name}_logits")[is_context])[is_edge].max())
    return {"text": context[start:end], "start": start, "end": end, "score": score}


def _completion(model: TextModel, prompt: str, max_tokens: int) -> Answer:
    """Continue a prompt greedily. `finish` is `end` if the model stopped, `length` after `max_tokens` tokens."""
    path = model.graph.parent / GENAI_CONFIG
    settings = read_object(path).get("model", {}) if path.is_file() else model.config
    ends = settings.get("eos_token_id")
    prompt_ids = model.tokenizer.whole(prompt).inputs["input_ids"][0].tolist()
    ids, finish, limits = list(prompt_ids), "length", [len(prompt_ids) + max_tokens]
    if (positions := positions_of(model.config)) is not None:
        if len(ids) > positions:
            message = f"the prompt has {len(ids)} tokens, and {model.graph.name} takes {positions} at most"
            raise InputError(message, "give a shorter text")
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
    """Return a vector for each text: the graph's, or the mean of the token vectors."""
    prompts, name = model.config.get("prompts"), model.config.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    prompt = prompt if isinstance(prompt, str) else ""
    rows, items, pooling = [], [], "graph"
    for text in texts:
        row = model.tokenizer.row(prompt + text)
        vector, states = decoding.text_vector(model.run(row.inputs), row.inputs, model.graph.name)
        item: Answer = {"text": text, "vector": vector.tolist(), "truncated": row.is_cut}
        if states is not None:
            pooling, parts = "mean", zip(row.tokens, row.offsets.tolist(), states.tolist(), strict=True)
            item["tokens"] = [
                {"token": token, "start": start, "end": end, "vector": own}
                for token, (start, end), own in parts
            ]
        rows.append(vector)
        items.append(item)
    stacked = np.stack(rows)
    units = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    shown = {"prompt": prompt} if prompt else {}
    return {"embeddings": items, "pooling": pooling, **shown, "similarity": (units @ units.T).tolist()}


def _numbers(outputs: Mapping[str, Any], name: str) -> Floats:
    return np.asarray(output(outputs, name), dtype=np.float64)


def run_numbers(
    outputs: Mapping[str, Any],
    labels: Sequence[str],
    config: Mapping[str, Any],
    name: str,
    words: Mapping[str, int],
    task: str | None = None,
) -> Answer:
    """Decode the outputs for an image or a sound. The table at the top of this file lists the possible answers.

    `config` is the checkpoint's config.json, `name` the graph's name in messages, and `words` the content of
    vocab.json. If no output is called `logits`, the first output of a classifier (with `labels`, or by its task) counts
    as `logits`. Raises InputError if no answer fits the outputs, and ConversionError if the number of labels is wrong.
    """
    if not outputs or any(array.dtype.kind not in "fiu" or not array.size for array in outputs.values()):
        raise refuse(name, "gives no numbers")
    rows = {key: np.atleast_1d(array)[0].astype(np.float64) for key, array in outputs.items()}
    if labels or task == "image-classification":
        rows.setdefault("logits", next(iter(rows.values())))
    logits, depth = rows.get("logits"), rows.get("predicted_depth")
    if logits is None and depth is not None and depth.ndim == 2:
        return {"depth": depth.tolist()}
    if logits is None:
        return _vector(next(iter(rows.values())), name)
    boxes = rows.get("pred_boxes")
    if boxes is not None and logits.ndim == 2 and boxes.shape == (len(logits), 4):
        return {"objects": _objects(logits, boxes, _enough(labels, 1, name))}
    if logits.ndim == 3:
        labels = _enough(labels, len(logits), name)
        pixels = logits.argmax(0)
        shares = np.bincount(pixels.reshape(-1), minlength=len(labels)) / pixels.size
        order = np.argsort(-shares, kind="stable")
        segments = [{"label": labels[at], "share": float(shares[at])} for at in order if shares[at] > 0]
        return {"segments": segments, "pixels": pixels.tolist()}
    if logits.ndim == 2:
        return {"transcript": decoding.transcript(logits, words, config, name)}
    if logits.ndim == 1:
        return _classes(logits, labels, config, name)
    raise refuse(name, f"gives logits of {logits.ndim} axes for a row")


def run_named(
    run: Run,
    tokenizer: TextTokenizer,
    sizes: Mapping[str, int | None],
    numbers: Feed,
    texts: Sequence[str],
    config: Mapping[str, Any],
    name: str,
) -> Answer:
    """Run a graph on an image (`numbers`) with each text. Return `{objects}` or `{classes, activation}`.

    `sizes` maps each text input to its fixed number of tokens, or None. `name` is the graph's name in messages.
    """
    padding = {**config, **config.get("text_config", {})}.get("pad_token_id") or 0
    outputs = []
    for text in texts:
        feed = {key: array for key, array in tokenizer.row(text).inputs.items() if key in sizes}
        length = max(sizes[key] or 0 for key in feed)
        outputs.append(run({**numbers, **pad(feed, length, padding)}))
    if "pred_boxes" in outputs[0] and "logits" in outputs[0]:
        logits = np.concatenate([_numbers(own, "logits") for own in outputs], axis=-1)
        return {"objects": _objects(logits, _numbers(outputs[0], "pred_boxes"), texts, LEAST_NAMED_SCORE)}
    if "logits_per_image" not in outputs[0]:
        raise refuse(name, "does not compare an image with texts")
    logits = np.concatenate([_numbers(own, "logits_per_image") for own in outputs])
    is_sigmoid = str(config.get("model_type")).startswith("siglip")
    kind = {"problem_type": "multi_label_classification"} if is_sigmoid else {}
    return _classes(logits, texts, kind, name)


def _enough(labels: Sequence[str], count: int, name: str) -> Sequence[str]:
    if len(labels) < count:
        message = f"{name} gives {count} classes or more, and the version has {len(labels)} labels"
        raise ConversionError(message, "the number of labels in config.json must be that of the classes")
    return labels


def _objects(
    logits: Floats, boxes: Floats, labels: Sequence[str], least: float = LEAST_SCORE
) -> list[Answer]:
    scores, classes, corners = decoding.objects(logits, boxes, labels)
    return [
        {"label": labels[classes[at]], "score": float(scores[at]), "box": corners[at].tolist()}
        for at in np.argsort(-scores, kind="stable")
        if scores[at] >= least
    ]


def _vector(values: Floats, name: str) -> Answer:
    if values.ndim == 1:
        return {"vector": values.tolist(), "pooling": "graph"}
    if values.ndim == 2:
        return {"vector": values[0].tolist(), "pooling": "first"}
    if values.ndim == 3:
        return {"vector": values.mean((1, 2)).tolist(), "pooling": "mean"}
    raise refuse(name, "gives no vector")
