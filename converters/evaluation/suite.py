"""Evaluation suites: texts with gold spans, in OpenMed's golden-fixture format."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError

MAX_BYTES = 256 * 2**20
ID_KEYS = ("id", "fixture_id")
SPANS_KEYS = ("gold_spans", "entities")
LABEL_KEYS = ("canonical_label", "label", "entity_type", "entity_group", "entity")
"""Accepted spellings; if several hold a value, the first counts, as in OpenMed."""


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open, in code points."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class Fixture:
    """A text and its gold. Spans of different labels may nest; those of one label are disjoint."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Suite:
    """The fixtures of a file, and the digest of the bytes they were read from.

    `synthetic`: True if a fixture says that its text was made up, False if each says that it was not, else None.
    """

    digest: Digest
    fixtures: tuple[Fixture, ...]
    synthetic: bool | None = None


def load(path: Path) -> Suite:
    """Read a suite: a JSON list, `{"fixtures": [...]}`, or, if the name ends in `.jsonl`, one fixture per
    line.

    The file is read once. A fixture is `{id, text, gold_spans: [{start, end, label, text?}], metadata?:
    {source?}}`; a text without gold has an empty list; a source is where the text is from, `synthetic` or
    another word.

    Raises NotFoundError if there is no such file, InputError, naming the fixture by its position and never
    by its contents, for what is
    malformed: no text, duplicate ids, offsets outside the text, a span text that contradicts its offsets, two
    spans of one label that overlap.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no evaluation suite {path}", "check the path") from error
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise InputError(
            f"evaluation suite {path}: {reason}", "give the path of a JSON or JSONL file"
        ) from error
    if len(data) > MAX_BYTES:
        raise InputError(
            f"evaluation suite {path} is too large: {len(data)} bytes, at most {MAX_BYTES} are read"
        )
    fixtures: list[Fixture] = []
    positions: dict[str, str] = {}
    sources: set[bool | None] = set()
    for position, row in _rows(data, path):
        fixtures.append(_fixture(row, position))
        _check_id(row, position, positions)
        sources.add(_synthetic(row))
    synthetic = True if True in sources else False if sources == {False} else None
    return Suite(Digest.of(data), tuple(fixtures), synthetic)


def _rows(data: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    """Each fixture with the words that name its place."""
    suite = f"evaluation suite {path}"
    if path.suffix.lower() == ".jsonl":
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                position = f"{suite}, line {number}"
                yield position, _decode(line, position)
        return
    rows = _decode(data, suite)
    if isinstance(rows, dict):
        rows = rows.get("fixtures")
    if not isinstance(rows, list):
        raise InputError(
            f"{suite} is neither a list of fixtures nor an object with a `fixtures` list",
            "one fixture per line needs a name that ends in .jsonl",
        )
    for number, row in enumerate(rows, start=1):
        yield f"{suite}, fixture {number}", row


def _decode(data: bytes, label: str) -> Any:
    """Parse JSON; the decoder's detail after the colon may quote the suite, so it goes no further."""
    try:
        return canonical.decode(data, label, MAX_BYTES)
    except InputError as error:
        problem = error.message.removeprefix(label).partition(":")[0]
        raise InputError(
            f"{label}{problem}", "numbers are finite, and no key occurs twice in an object"
        ) from None


def _fixture(row: Any, position: str) -> Fixture:
    if not isinstance(row, dict):
        raise InputError(f"{position}: not an object")
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


def _span(value: Any, text: str, position: str) -> Span:
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
    return Span(start, end, label)


def _synthetic(row: dict[str, Any]) -> bool | None:
    """Return True or False if a fixture says that its text is synthetic or not; None if it says nothing."""
    metadata = row.get("metadata")
    source = metadata.get("source") if isinstance(metadata, dict) else None
    return "synthetic" in source.lower() if isinstance(source, str) and source.strip() else None


def _first(value: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _check_id(row: dict[str, Any], position: str, positions: dict[str, str]) -> None:
    identity = _first(row, ID_KEYS)
    if identity is None:
        return
    if type(identity) not in (str, int):
        raise InputError(f"{position}: `id` is neither text nor an integer")
    if str(identity) in positions:
        raise InputError(
            f"{position}: its id was used before, at {positions[str(identity)]}", "ids are unique in a suite"
        )
    positions[str(identity)] = position.rpartition(", ")[2]
