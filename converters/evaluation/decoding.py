"""Decode the outputs of a graph: labels of characters, answers to questions, vectors, objects, and spoken words."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.tokens import Floats, Integers, TokenRow
from onnxreg.converters.passes.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError

MAX_ANSWER_TOKENS = 30  # the maximum number of tokens of an answer, as in the example scripts of Transformers
OF_TEXTS = ("embeddings", "sentence_embedding", "text_embeds")
OF_TOKENS = ("last_hidden_state", "token_embeddings")
"""The outputs with vectors of tokens. `OF_TEXTS` are outputs with vectors of texts."""
WORD = "|"
NOTHING = -1  # the label of a character without an entity
_MARKS, _JOINTS = "BILUESM", "-_:/."
_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL | re.IGNORECASE)
    for joint in map(re.escape, _JOINTS)
    for pattern in (rf"(?P<mark>[{_MARKS}]){joint}(?P<name>.+)", rf"(?P<name>.+){joint}(?P<mark>[{_MARKS}])")
)
"""Match a tag with a mark: `B-NAME`, `b_name`, `NAME-B`, and so on."""


@dataclass(frozen=True)
class TagScheme:
    """The scheme by which a model's tags spell labels, such as BIO or BILOU.

    `names` are the labels without marks. For each tag, `label` is the index of its label (or `NOTHING`), `begins` is
    True if the tag always begins an entity, and `ends` is True if it always ends an entity.
    """

    names: tuple[str, ...]
    label: tuple[int, ...]
    begins: tuple[bool, ...]
    ends: tuple[bool, ...]


@cache
def tag_scheme(tags: tuple[str, ...]) -> TagScheme:
    """Return the scheme of a model's tags, which are in the order of the logits.

    In `B-NAME`, B is a mark. A letter in front counts as a mark in two cases: a label has a tag with B and another tag
    (`B-NAME`, `I-NAME`), or every tag but `O` begins with `B-` or `I-`. So `E-MAIL` alone is a label without a mark.
    """
    inside = [tag for tag in tags if tag not in ("O", "o")]
    split = {tag: ("", tag) for tag in inside}
    for pattern in _PATTERNS:
        matches = [match for tag in inside if (match := pattern.fullmatch(tag))]
        pairs = {match[0]: (match["mark"].upper(), match["name"]) for match in matches}
        is_prefix, is_every_tag = pattern.pattern.startswith("(?P<mark>"), 0 < len(matches) == len(inside)
        begun = {name for mark, name in pairs.values() if mark == "B"}
        continued = {name for mark, name in pairs.values() if mark in "IM" or (is_prefix and mark != "B")}
        is_io = is_prefix and is_every_tag and {mark for mark, _ in pairs.values()} <= {"B", "I"}
        if begun & continued or is_io:
            for tag, (mark, name) in pairs.items():
                if name in begun or (is_every_tag and mark in "BI"):
                    split[tag] = mark, name
            break
    names = tuple(dict.fromkeys(name for _, name in split.values()))
    marks = [split.get(tag, ("", ""))[0] for tag in tags]
    return TagScheme(
        names,
        tuple(names.index(split[tag][1]) if tag in split else NOTHING for tag in tags),
        tuple(mark in {"B", "S", "U"} for mark in marks),
        tuple(mark in {"E", "L", "S", "U"} for mark in marks),
    )


def decode(tags: Integers, offsets: Integers, length: int, scheme: TagScheme) -> Integers:
    """Label every character of a text: int64 `[length]`, the index of a label in `scheme.names`, or `NOTHING`.

    `tags` (int64 `[tokens]`) has the index of each token's tag, and `offsets` (int64 `[tokens, 2]`) its range of code
    points, which may be empty. Neighbouring tokens of the same label form one entity, which includes the characters
    between them. They stay apart if the left token ends an entity, or the right token begins one.
    """
    labels = np.full(length, NOTHING, dtype=np.int64)
    current, reach = NOTHING, 0
    for tag, (start, end) in zip(tags.tolist(), offsets.tolist(), strict=True):
        if start >= end:
            continue
        label = scheme.label[tag]
        joins = label == current and not scheme.begins[tag]
        labels[reach if joins else start : end] = label
        current, reach = NOTHING if scheme.ends[tag] else label, end
    return labels


def runs(labels: Integers) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, label) of each run of characters with the same label."""
    edges = np.flatnonzero(np.diff(labels, prepend=NOTHING, append=NOTHING)).tolist()
    for start, end in pairwise(edges):
        if labels[start] != NOTHING:
            yield start, end, int(labels[start])


