"""Tensor element types: one number, three spellings.

ONNX (`TensorProto.DataType`) and the ORT format (`fbs.TensorDataType`) number them alike; contracts are written with
numpy's names, operator configs with the C++ names of ONNX Runtime.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple


class Element(NamedTuple):
    """`name` is numpy's (ml_dtypes' beyond numpy), `cpp` ONNX Runtime's, `bits` the size of one element (0: none)."""

    name: str
    cpp: str
    bits: int


ELEMENTS = {
    1: Element("float32", "float", 32),
    2: Element("uint8", "uint8_t", 8),
    3: Element("int8", "int8_t", 8),
    4: Element("uint16", "uint16_t", 16),
    5: Element("int16", "int16_t", 16),
    6: Element("int32", "int32_t", 32),
    7: Element("int64", "int64_t", 64),
    8: Element("str", "std::string", 0),
    9: Element("bool", "bool", 8),
    10: Element("float16", "MLFloat16", 16),
    11: Element("float64", "double", 64),
    12: Element("uint32", "uint32_t", 32),
    13: Element("uint64", "uint64_t", 64),
    14: Element("complex64", "std::complex<float>", 64),
    15: Element("complex128", "std::complex<double>", 128),
    16: Element("bfloat16", "BFloat16", 16),
    17: Element("float8_e4m3fn", "Float8E4M3FN", 8),
    18: Element("float8_e4m3fnuz", "Float8E4M3FNUZ", 8),
    19: Element("float8_e5m2", "Float8E5M2", 8),
    20: Element("float8_e5m2fnuz", "Float8E5M2FNUZ", 8),
    21: Element("uint4", "UInt4x2", 4),
    22: Element("int4", "Int4x2", 4),
    23: Element("float4_e2m1fn", "Float4E2M1x2", 4),
    24: Element("float8_e8m0fnu", "Float8E8M0", 8),
    25: Element("uint2", "UInt2x4", 2),
    26: Element("int2", "Int2x4", 2),
}
"""Every element type that ONNX 1.23 names, by its number."""

FLOATS = frozenset({"float32", "float16", "float64", "bfloat16"})
QUANTIZED = frozenset(element.name for element in ELEMENTS.values() if 0 < element.bits <= 8) - {"bool"}


def tensor_bytes(tensor: Any) -> int:
    """The bytes that the elements of a tensor (`onnx.TensorProto`) take; of strings, none."""
    element = ELEMENTS.get(tensor.data_type)
    return (prod(tensor.dims) * element.bits + 7) // 8 if element else 0


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
