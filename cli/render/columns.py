"""Tables that are wider than the terminal: their widest columns are folded, between words if that is enough."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

WORDS, PARTS, LETTERS = (
    re.compile(r"\S+\s*"),
    re.compile(r"[^\s/_.:,-]+[\s/_.:,-]*|[\s/_.:,-]+"),
    re.compile(r"."),
)
"""The places at which a cell may be folded, the better one first."""
LEAST = 8
"""No column is folded to fewer letters."""
BETWEEN = 2
"""Columns of the terminal between two of a table."""


def fitted(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of the columns of a table that has `room`; it may be wider if even that is too little."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for places in (WORDS, PARTS, LETTERS):
        least = [
            max(LEAST, *(len(piece.rstrip()) for cell in column for piece in places.findall(cell)))
            for column in columns
        ]
        while sum(widths) + BETWEEN * (len(widths) - 1) > room:
            loose = [index for index, width in enumerate(widths) if width > least[index]]
            if not loose:
                break
            widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """The lines of a row whose cells are folded at these widths."""
    cells = [_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
    return zip_longest(*cells, fillvalue="")


def _lines(cell: str, width: int) -> list[str]:
    places = next(
        places
        for places in (WORDS, PARTS, LETTERS)
        if places is LETTERS or all(len(piece.rstrip()) <= width for piece in places.findall(cell))
    )
    lines = [""]
    for piece in places.findall(cell):
        if len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]
