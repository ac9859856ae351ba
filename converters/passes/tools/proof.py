"""The proof of a pass's result: it loads, gives numbers, and is near its parent.

The checker accepts graphs that ONNX Runtime refuses, and converters leave graphs that run and mean something else.
So the outputs of what a pass made are compared with those of what it was made from.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onnxreg.converters.onnx.external_data import tensors
from onnxreg.converters.passes.tools import model_file
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import numpy_type, run_session
from onnxreg.schema.core.errors import ConversionError, first_line

MIN_COSINE = 0.5
"""The least cosine of an output with its parent's: below it the graph is wrong, not rounded."""

ROUNDINGS = 8
"""The steps of a 16-bit type that an output may be off: two kernels round at different places."""
STEPS = {10: 2.0**-10, 16: 2.0**-7}
"""The distance of 1 from the next number in float16 and bfloat16, by `onnx.TensorProto.DataType`."""


def tolerance_of(work: Any, subject: Any) -> float | None:
    """The largest allowed distance of a pass's result from `subject`, in parts of an output's largest value.

    That is the pass's own `tolerance`, and more for a graph with weights of 16 bits. None if the pass has none.
    """
    stated: float | None = getattr(work, "tolerance", None)
    if stated is None:
        return None
    kinds = {tensor.data_type for tensor in tensors(subject)}
    return max(stated, *(ROUNDINGS * step for kind, step in STEPS.items() if kind in kinds), 0.0)


def outputs(session: Any, feed: Feed, label: str) -> dict[str, Any]:
    """The outputs of one run by name, the inputs given in the types that the graph takes.

    Raises ConversionError, naming `label`, if it does not run.
    """
    import numpy as np

    types = {item.name: numpy_type(item.type) for item in session.get_inputs()}
    try:
        given = {name: np.asarray(feed[name], dtype=dtype) for name, dtype in types.items()}
        return run_session(session, given)
    except Exception as error:
        raise ConversionError(f"{label} does not run in ONNX Runtime: {first_line(error)}") from error


def all_outputs(graph: Any, feeds: Sequence[Feed], label: str) -> list[dict[str, Any]]:
    """The outputs of a graph (`onnx.ModelProto`) for each feed; see `outputs`."""
    session = model_file.session(graph, label)
    return [outputs(session, feed, label) for feed in feeds]


def compare(
    expected: Sequence[Mapping[str, Any]],
    got: Sequence[Mapping[str, Any]],
    label: str,
    tolerance: float | None = None,
) -> dict[str, dict[str, float]]:
    """Compare outputs over all runs: `max_abs_diff`, and `cosine` of all values of one output together.

    Raises ConversionError, naming `label`, for an output that is lost or has another shape, NaN on either side, a
    cosine below `MIN_COSINE`, or a difference above `tolerance`, which is in parts of the largest value (at least 1).
    """
    distances = {}
    for name in (name for name, array in expected[0].items() if _is_number(array)):
        parent, child = _values(name, expected, got, label)
        distances[name] = _distance(parent, child)
        _judge(distances[name], parent, f"{label}: the output {name}", tolerance)
    return distances


def _values(
    name: str, expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], label: str
) -> tuple[Any, Any]:
    """All values of one output on both sides, float64, without those that are infinite in the parent."""
    import numpy as np

    if any(name not in arrays for arrays in got):
        raise ConversionError(f"{label} lost the output {name}")
    if any(a[name].shape != b[name].shape for a, b in zip(expected, got, strict=True)):
        raise ConversionError(f"{label}: the output {name} has another shape than the parent's")
    parent, child = (
        np.concatenate([arrays[name].astype(np.float64).reshape(-1) for arrays in side])
        for side in (expected, got)
    )
    if np.isnan(parent).any():
        raise ConversionError(f"the graph that {label} was given has NaN in its output {name}")
    finite = np.isfinite(parent)
    if np.isnan(child).any() or not np.isfinite(child[finite]).all():
        raise ConversionError(f"{label}: NaN or infinity in the output {name}")
    return parent[finite], child[finite]


def _distance(parent: Any, child: Any) -> dict[str, float]:
    """Six significant digits."""
    import numpy as np

    norms = float(np.linalg.norm(parent) * np.linalg.norm(child))
    cosine = float(parent @ child) / norms if norms else float(np.array_equal(parent, child))
    largest = float(np.abs(parent - child).max(initial=0.0))
    return {"max_abs_diff": float(f"{largest:.6g}"), "cosine": float(f"{cosine:.6g}")}


def _judge(distance: Mapping[str, float], parent: Any, label: str, tolerance: float | None) -> None:
    import numpy as np

    if distance["cosine"] < MIN_COSINE:
        raise ConversionError(
            f"{label} is not the parent's: their cosine is {distance['cosine']:.3g}, the least is {MIN_COSINE}"
        )
    scale = max(1.0, float(np.abs(parent).max(initial=0.0)))
    if tolerance is not None and distance["max_abs_diff"] > tolerance * scale:
        raise ConversionError(
            f"{label} is {distance['max_abs_diff']:.3g} from the parent's, the most is {tolerance * scale:.3g}"
        )


def _is_number(array: Any) -> bool:
    import numpy as np

    return isinstance(array, np.ndarray) and (array.dtype == bool or np.issubdtype(array.dtype, np.number))
