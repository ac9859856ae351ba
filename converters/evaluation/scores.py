"""Paired scores of the items of a suite, in an order that says nothing about the suite.

Confidence intervals are made by the bootstrap: groups of items are drawn with replacement. Items of one group are not
independent, so whole groups are drawn (cluster bootstrap; Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
ch. 8). The generator is NumPy's legacy one, whose stream is frozen.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxreg.schema.core.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GROUP, PARENT, CANDIDATE = "group", "parent:", "candidate:"
"""The first column of the file, and the prefixes of the others."""

RESAMPLES = 1000
SEED = 0
LEVEL = 0.95
Interval = tuple[float, float]


@dataclass(frozen=True)
class ScoreTable:
    """The scores of one metric for each item, of the parent and of the candidate.

    `parent` and `candidate` are float64 of shape (items, columns), `groups` is int64 of shape (items,). The rows of a
    group are sorted by their values, and so are the groups, which are numbered in that order: the order of a suite
    cannot be read from a table, and does not change a figure.
    """

    columns: tuple[str, ...]
    parent: Floats
    candidate: Floats
    groups: Integers

    @classmethod
    def of(
        cls, columns: Sequence[str], parent: Floats, candidate: Floats, groups: Sequence[int] | None = None
    ) -> "ScoreTable":
        """Sort the scores of items; without `groups` each item is a group of its own."""
        width = len(columns)
        rows_by_group: dict[int, list[tuple[float, ...]]] = {}
        numbers = range(len(parent)) if groups is None else groups
        for number, row in zip(numbers, np.hstack([parent, candidate]).tolist(), strict=True):
            rows_by_group.setdefault(number, []).append(tuple(row))
        sorted_groups = sorted(sorted(rows) for rows in rows_by_group.values())
        rows = np.array([row for group in sorted_groups for row in group], dtype=np.float64)
        rows = rows.reshape(-1, 2 * width)
        owners = [number for number, group in enumerate(sorted_groups) for _ in group]
        return cls(tuple(columns), rows[:, :width], rows[:, width:], np.array(owners, dtype=np.int64))

    @property
    def group_count(self) -> int:
        return int(self.groups[-1]) + 1 if len(self.groups) else 0

    @property
    def is_grouped(self) -> bool:
        """True if a group has more than one item."""
        return self.group_count < len(self.groups)

    def encode(self) -> bytes:
        """Write CSV (RFC 4180, line feeds): `group`, `parent:<column>`..., `candidate:<column>`...; numbers only.

        A number is written so that it is read back exactly.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        sides = ((PARENT, self.parent), (CANDIDATE, self.candidate))
        writer.writerow([GROUP, *(f"{prefix}{column}" for prefix, _ in sides for column in self.columns)])
        for group, *rows in zip(
            self.groups.tolist(), self.parent.tolist(), self.candidate.tolist(), strict=True
        ):
            writer.writerow([group, *(_text(value) for row in rows for value in row)])
        return out.getvalue().encode()

    @classmethod
    def decode(cls, data: bytes, label: str) -> "ScoreTable":
        """Read what `encode` wrote.

        Raises InputError, calling the file `label`, if it is anything else, such as a table in another order.
        """
        try:
            header, *rows = csv.reader(io.StringIO(data.decode()), strict=True)
            numbers = np.array([[float(value) for value in row] for row in rows], dtype=np.float64)
            width = (len(header) - 1) // 2
            columns = tuple(name.removeprefix(PARENT) for name in header[1 : 1 + width])
            numbers = numbers.reshape(-1, len(header))
            sides = (numbers[:, 1 : 1 + width], numbers[:, 1 + width :])
            table = cls.of(columns, *sides, numbers[:, 0].astype(np.int64).tolist())
            is_same = table.encode() == data and bool(np.isfinite(numbers).all())
        except (ValueError, csv.Error, UnicodeDecodeError, OverflowError):
            is_same = False
        if not is_same:
            raise InputError(f"{label} is not a table of item scores as an export writes it")
        return table


def draws(groups: Integers, count: int) -> Iterator[Integers]:
    """Yield the rows of each resample. `groups` is sorted."""
    if not count:
        return
    generator = np.random.RandomState(SEED)
    starts = np.searchsorted(groups, np.arange(count + 1))
    rows = np.arange(len(groups))
    for _ in range(RESAMPLES):
        chosen = generator.randint(0, count, count, dtype=np.int64)
        if count == len(groups):
            yield chosen
        else:
            yield np.concatenate([rows[starts[group] : starts[group + 1]] for group in chosen])


def percentiles(values: Floats) -> Interval | None:
    """The central 95 % of what is not NaN; None if nothing is left, or a value is infinite."""
    values = values[~np.isnan(values)]
    if not len(values) or np.isinf(values).any():
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high


def _text(value: float) -> Any:
    """A whole number without its `.0`; any other by its shortest exact text."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else repr(value)
