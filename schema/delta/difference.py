"""Differences of arrays. `encode` makes a payload from old and new numbers, and `restore` makes the new bytes from the
payload and the old bytes. Needs numpy.

Elements of `width` bytes are read as unsigned little-endian integers. In float mode, they are first mapped to integers
that sort as the floats do. The old element is subtracted from the new element, modulo 256 ** width. The sign of the
result moves to the lowest bit (zigzag). The lowest bytes of all elements are stored first, then the second-lowest, and
so on (planes). A sparse payload begins with a bit for each element: 1 if it changed. Only changed elements follow, with
zigzag values reduced by 1.
"""

from typing import Any

import numpy as np

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.delta.delta_format import FLOAT, SPARSE, Span, inflate


def restore(span: Span, old: bytes) -> Any:
    """Make the new bytes from the old bytes and the payload of a span. The result is a uint8 array of shape
    `[span.length]`.

    Raise InputError if the size of the payload is wrong.
    """
    kind = np.dtype(f"<u{span.width}")
    before = np.frombuffer(old, kind)
    if span.mode & SPARSE:
        deltas = _read_sparse(span, kind)
    else:
        deltas = _unplane(inflate(span.payload, span.length, span.length), kind)
    deltas = (deltas >> 1) ^ (-(deltas & 1).view(f"<i{span.width}")).view(kind)
    if span.mode & FLOAT:
        return _from_ordered(_to_ordered(before) + deltas).view(np.uint8)
    return (before + deltas).view(np.uint8)


def encode(new: Any, old: Any, mode: int) -> bytes:
    """Make a payload from two unsigned arrays of one dtype, without deflating it. `mode` has the bits FLOAT and SPARSE."""
    delta = _to_ordered(new) - _to_ordered(old) if mode & FLOAT else new - old
    signed = delta.view(f"<i{new.dtype.itemsize}")
    zigzag = ((signed << 1) ^ (signed >> (8 * new.dtype.itemsize - 1))).view(new.dtype)
    if not mode & SPARSE:
        return _planes(zigzag)
    changed = zigzag != 0
    return np.packbits(changed).tobytes() + _planes(zigzag[changed] - new.dtype.type(1))


def planes(payload: bytes, length: int, width: int, mode: int) -> list[Any]:
    """Split a payload into its planes. A plane has one byte of each element: the first plane has the lowest bytes. If
    the payload is sparse, the mask of changed elements comes first.
    """
    data = np.frombuffer(payload, np.uint8)
    mask_size = (length // width + 7) // 8 if mode & SPARSE else 0
    parts = [data[:mask_size], *np.array_split(data[mask_size:], width)]
    return [part for part in parts if part.size]


def _read_sparse(span: Span, kind: Any) -> Any:
    count = span.length // span.width
    mask_size = (count + 7) // 8
    data = inflate(span.payload, mask_size + span.length)
    bits = np.unpackbits(np.frombuffer(data[:mask_size], np.uint8))
    changed = bits[:count].view(bool)
    if len(data) != mask_size + int(changed.sum()) * span.width or bits[count:].any():
        raise InputError("a sparse payload does not have a number for each changed element")
    deltas = np.zeros(count, kind)
    deltas[changed] = _unplane(data[mask_size:], kind) + kind.type(1)
    return deltas


def _planes(values: Any) -> bytes:
    return bytes(values.view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes())


def _unplane(data: bytes, kind: Any) -> Any:
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(kind).reshape(-1)


def _to_ordered(values: Any) -> Any:
    """Map floats to unsigned integers that sort in the same order. `values` has the bits of the floats as integers."""
    sign = values.dtype.type(1 << (8 * values.dtype.itemsize - 1))
    return np.where(values & sign, ~values, values | sign)


def _from_ordered(values: Any) -> Any:
    sign = values.dtype.type(1 << (8 * values.dtype.itemsize - 1))
    return np.where(values & sign, values ^ sign, ~values)
