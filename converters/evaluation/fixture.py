"""Golden fixtures of a token classifier: texts with gold spans, in OpenMed's format."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from onnxreg.schema.core.errors import InputError

SPANS_KEYS = ("gold_spans", "entities")
LABEL_KEYS = ("canonical_label", "label", "entity_type", "entity_group", "entity")
"""Accepted spellings; if several hold a value, the first counts, as in OpenMed."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Half-open, in code points."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class Fixture:
    """A text and its gold. Spans of different labels may nest; those of one label are disjoint."""

    text: str
    spans: tuple[TextSpan, ...]


def read_fixture(row: dict[str, Any], position: str) -> Fixture:
    """Read `{text, gold_spans: [{start, end, label, text?}]}`; a text without gold has an empty list.

    Raises InputError for no text, offsets outside the text, a span text that contradicts its offsets, and two spans of
    one label that overlap.
    """
    text = row.get("text")
    if not isinstance(text, str) or not text:
        raise InputError(f"{position}: `text` is missing or empty")
    rows = _first(row, SPANS_KEYS)
    if not isinstance(rows, list):
        problem = "is missing" if rows is None else "is not a list"
        raise InputError(f"{position}: `gold_spans` {problem}", "a text without gold has `gold_spans: []`")
    spans = [_span(value, text, f"{position}, span {number}") for number, value in enumerate(rows, start=1)]
    spans.sort(key=lambda span: (span.label, span.start))
    for left, right in pairwise(spans):
        if left.label == right.label and right.start < left.end:
            raise InputError(f"{position}: two gold spans of one label overlap", "merge them, or drop one")
    return Fixture(text, tuple(spans))


def _span(value: Any, text: str, position: str) -> TextSpan:
    if not isinstance(value, dict):
        raise InputError(f"{position}: not an object")
    start, end, label = value.get("start"), value.get("end"), _first(value, LABEL_KEYS)
    if type(start) is not int or type(end) is not int:
        raise InputError(f"{position}: `start` and `end` are not both integers")
    if not 0 <= start < end <= len(text):
        raise InputError(
            f"{position}: offsets {start}-{end} are outside a text of {len(text)} characters",
            "offsets are half-open and count code points from 0",
        )
    if not isinstance(label, str) or not label:
        raise InputError(f"{position}: `label` is missing or empty")
    stated = value.get("text")
    if stated is not None and stated != text[start:end]:
        raise InputError(
            f"{position}: `text` is not the text at {start}-{end}",
            "offsets count code points, not bytes or UTF-16 units",
        )
    return TextSpan(start, end, label)


def _first(value: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)
