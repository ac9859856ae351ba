"""Out-of-distribution detection by Mahalanobis distance, fitted in float64 and folded into an ONNX graph.

With the Cholesky factor L of the covariance the distance is |L^-1 (x - mean)|: the graph multiplies by L^-T,
which in float32 is more exact than the inverse covariance. The threshold is a percentile of the distances of
held-out rows.

The covariance is shrunk towards a multiple of the identity by Ledoit and Wolf's optimal amount (J. Multivar. Anal.
88, 2004) or a stated one. Shrinking makes any covariance invertible, so it would hide rows that are too few or too
alike: their rank is judged first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onnxreg.converters.families.head_graphs import BATCH, INPUT, Values, make_graph
from onnxreg.converters.families.rows import RowEmbeddings, keys_of
from onnxreg.converters.families.statistics import Interval, least_rows, wilson
from onnxreg.converters.runtime.npz import check_finite
from onnxreg.schema.core.errors import InputError

DISTANCE, VERDICT = "distance", "in_distribution"
AXES_ARE_AN_INPUT = 18
"""The first opset in which ReduceL2 takes its axes as an input."""
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


def estimate_covariance(rows: Any, shrinkage: float | None = None) -> Covariance:
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
    constant = np.flatnonzero(centred.std(axis=0) <= ROUNDING_UNITS * unit)
    if len(constant):
        raise InputError(
            f"ood: dimension {constant[0]} of the fitted embeddings is constant, and {len(constant) - 1} more",
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


@dataclass(frozen=True)
class Detector:
    """A fitted detector in float64: a row is in distribution if its distance is at most `threshold`.

    `covariance` was fitted on `rows` rows, of which `distinct` differ. `held_out` rows gave the threshold at
    `percentile`, and `rejected` of them are above it. The datasets are the digests of both.
    """

    covariance: Covariance
    threshold: float
    percentile: float
    rows: int
    distinct: int
    dataset: str
    held_out: int
    held_out_dataset: str
    rejected: int = 0

    @property
    def false_rejection(self) -> tuple[float, Interval]:
        """Share of the held-out rows that it rejects, with its 95 % interval."""
        return self.rejected / self.held_out, wilson(self.rejected, self.held_out)

    def distances(self, rows: Any) -> Any:
        """Compute the distance, float64 `[n]`, of each of the rows `[n, d]`."""
        import numpy as np

        centred = rows.astype(np.float64) - self.covariance.mean
        return np.linalg.norm(centred @ self.covariance.whitening, axis=1)

    def record(self) -> dict[str, Any]:
        """Return the facts behind the threshold, in JSON form."""
        share, interval = self.false_rejection
        return {
            "rows": self.rows,
            "distinct_rows": self.distinct,
            "dataset": self.dataset,
            "dimension": len(self.covariance.mean),
            "rank": self.covariance.rank,
            "shrinkage": self.covariance.shrinkage,
            "condition": float(f"{self.covariance.condition:.3g}"),
            "percentile": self.percentile,
            "threshold": self.threshold,
            "held_out": self.held_out,
            "held_out_dataset": self.held_out_dataset,
            "false_rejection": share,
            "false_rejection_interval": list(interval),
        }


def fit(
    rows: RowEmbeddings, held_out: RowEmbeddings, percentile: float, shrinkage: float | None = None
) -> Detector:
    """Fit on embeddings `[n, d]` and take the threshold from others `[m, d]`.

    Args:
        percentile: of the held-out distances; above 50 and below 100.
        shrinkage: the share of the identity, 0 to 1; Ledoit and Wolf's if absent.

    Raises InputError if either side has too few distinct rows, or NaN or infinity, if a held-out row was
    fitted on, and what `estimate_covariance` raises.
    """
    import numpy as np

    distinct = _check_rows(rows, held_out, percentile)
    fitted, others = rows.embeddings, held_out.embeddings
    detector = Detector(
        estimate_covariance(fitted, shrinkage),
        np.inf,
        percentile,
        len(fitted),
        distinct,
        rows.dataset,
        len(others),
        held_out.dataset,
    )
    distances = detector.distances(others)
    threshold = float(np.float32(np.percentile(distances, percentile, method="higher")))
    rejected = int((distances.astype(np.float32) > np.float32(threshold)).sum())
    return replace(detector, threshold=threshold, rejected=rejected)


def _check_rows(rows: RowEmbeddings, held_out: RowEmbeddings, percentile: float) -> int:
    """Count the distinct rows of the fit; InputError if either side is not enough for a detector."""
    for side in (rows, held_out):
        check_finite(side.embeddings, f"ood: an embedding of {side.name}")
    fitted, calibrating = (len({*keys_of(side.embeddings)}) for side in (rows, held_out))
    if fitted <= (width := rows.embeddings.shape[1]):
        raise InputError(
            f"ood: {rows.name} has {fitted} distinct rows for {width} dimensions: too few for a covariance",
            "fit on more rows than there are dimensions, better ten times as many",
        )
    if calibrating < (least := least_rows(percentile)):
        raise InputError(
            f"ood: {held_out.name} has {calibrating} distinct rows: "
            f"too few for the {percentile:g}th percentile",
            f"hold out at least {least}",
        )
    held_out.check_apart(rows)
    return fitted


def detector_graph(detector: Detector, opset: int) -> Any:
    """Make the graph from `embedding` to `distance` and `in_distribution`, one of each for a row."""
    import numpy as np
    import onnx

    make = onnx.helper.make_node
    nodes = [
        make("Sub", [INPUT, "mean"], ["centred"]),
        make("MatMul", ["centred", "whitening"], ["whitened"]),
        _length(opset),
        make("LessOrEqual", [DISTANCE, "threshold"], [VERDICT]),
    ]
    arrays: Mapping[str, Any] = {
        "mean": detector.covariance.mean.astype(np.float32),
        "whitening": detector.covariance.whitening.astype(np.float32),
        **({"axis": np.array([1], np.int64)} if opset >= AXES_ARE_AN_INPUT else {}),
        "threshold": np.array(detector.threshold, np.float32),
    }
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    inputs: Values = {INPUT: ("FLOAT", [BATCH, len(detector.covariance.mean)])}
    outputs: Values = {DISTANCE: ("FLOAT", [BATCH]), VERDICT: ("BOOL", [BATCH])}
    return make_graph("out_of_distribution", nodes, weights, inputs, outputs, opset)


def _length(opset: int) -> Any:
    """Make the node of the Euclidean length of each row."""
    from onnx.helper import make_node

    if opset >= AXES_ARE_AN_INPUT:
        return make_node("ReduceL2", ["whitened", "axis"], [DISTANCE], keepdims=0)
    return make_node("ReduceL2", ["whitened"], [DISTANCE], axes=[1], keepdims=0)


def detector_tensors(detector: Detector) -> dict[str, Any]:
    """Return the float64 tensors for a safetensors file: `mean`, `whitening`, `threshold`."""
    import numpy as np

    return {
        "mean": detector.covariance.mean,
        "whitening": np.ascontiguousarray(detector.covariance.whitening),
        "threshold": np.array([detector.threshold]),
    }
