"""Out-of-distribution detection by Mahalanobis distance, fitted in float64 and folded into an ONNX graph.

The covariance is shrunk towards a multiple of the identity by Ledoit and Wolf's optimal amount (J. Multivar. Anal. 88, 2004) or a
stated one. With its Cholesky factor L the distance is |L^-1 (x - mean)|: the graph multiplies by L^-T, which in float32 keeps
what multiplying by the inverse covariance loses. The threshold is a percentile of the distances of rows that were held out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.families.heads import BATCH, INPUT, Values, make_graph
from onnxreg.converters.families.rows import check_finite, shared_rows
from onnxreg.converters.families.statistics import Interval, least_rows, wilson
from onnxreg.schema.errors import InputError

DISTANCE, VERDICT = "distance", "in_distribution"


@dataclass(frozen=True)
class Detector:
    """A fitted detector, float64: a row x is in distribution where `|(x - mean) whitening| <= threshold`.

    `mean` `[d]`, `whitening` `[d, d]`. `rows` were fitted on, `held_out` gave the threshold at `percentile`; of these `rejected`
    are above it. `shrinkage` is the share of the identity.
    """

    mean: Any
    whitening: Any
    threshold: float
    percentile: float
    rows: int
    held_out: int
    rejected: int
    shrinkage: float

    @property
    def false_rejection(self) -> tuple[float, Interval]:
        """The share of the held-out rows that it rejects, with its 95 % interval."""
        return self.rejected / self.held_out, wilson(self.rejected, self.held_out)

    def distances(self, rows: Any) -> Any:
        """Float64 `[n]` of rows `[n, d]`."""
        import numpy as np

        return np.linalg.norm((rows.astype(np.float64) - self.mean) @ self.whitening, axis=1)

    def record(self) -> dict[str, Any]:
        """What a reader must know to trust the threshold, in JSON."""
        share, interval = self.false_rejection
        return {
            "rows": self.rows,
            "dimension": len(self.mean),
            "shrinkage": self.shrinkage,
            "percentile": self.percentile,
            "threshold": self.threshold,
            "held_out": self.held_out,
            "false_rejection": share,
            "false_rejection_interval": list(interval),
        }


def fit(rows: Any, held_out: Any, percentile: float, shrinkage: float | None = None) -> Detector:
    """Fit on embeddings `[n, d]` and take the threshold from others `[m, d]`.

    Args:
        percentile: of the held-out distances; above 50 and below 100.
        shrinkage: the share of the identity, 0 to 1; Ledoit and Wolf's where absent.

    Raises InputError where there are too few distinct rows of either kind, they hold NaN or infinity, a held-out row was fitted
    on, or the covariance, once shrunk, is singular.
    """
    import numpy as np

    _check_rows(rows, held_out, percentile)
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=0)
    covariance, share = _shrunk(exact - mean, shrinkage)
    detector = Detector(mean, _whitening(covariance), np.inf, percentile, len(rows), len(held_out), 0, share)
    distances = detector.distances(held_out)
    threshold = float(np.float32(np.percentile(distances, percentile, method="higher")))
    rejected = int((distances.astype(np.float32) > np.float32(threshold)).sum())
    return Detector(
        mean, detector.whitening, threshold, percentile, len(rows), len(held_out), rejected, share
    )


def _check_rows(rows: Any, held_out: Any, percentile: float) -> None:
    if not 50 < percentile < 100:
        raise InputError(f"the percentile of the detector is {percentile:g}", "it is above 50 and below 100")
    if rows.ndim != 2 or held_out.ndim != 2 or rows.shape[1] != held_out.shape[1]:
        raise InputError("the detector: rows and held-out rows are not embeddings of one width")
    check_finite(rows, "the detector: a row")
    check_finite(held_out, "the detector: a held-out row")
    fitted, calibrating = (len({row.tobytes() for row in side}) for side in (rows, held_out))
    if fitted <= rows.shape[1]:
        raise InputError(
            f"the detector has {fitted} distinct rows for {rows.shape[1]} dimensions: too few for a covariance",
            "fit on more rows than there are dimensions, better ten times as many",
        )
    if calibrating < (least := least_rows(percentile)):
        raise InputError(
            f"the detector has {calibrating} distinct held-out rows: too few for the {percentile:g}th percentile",
            f"hold out at least {least}",
        )
    if shared := shared_rows(held_out, rows):
        raise InputError(
            f"the detector was fitted on {shared} of its {len(held_out)} held-out rows",
            "a threshold from rows of the fit rejects far more than it says: hold out others",
        )


def _shrunk(centred: Any, shrinkage: float | None) -> tuple[Any, float]:
    """The covariance `[d, d]` of centred rows, shrunk, and by how much."""
    import numpy as np

    count, width = centred.shape
    covariance = centred.T @ centred / count
    target = np.trace(covariance) / width * np.eye(width)
    if shrinkage is None:
        spread = float(((centred**2).T @ centred**2 / count - covariance**2).sum()) / count
        distance = float(((covariance - target) ** 2).sum())
        shrinkage = min(1.0, spread / distance) if distance else 1.0
    return (1 - shrinkage) * covariance + shrinkage * target, shrinkage


def _whitening(covariance: Any) -> Any:
    """L^-T of the Cholesky factor L; InputError where there is none that float64 can tell from singular."""
    import numpy as np

    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale) if scale.all() else None
    if correlation is None or np.linalg.cond(correlation) > 1 / (np.finfo(np.float64).eps * len(covariance)):
        raise InputError(
            "the detector: the covariance of its rows is singular",
            "a dimension is constant or follows from others: allow shrinkage, or fit on more varied rows",
        )
    lower = np.linalg.cholesky(covariance)
    return np.linalg.solve(lower, np.eye(len(lower))).T


def detector_graph(detector: Detector, opset: int) -> Any:
    """`embedding` float32 `[batch_size, d]` to `distance` float32 and `in_distribution` bool, both `[batch_size]`."""
    import numpy as np
    import onnx

    make = onnx.helper.make_node
    nodes = [
        make("Sub", [INPUT, "mean"], ["centred"]),
        make("MatMul", ["centred", "whitening"], ["whitened"]),
        make("ReduceL2", ["whitened", "axis"], [DISTANCE], keepdims=0),
        make("LessOrEqual", [DISTANCE, "threshold"], [VERDICT]),
    ]
    arrays: Mapping[str, Any] = {
        "mean": detector.mean.astype(np.float32),
        "whitening": detector.whitening.astype(np.float32),
        "axis": np.array([1], np.int64),
        "threshold": np.array(detector.threshold, np.float32),
    }
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    inputs: Values = {INPUT: ("FLOAT", [BATCH, len(detector.mean)])}
    outputs: Values = {DISTANCE: ("FLOAT", [BATCH]), VERDICT: ("BOOL", [BATCH])}
    return make_graph("out_of_distribution", nodes, weights, inputs, outputs, opset)


def detector_tensors(detector: Detector) -> dict[str, Any]:
    """The same as float64 tensors, for a safetensors file: `mean`, `whitening`, `threshold`."""
    import numpy as np

    return {
        "mean": detector.mean,
        "whitening": np.ascontiguousarray(detector.whitening),
        "threshold": np.array([detector.threshold]),
    }
