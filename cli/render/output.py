"""The output of commands: JSON, aligned columns, sizes. Imports nothing heavy, because every verb needs it."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from onnxreg.schema.core import units

size, counted = units.format_size, units.counted

COLOURS = {
    **dict.fromkeys(("certified", "pass", "kept", "better"), "32"),
    **dict.fromkeys(
        ("unknown", "degrading", "hint", "yanked", "partial", "expired", "purged", "stopped"), "33"
    ),
    **dict.fromkeys(
        (
            "refused",
            "fail",
            "failed",
            "breaking",
            "error",
            "damaged",
            "missing",
            "broken",
            "worse",
            "now fails",
            "fails (other suite)",
        ),
        "31",
    ),
    **dict.fromkeys(("info", "cosmetic"), "2"),
}
"""Words that have a colour (an ANSI number) if they are alone in a cell."""

NUMBERS = frozenset(
    {
        "BEFORE",
        "AFTER",
        "CHANGE",
        "SIZE",
        "SEQ",
        "VERSIONS",
        "EVENTS",
        "BLOBS",
        "VALUE",
        "LIMIT",
        "SAMPLES",
        "UNIQUE",
        "SHARED",
    }
)
"""Columns that are aligned to the right."""

WORDS, PARTS, LETTERS = r"\S+\s*", r"[^\s/_.:,-]+[\s/_.:,-]*|[\s/_.:,-]+", r"."
"""The places at which a cell may be folded, the better one first."""
MIN_COLUMN_WIDTH = 8
"""No column is folded to fewer letters."""
COLUMN_GAP = 2
"""Columns of the terminal between two of a table."""


def write_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2))


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing. A file that has these bytes is not touched."""
    from onnxreg.registry.support.disk import host_errors, replace_file

    with host_errors(f"writing {path}"):
        if not path.is_file() or path.read_bytes() != data:
            replace_file(path, data)


def write_bytes(data: bytes) -> None:
    """Exactly these bytes on stdout; a newline after them only if a person reads."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()


def printable(text: str) -> str:
    """Escape the characters of foreign text that would control a terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def paint(word: str, stream: TextIO | None = None) -> str:
    """The word in its colour, if the stream is a terminal and the user wants colours (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or word.strip() not in COLOURS or not (stream or sys.stdout).isatty():
        return word
    return f"\x1b[{COLOURS[word.strip()]}m{word}\x1b[0m"


def fold_line(line: str, indent: str, stream: TextIO | None = None) -> str:
    """Fold a line between words at the width of a terminal and indent the rest; elsewhere keep it."""
    if not (stream or sys.stdout).isatty():
        return line
    from shutil import get_terminal_size
    from textwrap import wrap

    width = get_terminal_size().columns
    lines = wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Aligned columns with a header; a column that is empty in every row is left out. No rows, no lines.

    On a terminal that is too narrow the widest columns are folded.
    """
    body = [[printable(str(cell)) for cell in row] for row in rows]
    shown = [index for index in range(len(header)) if any(row[index] for row in body)]
    lines: list[Sequence[str]] = [[row[index] for index in shown] for row in [header, *body] if body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = _room()
    if room is not None and sum(widths) + 2 * len(widths) - 2 > room:
        widths = fit_widths(lines, room)
        lines = [line for row in lines for line in fold_row(row, widths)]
    right = [header[index] in NUMBERS for index in shown]
    for line in lines:
        yield "  ".join(map(_pad, line, widths, right)).rstrip()


def _room() -> int | None:
    """The number of columns if stdout is a terminal, otherwise None."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _pad(cell: str, width: int, right: bool) -> str:
    return paint(cell.rjust(width) if right else cell.ljust(width))


def fit_widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of the columns of a table that has `room`; it may be wider if even that is too little."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for places in (WORDS, PARTS, LETTERS):
        least = [
            max(
                MIN_COLUMN_WIDTH,
                *(len(piece.rstrip()) for cell in column for piece in re.findall(places, cell)),
            )
            for column in columns
        ]
        while sum(widths) + COLUMN_GAP * (len(widths) - 1) > room:
            loose = [index for index, width in enumerate(widths) if width > least[index]]
            if not loose:
                break
            widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def fold_row(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """The lines of a row whose cells are folded at these widths."""
    cells = [_fold_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
    return zip_longest(*cells, fillvalue="")


def _fold_cell(cell: str, width: int) -> list[str]:
    places = next(
        places
        for places in (WORDS, PARTS, LETTERS)
        if places is LETTERS or all(len(piece.rstrip()) <= width for piece in re.findall(places, cell))
    )
    lines = [""]
    for piece in re.findall(places, cell):
        if len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def number(value: float | None) -> str:
    """Format a number with four digits that count; None is empty."""
    return "" if value is None else f"{value:.4g}"


def age(seconds: float) -> str:
    """A duration for people, in the largest unit that fits: `3 hours`"""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds), "second")


def duration(seconds: float) -> str:
    """`12 s`, `3 min 05 s`, `2 h 10 min`"""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    return f"{total // 3600} h {total % 3600 // 60:02} min"
