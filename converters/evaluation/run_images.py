"""Run an artifact on the numbers of an image or a sound; the outputs of the graph decide the kind of answer.

| output | answer |
|---|---|
| `logits` and `pred_boxes` | objects with their boxes, as shares of the image |
| `predicted_depth` | the depth of each pixel |
| `logits` with four axes | the label of each pixel, and the share of each label |
| `logits` with three axes | the spoken words, from the tokens of CTC |
| `logits` with two axes | classes |
| another output | a vector |
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.metric import Floats
from onnxreg.converters.evaluation.run_texts import Answer, classes_of, refuse
from onnxreg.schema.core.errors import ConversionError, InputError

LEAST_SCORE = 0.5
"""Objects with a lower score are not shown, as in pipelines of transformers."""
WORD = "|"
"""The token between words, if a tokenizer names none."""


def run_numbers(
    outputs: Mapping[str, Any],
    labels: Sequence[str],
    config: Mapping[str, Any],
    name: str,
    words: Mapping[str, int],
) -> Answer:
    """Decode the outputs for one row.

    Args:
        config: the checkpoint's config.json.
        name: the graph's name in messages.
        words: the numbers of tokens (`vocab.json`), for CTC.

    Returns one of `{objects}`, `{depth}`, `{segments, pixels}`, `{transcript}`, `{classes, activation}`, `{vector, pooling}`.
    Raises InputError if the outputs are not of these kinds, ConversionError for another number of labels.
    """
    if not outputs or any(array.dtype.kind not in "fiu" or not array.size for array in outputs.values()):
        raise InputError(f"{name} gives no numbers", "run it on tensors: --input")
    rows = {key: np.atleast_1d(array)[0].astype(np.float64) for key, array in outputs.items()}
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
        return {"transcript": _transcript(logits, words, config, name)}
    if logits.ndim == 1:
        return classes_of(logits, labels, config, name)
    raise InputError(f"{name} gives logits of {logits.ndim} axes for a row", "run it on tensors: --input")


def _enough(labels: Sequence[str], count: int, name: str) -> Sequence[str]:
    """The labels; ConversionError, naming the graph, if there are fewer than `count`."""
    if len(labels) < count:
        message = f"{name} gives {count} classes or more, and the version has {len(labels)} labels"
        raise ConversionError(message, "the number of labels in config.json must be that of the classes")
    return labels


def _objects(logits: Floats, boxes: Floats, labels: Sequence[str]) -> list[Answer]:
    """Return the objects, the best first: scored by the softmax if a further class means no object, else by the sigmoid."""
    if logits.shape[1] > len(labels):
        powers = np.exp(logits - logits.max(1, keepdims=True))
        scores = (powers / powers.sum(1, keepdims=True))[:, : len(labels)]
    else:
        scores = 1 / (1 + np.exp(-logits))
    best, objects = scores.argmax(1), []
    for at in np.argsort(-scores.max(1), kind="stable"):
        x, y, width, height = boxes[at]
        if (score := float(scores[at, best[at]])) >= LEAST_SCORE:
            box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
            objects.append({"label": labels[best[at]], "score": score, "box": [float(edge) for edge in box]})
    return objects


def _transcript(logits: Floats, words: Mapping[str, int], config: Mapping[str, Any], name: str) -> str:
    """Decode the best path of CTC: repeated tokens count once, and the blank (the padding token) is dropped."""
    if not words or any(not isinstance(number, int) for number in words.values()):
        raise refuse(name, "gives a value for each frame, and its version has no vocab.json of one language")
    tokens, blank = {number: token for token, number in words.items()}, config.get("pad_token_id", 0)
    best = logits.argmax(1)
    starts = best[np.concatenate([[True], best[1:] != best[:-1]])]
    text = "".join(tokens.get(int(number), "") for number in starts if number != blank)
    return text.replace(WORD, " ").strip()


def _vector(values: Floats, name: str) -> Answer:
    """Return the vector of an image: the graph's own vector, the vector of the first token, or the mean of a map."""
    if values.ndim == 1:
        return {"vector": values.tolist(), "pooling": "graph"}
    if values.ndim == 2:
        return {"vector": values[0].tolist(), "pooling": "first"}
    if values.ndim == 3:
        return {"vector": values.mean((1, 2)).tolist(), "pooling": "mean"}
    raise InputError(f"{name} gives no vector", "run it on tensors: --input")
