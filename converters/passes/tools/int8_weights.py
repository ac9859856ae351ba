"""Symmetric signed 8-bit weights in numpy: the numbers of ONNX Runtime's quantizer, for all channels at once.

The formulas are those of onnxruntime.quantization (`compute_scale_zp` and `quantize_nparray`), to the bit.
"""

from collections.abc import Iterable
from typing import Any

LIMIT, REDUCED_LIMIT = 127, 64
"""The largest code, and the largest with `reduce_range`."""

STRIDE = 16
"""`relative_error` looks at every so many rows of a weight."""


def scales(weight: Any, axis: int | None, limit: int = LIMIT) -> Any:
    """The float32 value of one code step, broadcastable to `weight`, for each index of `axis`.

    The largest magnitude by `limit`; 1 if that is not a normal number, as in a channel of zeros.

    Args:
        weight: float32 of any rank.
        axis: None for one scale for the whole tensor.
    """
    import numpy as np

    others = tuple(at for at in range(weight.ndim) if axis is None or at != axis % weight.ndim)
    low = weight.min(axis=others, keepdims=True, initial=0)
    high = weight.max(axis=others, keepdims=True, initial=0)
    wide = 2 * np.maximum(-low, high).astype(np.float64) / (2 * limit)
    return np.where(wide < np.finfo(np.float32).tiny, 1, wide).astype(np.float32)


def codes(weight: Any, steps: Any) -> Any:
    """The int8 codes of a float32 weight; `steps` as `scales` gives them."""
    import numpy as np

    scaled = weight / steps
    np.rint(scaled, out=scaled)
    np.clip(scaled, -128, 127, out=scaled)
    return scaled.astype(np.int8)


def relative_error(weights: Iterable[tuple[Any, int]], signed: bool = True) -> dict[str, float]:
    """The relative error of 8-bit codes of float32 weights of rank 2 or more, each with its channel axis.

    Signed codes are symmetric, unsigned ones have a zero point.

    The root of the squared error over the squared weights, all of them together, with a scale per channel and with
    one per tensor; every `STRIDE`-th row counts. Four significant digits.
    """
    import numpy as np

    energy, lost = 0.0, {"per_channel": 0.0, "per_tensor": 0.0}
    for weight, channels in weights:
        rows = np.moveaxis(weight, channels, -1).reshape(-1, weight.shape[channels])
        sample = rows[::STRIDE]
        energy += _energy(sample)
        for name, axis in (("per_channel", -1), ("per_tensor", None)):
            lost[name] += _energy(sample - _restored(sample, rows, axis, signed))
    return {name: float(f"{(value / energy) ** 0.5 if energy else 0.0:.4g}") for name, value in lost.items()}


def _restored(sample: Any, rows: Any, axis: int | None, signed: bool) -> Any:
    """Some rows of a weight after coding and decoding, with the scales of all rows."""
    import numpy as np

    if signed:
        steps = scales(rows, axis)
        return codes(sample, steps) * steps
    others = None if axis is None else 0
    low, high = rows.min(axis=others, initial=0), rows.max(axis=others, initial=0)
    step = np.where(high > low, (high - low) / 255, 1)
    zero = np.rint(-low / step)
    return (np.clip(np.rint(sample / step) + zero, 0, 255) - zero) * step


def _energy(values: Any) -> float:
    import numpy as np

    return float(np.square(values, dtype=np.float64).sum())
