"""Evaluation suites: a file of items, one for each line or element, whose shape is that of a task.

Those of a token classifier are fixtures: texts with gold spans, in OpenMed's format.
"""

import codecs
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.given_file import read_given

MAX_BYTES = 256 * 2**20
ID_KEYS = ("id", "fixture_id")
"""Accepted spellings; if several hold a value, the first counts, as in OpenMed."""

ReadItem = Callable[[dict[str, Any], str], Any]
"""Function from a JSON object and the words that name its place to an item of a task."""

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


@dataclass(frozen=True)
class Suite:
    """The items of a file, and the digest of the bytes they were read from.

    `groups` has a number for each item: items of one group are not independent, such as texts of one document; it is
    None if no item names a group. `synthetic`: True if an item says that it was made up, False if each says that it was
    not, else None.
    """

    digest: Digest
    items: tuple[Any, ...]
    groups: tuple[int, ...] | None = None
    synthetic: bool | None = None

    def half(self, name: str, seed: int) -> "Suite":
        """One half of the groups (of the items, without groups): `choose` or `confirm`.

        The generator is NumPy's legacy one, whose stream is frozen. The digest is that of the whole suite's digest, the
        name and the seed.
        """
        import numpy as np

        groups = self.groups or tuple(range(len(self.items)))
        order = np.random.RandomState(seed).permutation(max(groups, default=-1) + 1).tolist()
        middle = (len(order) + 1) // 2
        chosen = set(order[:middle] if name == "choose" else order[middle:])
        rows = [number for number, group in enumerate(groups) if group in chosen]
        key = {"suite": str(self.digest), "half": name, "seed": seed}
        return Suite(
            Digest.of(canonical.encode(key)),
            tuple(self.items[number] for number in rows),
            None if self.groups is None else tuple(self.groups[number] for number in rows),
            self.synthetic,
        )


def load(path: Path, read_item: ReadItem = read_fixture, distinct: bool = False) -> Suite:
    """Read a suite: a JSON list, an object with a list `items` or `fixtures`, or one item per line, also with a byte order
    mark.

    The file is read once. Every item may have an `id`, unique in the suite, a `group` (text or integer), and
    `metadata: {source}`, which is where it is from: `synthetic` or another word.

    Args:
        read_item: reads the rest of an item; golden fixtures of token classifiers by default.
        distinct: refuse two items of equal content.

    Raises NotFoundError for a missing file, InputError, naming the item by its position and never
    by its contents, for what is malformed.
    """
    data = read_bytes(path)
    items: list[Any] = []
    positions: dict[Hashable, str] = {}
    groups: list[str | int | None] = []
    sources: set[bool | None] = set()
    for position, row in _rows(data, path):
        item = read_item(row, position)
        _check_id(row, position, positions)
        if distinct:
            _check_repeated(item, position, positions)
        items.append(item)
        groups.append(_group(row, position))
        sources.add(_synthetic(row))
    synthetic = True if True in sources else False if sources == {False} else None
    return Suite(Digest.of(data), tuple(items), numbered(groups, path), synthetic)


def read_bytes(path: Path) -> bytes:
    """Read the file of a suite.

    Raises NotFoundError if it is missing, InputError if it is not a regular file or is too large, HostError if it
    cannot be read.
    """
    return read_given(path, "evaluation suite", limit=MAX_BYTES)


def numbered(groups: Sequence[str | int | None], path: Path) -> tuple[int, ...] | None:
    """The groups as numbers, in the order of their first items. InputError if only some items have one."""
    if all(group is None for group in groups):
        return None
    if None in groups:
        raise InputError(
            f"evaluation suite {path}, item {groups.index(None) + 1}: `group` is missing, and others have one"
        )
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return tuple(numbers[group] for group in groups)


def _rows(data: bytes, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each item with the words that name its place."""
    suite = f"evaluation suite {path}"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{suite} is UTF-16", "save it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    if path.suffix.lower() == ".jsonl" or _is_lines(data):
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                position = f"{suite}, line {number}"
                yield position, _object(_decode(line, position), position)
        return
    rows = _decode(data, suite)
    if isinstance(rows, dict):
        rows = rows.get("items", rows.get("fixtures"))
    if not isinstance(rows, list):
        raise InputError(
            f"{suite} is neither a list of items nor an object with a list `items` or `fixtures`",
            "write a list, or one item per line",
        )
    for number, row in enumerate(rows, start=1):
        position = f"{suite}, item {number}"
        yield position, _object(row, position)


def _is_lines(data: bytes) -> bool:
    """Return True if the first of several lines is an object by itself."""
    first, _, others = data.lstrip().partition(b"\n")
    if not others.strip():
        return False
    try:
        return isinstance(canonical.decode(first, "", MAX_BYTES), dict)
    except InputError:
        return False


def _object(row: Any, position: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InputError(f"{position}: not an object")
    return row


def _decode(data: bytes, label: str) -> Any:
    """Parse JSON; the decoder's detail after the colon may quote the suite, so it goes no further."""
    try:
        return canonical.decode(data, label, MAX_BYTES)
    except InputError as error:
        problem = error.message.removeprefix(label).partition(":")[0]
        raise InputError(
            f"{label}{problem}", "numbers are finite, and no key occurs twice in an object"
        ) from None


def _synthetic(row: dict[str, Any]) -> bool | None:
    """Return True or False if a fixture says that its text is synthetic or not; None if it says nothing."""
    metadata = row.get("metadata")
    source = metadata.get("source") if isinstance(metadata, dict) else None
    return "synthetic" in source.lower() if isinstance(source, str) and source.strip() else None


def _check_id(row: dict[str, Any], position: str, positions: dict[Hashable, str]) -> None:
    identity = next((row[key] for key in ID_KEYS if row.get(key) is not None), None)
    if identity is None:
        return
    if type(identity) not in (str, int):
        raise InputError(f"{position}: `id` is neither text nor an integer")
    if str(identity) in positions:
        raise InputError(
            f"{position}: its id was used before, at {positions[str(identity)]}", "ids are unique in a suite"
        )
    positions[str(identity)] = position.rpartition(", ")[2]


def _check_repeated(item: Hashable, position: str, positions: dict[Hashable, str]) -> None:
    if ("item", item) in positions:
        raise InputError(
            f"{position}: the same item was used before, at {positions['item', item]}",
            "leave one out: an item that counts twice makes an interval too narrow",
        )
    positions["item", item] = position.rpartition(", ")[2]


def _group(row: dict[str, Any], position: str) -> str | int | None:
    group = row.get("group")
    if group is not None and type(group) not in (str, int):
        raise InputError(f"{position}: `group` is neither text nor an integer")
    return group


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
