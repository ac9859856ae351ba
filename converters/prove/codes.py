"""Codes of a weight beside the values of its parent, a few rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.onnx.tensors import type_of
from onnxreg.converters.prove.formula import StoredValue, read_array, unpack_nibbles

CHUNK_ELEMENTS = 2**17
"""Weights that are compared at once: they stay in the processor's cache."""


@dataclass(frozen=True)
class CodeRows:
    """Some rows, in the shape in which scales broadcast: float64 values of the parent and codes, scales, zero points.

    `span` says which scales these are: the slice of the first axis of the array of all scales.
    """

    start: int
    values: Any
    codes: Any
    scales: Any
    zeros: Any
    span: slice


class CodeTable:
    """A quantized constant and the constant of the parent that it is compared with.

    `shape` is that of the codes, split into blocks if scales are by blocks; `scales` broadcasts to it.
    """

    def __init__(self, child: StoredValue, parent: StoredValue) -> None:
        quantization = child.quantization
        assert quantization is not None, "callers look"
        self._packed = quantization.matrix > 0
        self.bits = quantization.bits
        self._rows = quantization.matrix
        self._codes = read_array(child.tensor)
        self._dims = self._codes.shape
        values = child.stored_form(parent.array()) if child.views else parent.array()
        self._values, shape, spread = self._layout(values, quantization)
        self.shape = shape
        scale = read_array(quantization.scale)
        self.scale_type = type_of(quantization.scale)
        self.scales = scale.reshape(spread)
        self.zeros = self._zero_points(quantization, spread)
        low, high = _LIMITS.get(type_of(child.tensor), (0, 0))
        if self._packed:
            low, high = 0, 2**self.bits - 1
        self.limits = (low, high)
        self.count = int(parent.size)

    def _layout(self, values: Any, quantization: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        if self._packed:
            columns, blocks, _ = self._codes.shape
            return values.T, (columns, blocks, quantization.block), (columns, blocks, 1)
        dims, axis, block = values.shape, quantization.axis, quantization.block
        if axis is None:
            flat = values.reshape(-1) if values.flags.c_contiguous else values
            self._codes = self._codes.reshape(flat.shape)
            return flat, flat.shape, (1,) * flat.ndim
        if not block:
            return values, dims, tuple(size if at == axis else 1 for at, size in enumerate(dims))
        split = (*dims[:axis], dims[axis] // block, block, *dims[axis + 1 :])
        self._codes = self._codes.reshape(split)
        return values.reshape(split), split, (*split[: axis + 1], 1, *split[axis + 2 :])

    def _zero_points(self, quantization: Any, spread: tuple[int, ...]) -> Any:
        if quantization.zero is None:
            middle = 2 ** (self.bits - 1) if self._packed else 0
            return np.full((1,) * len(spread), middle)
        zero = read_array(quantization.zero)
        if self._packed:
            columns, blocks, _ = spread
            packed = zero.reshape(columns, -1)
            zero = (packed if self.bits == 8 else unpack_nibbles(packed))[:, :blocks]
        return zero.reshape(spread if zero.size > 1 else (1,) * len(spread))

    def rows(self) -> Iterator[CodeRows]:
        """Yield all rows, in order."""
        first = self.shape[0] if self.shape else 1
        count = max(1, CHUNK_ELEMENTS // max(1, int(np.prod(self.shape[1:]))))
        for start in range(0, first, count):
            span = slice(start, start + count)
            own = span if self.scales.ndim and self.scales.shape[0] > 1 else slice(None)
            yield CodeRows(
                start,
                self._value_rows(span),
                self._code_rows(span),
                self.scales[own].astype(np.float64),
                self.zeros[span if self.zeros.shape and self.zeros.shape[0] > 1 else slice(None)].astype(
                    np.float64
                ),
                own,
            )

    def _value_rows(self, span: slice) -> Any:
        rows = np.atleast_1d(self._values)[span].astype(np.float64)
        if not self._packed:
            return rows
        padded = np.zeros((len(rows), self.shape[1] * self.shape[2]))
        padded[:, : self._rows] = rows
        return padded.reshape(len(rows), *self.shape[1:])

    def _code_rows(self, span: slice) -> Any:
        rows = np.atleast_1d(self._codes)[span]
        return unpack_nibbles(rows) if self._packed and self.bits == 4 else rows

    def real(self, errors: Any) -> Any:
        """The part of some rows that is not padding, flat by row."""
        return errors.reshape(len(errors), -1)[:, : self._rows] if self._packed else errors

    def index(self, start: int, flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The index in the stored tensor, or in the matrix of packed codes, given one in the `real` part of some rows."""
        if self._packed:
            column, row = np.unravel_index(flat, shape)
            return int(row), int(column) + start
        flat += start * int(np.prod(self.shape[1:]))
        return tuple(int(at) for at in np.unravel_index(flat, self._dims))


_LIMITS = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
"""The smallest and the largest code of an element type."""
