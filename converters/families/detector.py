"""A detector of inputs unlike the training data: the Mahalanobis distance of an embedding must be below a threshold.

The distance is `|L^-1 (x - mean)|` with the Cholesky factor `L` of the covariance. The covariance is shrunk towards a
multiple of the identity (Ledoit and Wolf, J. Multivar. Anal. 88, 2004). The threshold is a percentile of the distances
of held-out rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, log
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.measure import make_check
from onnxreg.converters.families.backbone import INPUT
from onnxreg.converters.families.heads import BATCH, make_graph
from onnxreg.converters.passes import samples
from onnxreg.converters.passes.samples import digest
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.golden import check_finite
from onnxreg.schema.compare.figures import wilson
from onnxreg.schema.core.errors import InputError

DISTANCE, VERDICT = "distance", "in_distribution"
MAX_DEPENDENT_SHARE = 0.01
"""With shrinkage, this share of the dimensions (at least one dimension) is allowed to depend linearly on others."""
ROUNDING_UNITS = 4  # differences of at most this number of units in the last place count as rounding
BATCH_ROWS = 64


@dataclass(frozen=True)
class Rows:
    """The embeddings of a file's rows: float32 `[n, width]`. `dataset` is the digest of the file's arrays.

    `keys` are hashes of the rows. `stored` is False if the backbone computed the embeddings.
    """

    name: str
    dataset: str
    keys: frozenset[bytes]
    embeddings: Any
    stored: bool = False

    def check_apart(self, used: "Rows") -> None:
        """Raise InputError if `used` has one of these rows: a detector must not be tested on its own rows."""
        embedded = keys_of(self.embeddings) & keys_of(used.embeddings)
        if count := max(len(self.keys & used.keys), len(embedded)):
            message = f"ood: {self.name} shares {count} of its rows with {used.name}, which made the detector"
            hint = "hold out other rows: a detector rejects too few of the rows that it was fitted on"
            raise InputError(message, hint)


def keys_of(rows: Any) -> frozenset[bytes]:
    return frozenset(sha256(row.tobytes()).digest() for row in rows)


def embed(session: Any, embedding: str, path: Path, images: bool = False) -> Rows:
    """Return the embeddings of a file's rows. Raise InputError if an array is missing or does not fit the backbone.

    The file may store them as the array `embedding`. If it does not, or if `images` is True, the backbone (`session`)
    computes them from the array `input`.
    """
    import numpy as np

    arrays, name = golden.read_rows(path), path.name
    dataset = str(digest([arrays]))
    if "embedding" in arrays and not images:
        shapes = {item.name: item.shape for item in session.get_outputs()}
        stored = as_float32(arrays["embedding"], shapes[embedding][1:], f"{name}: embedding")
        return Rows(name, dataset, keys_of(stored), stored, stored=True)
    if INPUT not in arrays:
        raise InputError(f"{name} has neither an array called {INPUT} nor one called embedding")
    rows = as_float32(arrays[INPUT], session.get_inputs()[0].shape[1:], f"{name}: {INPUT}")
    feeds = ({INPUT: rows[start : start + BATCH_ROWS]} for start in range(0, len(rows), BATCH_ROWS))
    batches = [samples.outputs(session, feed, "the backbone")[embedding] for feed in feeds]
    return Rows(name, dataset, keys_of(rows), np.concatenate(batches))


def as_float32(array: Any, shape: Sequence[int], label: str) -> Any:
    """Convert floats `[n, *shape]` to float32. Raise InputError for another type or shape, no rows, NaN or infinity."""
    import numpy as np

    if array.dtype.kind != "f" or array.shape[1:] != tuple(shape) or not len(array):
        axes = ", ".join(["n", *map(str, shape)])
        hint = f"it must be floats [{axes}] with a row or more"
        raise InputError(f"{label} is {array.dtype} {list(array.shape)}", hint)
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32, copy=False)
    check_finite(converted, label)
    return converted


@dataclass(frozen=True)
class Covariance:
    """The mean and shrunk covariance of rows. The distance of a row `x` is `|(x - mean) @ whitening|`.

    `mean` (`[d]`) and `whitening` (`[d, d]`) are float64. `rank` is the rank before shrinking. `shrinkage`, from 0 to
    1, is the weight of the identity. `condition` is the condition number after shrinking and scaling to variance 1.
    """

    mean: Any
    whitening: Any
    rank: int
    shrinkage: float
    condition: float

    def distances(self, rows: Any) -> Any:
        import numpy as np

        return np.linalg.norm((rows.astype(np.float64) - self.mean) @ self.whitening, axis=1)


def estimate_covariance(rows: Any, shrinkage: float | None = None) -> Covariance:
    """Estimate the covariance of finite rows `[n, d]`. If `shrinkage` is None, use the amount of Ledoit and Wolf.

    Raises InputError if a dimension is constant, or if too many dimensions depend linearly on others.
    """
    import numpy as np

    exact = rows.astype("float64")
    mean = exact.mean(axis=0)
    centred = exact - mean
    count, width = centred.shape

    # the rank: the directions along which the rows vary by more than rounding
    unit = np.finfo(rows.dtype).eps * np.abs(rows).max(axis=0).astype(np.float64)
    constant = np.flatnonzero(centred.std(axis=0) <= ROUNDING_UNITS * unit)
    if len(constant):
        raise InputError(
            f"ood: dimension {constant[0]} of the fitted embeddings is constant, and {len(constant) - 1} more",
            "fit on rows in which every dimension varies",
        )
    scaled = centred / unit
    spread = np.linalg.eigvalsh(scaled.T @ scaled / count)
    noise = max(ROUNDING_UNITS**2, width * np.finfo(np.float64).eps * spread[-1])
    rank = int((spread > noise).sum())
    least = width - (0 if shrinkage == 0 else max(1, int(MAX_DEPENDENT_SHARE * width)))
    if rank < least:
        raise InputError(
            f"ood: the covariance of the fitted embeddings is singular: rank {rank} of {width}, at least {least} is asked for",
            "fit on more varied rows; shrinkage carries the one dimension that a layer norm takes",
        )

    covariance = centred.T @ centred / count
    target = np.trace(covariance) / width * np.eye(width)
    if shrinkage is None:
        variance = float(((centred**2).T @ centred**2 / count - covariance**2).sum()) / count
        distance = float(((covariance - target) ** 2).sum())
        shrinkage = min(1.0, variance / distance) if distance else 1.0
    shrunk = (1 - shrinkage) * covariance + shrinkage * target

    scale = np.sqrt(np.diag(shrunk))
    spread = np.linalg.eigvalsh(shrunk / np.outer(scale, scale))
    if spread[0] <= width * np.finfo(np.float64).eps * spread[-1]:
        message = "ood: the covariance of the fitted embeddings is singular, even once it was shrunk"
        hint = "allow more shrinkage, or fit on more varied rows"
        raise InputError(message, hint)
    whitening = np.linalg.solve(np.linalg.cholesky(shrunk), np.eye(width)).T
    return Covariance(mean, whitening, rank, shrinkage, float(spread[-1] / spread[0]))


@dataclass(frozen=True)
class Detector:
    """A fitted detector: a row is in distribution if its distance is at most `threshold`.

    `threshold` is the `percentile` of the distances of `held_out`. `covariance` is from `rows`.
    """

    covariance: Covariance
    threshold: float
    percentile: float
    rows: Rows
    held_out: Rows

    def record(self, rejected: int) -> dict[str, Any]:
        """Return the figures of the fit for the manifest. `rejected` is the number of rejected held-out rows."""
        count = len(self.held_out.embeddings)
        return {
            "rows": len(self.rows.embeddings),
            "distinct_rows": len(keys_of(self.rows.embeddings)),
            "dataset": self.rows.dataset,
            "dimension": len(self.covariance.mean),
            "rank": self.covariance.rank,
            "shrinkage": self.covariance.shrinkage,
            "condition": float(f"{self.covariance.condition:.3g}"),
            "percentile": self.percentile,
            "threshold": self.threshold,
            "held_out": count,
            "held_out_dataset": self.held_out.dataset,
            "false_rejection": rejected / count,
            "false_rejection_interval": list(wilson(rejected / count, count)),
        }


def fit(rows: Rows, held_out: Rows, percentile: float, shrinkage: float | None = None) -> Detector:
    """Fit a detector on embeddings `[n, d]`. `percentile` is above 50 and below 100.

    Raises InputError for too few distinct rows, for a row in both files, and as `estimate_covariance` does.
    """
    import numpy as np

    for side in (rows, held_out):
        check_finite(side.embeddings, f"ood: an embedding of {side.name}")
    fitted, calibrating = (len(keys_of(side.embeddings)) for side in (rows, held_out))
    if fitted <= (width := rows.embeddings.shape[1]):
        raise InputError(
            f"ood: {rows.name} has {fitted} distinct rows for {width} dimensions: too few for a covariance",
            "fit on more rows than there are dimensions, better ten times as many",
        )
    # the largest of this number of rows is above the percentile, with 95 % confidence
    if calibrating < (least := ceil(log(0.05) / log(percentile / 100))):
        raise InputError(
            f"ood: {held_out.name} has {calibrating} distinct rows: too few for the {percentile:g}th percentile",
            f"hold out at least {least}",
        )
    held_out.check_apart(rows)
    covariance = estimate_covariance(rows.embeddings, shrinkage)
    threshold = np.percentile(covariance.distances(held_out.embeddings), percentile, method="higher")
    return Detector(covariance, float(np.float32(threshold)), percentile, rows, held_out)


def detector_graph(detector: Detector, embedding: str, opset: int) -> Any:
    """Make the graph that takes embeddings, and returns `distance` and `in_distribution` for each."""
    import numpy as np
    from onnx import TensorProto
    from onnx.helper import make_node, make_tensor_value_info

    weights = {
        "mean": detector.covariance.mean.astype(np.float32),
        "whitening": detector.covariance.whitening.astype(np.float32),
        "threshold": np.array(detector.threshold, np.float32),
    }
    if opset >= 18:  # ReduceL2 takes the axes as an input
        weights["axis"] = np.array([1], np.int64)
        length = make_node("ReduceL2", ["whitened", "axis"], [DISTANCE], keepdims=0)
    else:
        length = make_node("ReduceL2", ["whitened"], [DISTANCE], axes=[1], keepdims=0)
    nodes = [
        make_node("Sub", [embedding, "mean"], ["centred"]),
        make_node("MatMul", ["centred", "whitening"], ["whitened"]),
        length,
        make_node("LessOrEqual", [DISTANCE, "threshold"], [VERDICT]),
    ]
    width = len(detector.covariance.mean)
    rows = make_tensor_value_info(embedding, TensorProto.FLOAT, [BATCH, width])
    distance = make_tensor_value_info(DISTANCE, TensorProto.FLOAT, [BATCH])
    verdict = make_tensor_value_info(VERDICT, TensorProto.BOOL, [BATCH])
    return make_graph("out_of_distribution", nodes, weights, [rows], [distance, verdict], opset)


def rejection(session: Any, rows: Rows, name: str, metric: str, least: float | None = None) -> dict[str, Any]:
    """Measure the share of rows that a detector rejects. The check passes if the share is at least `least`."""
    takes, count = session.get_inputs()[0].name, len(rows.embeddings)
    hits = int((~samples.outputs(session, {takes: rows.embeddings}, "the detector")[VERDICT]).sum())
    interval = [float(f"{end:.6g}") for end in wilson(hits / count, count)]
    about = {"name": name, "samples": count, "dataset": rows.dataset, "interval": interval}
    return make_check(about, metric, hits / count, least, is_least=True)
