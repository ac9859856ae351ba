"""Statistics of release checks: a share with its interval, two models compared on the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, log, sqrt

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: intervals are 95 %."""

Interval = tuple[float, float]


def wilson(hits: int, rows: int) -> Interval:
    """Compute the 95 % interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    share, spread = hits / rows, Z * Z / rows
    middle = (share + spread / 2) / (1 + spread)
    half = Z * sqrt(share * (1 - share) / rows + spread / rows / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def least_rows(percentile: float) -> int:
    """Compute how many rows have their largest value above a percentile, with 95 % confidence."""
    return ceil(log(0.05) / log(percentile / 100))


@dataclass(frozen=True)
class PairedTest:
    """Two models on the same rows: only the first is right on `lost` of them, only the second on `won`."""

    rows: int
    lost: int
    won: int

    @classmethod
    def of(cls, before: Sequence[bool], after: Sequence[bool]) -> "PairedTest":
        pairs = list(zip(before, after, strict=True))
        return cls(len(pairs), sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs))

    @property
    def loss(self) -> float:
        """Accuracy of the first less that of the second."""
        return (self.lost - self.won) / self.rows

    @property
    def interval(self) -> Interval:
        """95 % interval of the loss: the adjusted Wald interval for matched pairs
        (Agresti and Min, Stat. Med. 24, 2005).
        """
        rows, one, other = self.rows + 2, self.lost + 0.5, self.won + 0.5
        middle = (one - other) / rows
        half = Z * sqrt(one + other - (one - other) ** 2 / rows) / rows
        return max(-1.0, middle - half), min(1.0, middle + half)

    @property
    def mcnemar(self) -> float:
        """Two-sided p value of McNemar's exact (binomial) test: the chance of so uneven a split."""
        split = self.lost + self.won
        tail = sum(comb(split, k) for k in range(min(self.lost, self.won) + 1))
        return float(min(1.0, 2 * tail / 2**split))