def output(outputs: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None) -> Any:
    """Return an output's only row. Raise ConversionError if it is missing, not of `shape` or, without `shape`, NaN."""
    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row for each row of its input")
    row = outputs[name][0]
    if shape is not None and row.shape != shape:
        message = f"the model gives {name} of shape {row.shape}, expected {shape}"
        raise ConversionError(message, "the number of labels in config.json must be the number of logits")
    return row if shape is not None else numbers(row)


def numbers(values: Any) -> Any:
    """Return the values of an output. Raise ConversionError for NaN."""
    if np.isnan(values).any():
        raise ConversionError("the model gives NaN for an item of the evaluation suite")
    return values


def labels_of(
    length: int, windows: Sequence[TokenRow], outputs: Sequence[Mapping[str, Any]], tags: Sequence[str]
) -> Integers:
    """Label the characters of a text by the outputs for its windows. Raise ConversionError for NaN or another shape."""
    best, offsets = [], []
    for window, own in zip(windows, outputs, strict=True):
        logits = output(own, "logits", (len(window.offsets), len(tags)))
        best.append(numbers(logits[window.positions]).argmax(axis=-1))
        offsets.append(window.offsets[window.positions])
    return decode(np.concatenate(best), np.concatenate(offsets), length, tag_scheme(tags))


def best_answer(
    outputs: Sequence[Mapping[str, Any]], windows: Sequence[TokenRow]
) -> tuple[int, int, int] | None:
    """Return (start, end, window) of the best part of the second text; None if "no answer" (the first token) is better.

    The part has the largest sum of start and end logits, and at most `MAX_ANSWER_TOKENS` tokens.
    """
    most, best, nothing = -math.inf, (0, 0, 0), math.inf
    for number, (own, row) in enumerate(zip(outputs, windows, strict=True)):
        start, end = (np.asarray(output(own, f"{name}_logits"), np.float64) for name in ("start", "end"))
        tokens, nothing = np.flatnonzero(row.sequences == 1), min(nothing, float(start[0] + end[0]))
        if not len(tokens):
            continue
        sums = start[tokens][:, None] + end[tokens][None]
        distance = np.arange(len(tokens))[None] - np.arange(len(tokens))[:, None]
        sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
        first, last = np.unravel_index(int(sums.argmax()), sums.shape)
        (begin, _), (_, stop) = row.offsets[tokens[first]], row.offsets[tokens[last]]
        if sums[first, last] > most:
            most, best = float(sums[first, last]), (int(begin), int(stop), number)
    return None if best[1] <= best[0] or nothing > most else best


def text_vector(
    outputs: Mapping[str, Any], feed: Feed, name: str = "the model"
) -> tuple[Floats, Floats | None]:
    """Return (text vector, None). For a graph with only token vectors, return (their mean, the token vectors).

    Raises ConversionError about the graph `name` if it gives no vectors.
    """
    for axes, names in ((2, OF_TEXTS), (3, OF_TOKENS)):
        fitting = [one for one, array in outputs.items() if array.ndim == axes and array.shape[0] == 1]
        chosen = [one for one in names if one in fitting] or (fitting if len(outputs) == 1 else [])
        if chosen:
            values = np.asarray(output(outputs, chosen[0]), dtype=np.float64)
            if axes == 2:
                return values, None
            mask = feed["attention_mask"][0].astype(bool)
            if len(values) != len(mask):
                raise ConversionError(f"{name} gives {len(values)} vectors for {len(mask)} tokens")
            return values[mask].mean(axis=0), values
    raise ConversionError(f"{name} gives no vectors: {', '.join(outputs)}")


def objects(logits: Floats, boxes: Floats, labels: Sequence[str]) -> tuple[Floats, Integers, Floats]:
    """Return the scores of objects, their classes, and their boxes (left, top, right, bottom).

    Scores are by softmax if there is a class "no object", otherwise by sigmoid.
    """
    has_nothing = logits.shape[1] > len(labels)
    scores = softmax(logits)[:, : len(labels)] if has_nothing else sigmoid(logits)
    half = boxes[:, 2:] / 2
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    return scores.max(1), scores.argmax(1), corners


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logits)))


def transcript(logits: Floats, words: Mapping[str, int], config: Mapping[str, Any], name: str) -> str:
    """Decode the best path of CTC: drop repeated tokens and blanks (the padding token).

    `words` is the content of vocab.json, and `name` the graph's name in messages. Raises InputError for unusable
    `words`.
    """
    if not words or any(not isinstance(number, int) for number in words.values()):
        reason = "gives a value for each frame, and its version has no vocab.json of one language"
        raise InputError(f"{name} {reason}", "run it on tensors: --input")
    tokens, blank = {number: token for token, number in words.items()}, config.get("pad_token_id") or 0
    best = logits.argmax(1)
    starts = best[np.concatenate([[True], best[1:] != best[:-1]])]
    text = "".join(tokens.get(int(number), "") for number in starts if number != blank)
    return text.replace(WORD, " ").strip()
