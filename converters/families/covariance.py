"""The covariance that a detector measures by, judged before and after it is shrunk.

It is shrunk towards a multiple of the identity by Ledoit and Wolf's optimal amount (J. Multivar. Anal. 88,
2004) or a stated one. Shrinking makes any covariance invertible, so it would hide rows that are too few or
too alike: their rank is judged first.
"""

from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core.errors import InputError

MAX_DEPENDENT_SHARE = 0.01
"""Share of the dimensions (at least one) that may follow from the others: behind a layer norm one does."""
ROUNDING_UNITS = 4
"""Units in the last place by which equal values vary, because they were computed and stored."""


@dataclass(frozen=True)
class Covariance:
    """The covariance of rows `[n, d]`, in float64: `mean` is `[d]`, `whitening` is `[d, d]`.

    `|(x - mean) whitening|` is the Mahalanobis distance. `rank` counts the directions along which the rows
    vary, before `shrinkage`, which is the share of the identity. `condition` is the largest eigenvalue over
    the smallest one, after shrinking and in units in which every dimension has the variance 1.
    """

    mean: Any
    whitening: Any
    rank: int
    shrinkage: float
    condition: float


def estimate(rows: Any, shrinkage: float | None = None) -> Covariance:
    """Compute the covariance of finite rows `[n, d]`, shrunk by Ledoit and Wolf's amount if none is stated.

    Raises InputError if a dimension is constant, if more of them than `MAX_DEPENDENT_SHARE` follow from the
    others (with a stated shrinkage of 0: any), or if the shrunk covariance is singular in float64.
    """
    exact = rows.astype("float64")
    mean = exact.mean(axis=0)
    rank = _rank(rows, exact - mean)
    _check_rank(
        rank, len(mean), allowed=0 if shrinkage == 0 else max(1, int(MAX_DEPENDENT_SHARE * len(mean)))
    )
    matrix, share = _shrunk(exact - mean, shrinkage)
    whitening, condition = _whitening(matrix)
    return Covariance(mean, whitening, rank, share, condition)


def _rank(rows: Any, centred: Any) -> int:
    """Count the directions along which the rows vary by more than rounding explains."""
    import numpy as np

    unit = np.finfo(rows.dtype).eps * np.abs(rows).max(axis=0).astype(np.float64)
    still = np.flatnonzero(centred.std(axis=0) <= ROUNDING_UNITS * unit)
    if len(still):
        raise InputError(
            f"ood: dimension {still[0]} of the fitted embeddings is constant, and {len(still) - 1} more",
            "fit on rows in which every dimension varies",
        )
    scaled = centred / unit
    spread = np.linalg.eigvalsh(scaled.T @ scaled / len(scaled))
    noise = max(ROUNDING_UNITS**2, len(spread) * np.finfo(np.float64).eps * spread[-1])
    return int((spread > noise).sum())


def _check_rank(rank: int, width: int, allowed: int) -> None:
    if rank < width - allowed:
        raise InputError(
            f"ood: the covariance of the fitted embeddings is singular: rank {rank} of {width}, "
            f"at least {width - allowed} is asked for",
            "fit on more varied rows"
            if allowed
            else "allow shrinkage, which carries the one dimension that a layer norm takes",
        )


def _shrunk(centred: Any, shrinkage: float | None) -> tuple[Any, float]:
    """Return the shrunk covariance `[d, d]` of centred rows, and the shrinkage."""
    import numpy as np

    count, width = centred.shape
    covariance = centred.T @ centred / count
    target = np.trace(covariance) / width * np.eye(width)
    if shrinkage is None:
        spread = float(((centred**2).T @ centred**2 / count - covariance**2).sum()) / count
        distance = float(((covariance - target) ** 2).sum())
        shrinkage = min(1.0, spread / distance) if distance else 1.0
    return (1 - shrinkage) * covariance + shrinkage * target, shrinkage


def _whitening(covariance: Any) -> tuple[Any, float]:
    """Return L^-T of the Cholesky factor L, and the condition; InputError if it is singular in float64."""
    import numpy as np

    scale = np.sqrt(np.diag(covariance))
    spread = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    if spread[0] <= len(spread) * np.finfo(np.float64).eps * spread[-1]:
        raise InputError(
            "ood: the covariance of the fitted embeddings is singular, even once it was shrunk",
            "allow more shrinkage, or fit on more varied rows",
        )
    lower = np.linalg.cholesky(covariance)
    return np.linalg.solve(lower, np.eye(len(lower))).T, float(spread[-1] / spread[0])
