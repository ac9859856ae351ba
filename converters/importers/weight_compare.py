"""Compare the weights of two model files, up to what a conversion changes."""

from collections.abc import Mapping
from typing import Any

from onnxreg.converters.onnx.elements import FLOATS, restore, scale_axes
from onnxreg.schema.core.errors import InputError

FLOAT_TOLERANCE = 1e-6
"""Relative: what constant folding may change in a float32 tensor that keeps its name."""
HALF_TOLERANCE = 2.0**-10
"""Relative: two roundings to float16; beside it `HALF_TINY` absolute, and clipping at `HALF_MAX`."""
HALF_TINY = 1e-7
HALF_MAX = 65504.0
BLOCK_ELEMENTS = 2**20
"""Elements that are compared at once."""
MAX_QUANTIZATION_STEPS = 1.001
"""A dequantized weight `(q - zero point) * scale` is within so many scales of its parent: one, and rounding."""


def compare_weights(parent: Mapping[str, Any], child: Mapping[str, Any], path: str, parent_path: str) -> int:
    """Count the weights of `child` that have a counterpart in `parent`; all of them must agree.

    Counterparts have one name (`<name>_quantized` with its scale and zero point for a quantized one) and one shape.
    Raises InputError, naming the tensor, if one differs by more than the tolerances of this module.
    """
    compared = 0
    for name in child:
        stem = name.removesuffix("_quantized")
        if stem not in parent or (stem != name and f"{stem}_scale" not in child):
            continue
        reference, value = parent[stem], child[name]
        if reference.shape != value.shape or reference.dtype.name not in FLOATS or not value.size:
            continue
        if stem != name:
            scale, zero_point = child[f"{stem}_scale"], child.get(f"{stem}_zero_point")
            agree = _quantized_agree(reference, value, scale, zero_point)
        elif value.dtype.name in FLOATS:
            agree = _floats_agree(reference.reshape(-1), value.reshape(-1))
        else:
            continue
        if not agree:
            raise InputError(
                f"{path} is not a conversion of {parent_path}: their weights differ in {stem}",
                "the directory mixes files of two exports; export again into an empty directory",
            )
        compared += reference.ndim >= 2
    return compared


def _floats_agree(reference: Any, value: Any) -> bool:
    """Return True if each element is within the tolerance of the narrower type; flat arrays, read in
    blocks."""
    import numpy as np

    half = "float16" in (reference.dtype.name, value.dtype.name)
    wide = np.float64 if "float64" in (reference.dtype.name, value.dtype.name) else np.float32
    for start in range(0, reference.size, BLOCK_ELEMENTS):
        a = reference[start : start + BLOCK_ELEMENTS].astype(wide)
        b = value[start : start + BLOCK_ELEMENTS].astype(wide)
        if half:
            a, b = np.clip(a, -HALF_MAX, HALF_MAX), np.clip(b, -HALF_MAX, HALF_MAX)
        relative, absolute = (HALF_TOLERANCE, HALF_TINY) if half else (FLOAT_TOLERANCE, 0.0)
        if not np.allclose(b, a, relative, absolute, equal_nan=True):
            return False
    return True


def _quantized_agree(reference: Any, value: Any, scale: Any, zero_point: Any) -> bool:
    """Return True if each dequantized element is within `MAX_QUANTIZATION_STEPS` scales, per tensor or
    along an axis of their number."""
    import numpy as np

    if zero_point is not None and zero_point.size != scale.size:
        return False
    for axis in scale_axes(value, scale):
        restored, steps = restore(value, scale, zero_point, axis)
        restored -= reference
        np.abs(restored, out=restored)
        if np.all(restored <= MAX_QUANTIZATION_STEPS * np.abs(steps)):
            return True
    return False
