"""The output of commands: JSON, aligned columns, sizes. Imports nothing heavy, because every verb needs it."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from shutil import get_terminal_size
from textwrap import TextWrapper, wrap
from typing import Any, TextIO

from onnxreg.schema.core import units
from onnxreg.schema.core.digest import Digest

size, counted = units.format_size, units.counted

_WORDS = {
    "32": "certified, pass, kept, better",
    "33": "unknown, degrading, hint, yanked, partial, expired, purged, stopped",
    "31": "refused, fail, failed, breaking, error, damaged, missing, broken, worse, now fails, fails (other suite)",
    "2": "info, cosmetic",
}
COLOURS = {word: number for number, words in _WORDS.items() for word in words.split(", ")}
"""The colour (an ANSI number) of a word that is alone in a cell."""
_RIGHT = "BEFORE, AFTER, CHANGE, SIZE, SEQ, VERSIONS, EVENTS, BLOBS, VALUE, LIMIT, SAMPLES, UNIQUE, SHARED"
NUMBERS = frozenset(_RIGHT.split(", "))
"""Headers of the columns that are aligned to the right."""
MIN_COLUMN_WIDTH, COLUMN_GAP = 6, 2
"""The least width of a folded column, and the gap between two columns, in characters."""


def write_json(value: Any) -> None:
    """Print a value as one JSON document on stdout. A record becomes its `to_json`; paths and refs become text."""
    print(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | set | BaseException):
        raise TypeError(f"{type(value).__name__} has no JSON")
    return value.to_json() if hasattr(value, "to_json") else str(value)


def fields(item: object, names: str) -> dict[str, Any]:
    """The attributes with these names (separated by spaces), as keys of a JSON document."""
    return {name: getattr(item, name) for name in names.split()}


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing. If the file has these bytes already, it is not touched."""
    from onnxreg.registry.support.disk import host_errors, replace_file

    with host_errors(f"writing {path}"):
        if not path.is_file() or path.read_bytes() != data:
            replace_file(path, data)


def write_bytes(data: bytes) -> None:
    """Print exactly these bytes on stdout; add a newline only if stdout is a terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()


def printable(text: str) -> str:
    """Escape the characters that would control a terminal, in text that other people wrote."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def paint(word: str, stream: TextIO | None = None) -> str:
    """Colour a word, if the stream is a terminal and the user wants colours (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or word.strip() not in COLOURS or not (stream or sys.stdout).isatty():
        return word
    return f"\x1b[{COLOURS[word.strip()]}m{word}\x1b[0m"


def standing(item: Any, state: str = "") -> str:
    """The state of an artifact for people: a file in full precision, with which others are compared, is the `reference`."""
    state = state or item.state
    return "reference" if state == "unknown" and item.precision == "float32" else state


def filled(text: str, width: int, indent: str = "", first: str = "") -> str:
    """Fold a text at `width`, with `first` before the first line and `indent` before the others; words stay whole."""
    return TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False).fill(text)


def fold_line(line: str, indent: str, stream: TextIO | None = None) -> str:
    """Fold a line between words at the width of the terminal, and indent the further lines. Without a terminal, keep it."""
    if not (stream or sys.stdout).isatty():
        return line
    return filled(line, get_terminal_size().columns, indent)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a table with a header and aligned columns. Columns that are empty in every row are left out.

    None is shown empty, a sequence joined by commas, and a digest shortened. On a narrow terminal, the widest columns
    are folded. Without rows, no line is yielded.
    """
    body = [[printable(_cell(cell)) for cell in row] for row in rows]
    shown = [index for index in range(len(header)) if any(row[index] for row in body)]
    lines: list[Sequence[str]] = [[row[index] for index in shown] for row in [header, *body] if body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        room = get_terminal_size().columns - COLUMN_GAP * (len(widths) - 1)
        while sum(widths) > room and max(widths) > MIN_COLUMN_WIDTH:
            widths[widths.index(max(widths))] -= 1
        lines = [line for row in lines for line in zip_longest(*map(wrap, row, widths), fillvalue="")]
    right = [header[index] in NUMBERS for index in shown]
    for line in lines:
        yield (" " * COLUMN_GAP).join(map(_pad, line, widths, right)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, Digest):
        return value.short
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _pad(cell: str, width: int, right: bool) -> str:
    return paint(cell.rjust(width) if right else cell.ljust(width))


def shortened(value: object) -> str:
    """A value as text, or as JSON, of at most 60 characters; None gives `nothing`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)
    text = "nothing" if value is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def number(value: float | None) -> str:
    """Format a number with four significant digits; None gives ""."""
    return "" if value is None else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format a number of seconds: `12 s`, `3 min 05 s`, `2 h 10 min`, `3 days`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    hours = f"{total // 3600} h {total % 3600 // 60:02} min"
    return hours if total < 2 * 86400 else f"{total // 86400} days"
