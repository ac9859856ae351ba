"""Dequantize weights: `(q - zero point) * scale`, per tensor or along one axis (ONNX DequantizeLinear)."""

from collections.abc import Sequence
from typing import Any


def scale_axes(value: Any, scale: Any) -> Sequence[int | None]:
    """The axes along which a scale can run, None meaning one scale for all; empty if it fits nowhere."""
    if scale.size == 1:
        return (None,)
    return [axis for axis in range(value.ndim) if scale.size == value.shape[axis]]


def restore(value: Any, scale: Any, zero_point: Any, axis: int | None) -> tuple[Any, Any]:
    """The float32 values of quantized ones, and the scale, in a shape that broadcasts over them."""
    import numpy as np

    shape = [scale.size if at == axis else 1 for at in range(value.ndim)]
    steps = scale.astype(np.float32).reshape(shape)
    restored = value.astype(np.float32)
    if zero_point is not None:
        restored -= zero_point.astype(np.float32).reshape(shape)
    restored *= steps
    return restored, steps
