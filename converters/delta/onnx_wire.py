"""The offsets of initializers in an ONNX file, read from its wire format: onnx's own parser gives no offsets.

Source: onnx.proto3 (field numbers) and the Protocol Buffers encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
_EXTERNAL = 1


@dataclass(frozen=True, slots=True)
class StoredInitializer:
    """An initializer with dense bytes: at `start` in the file itself, or in the external file `location`.

    `length` is 0 if an external tensor does not state it.
    """

    name: str
    data_type: int
    dims: tuple[int, ...]
    start: int
    length: int
    location: str | None = None


def initializers(data: Any) -> Iterator[StoredInitializer]:
    """The initializers of the main graph with raw or external data. ValueError if the bytes are not protobuf."""
    for number, _, start, stop in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            for inner, _, first, last in _fields(data, start, stop):
                if inner == _GRAPH_INITIALIZER and (item := _tensor(data, first, last)) is not None:
                    yield item


def _tensor(data: Any, start: int, stop: int) -> StoredInitializer | None:
    """One `TensorProto`; None if its data is in typed fields."""
    name, data_type, dims, raw, is_external = "", 0, [], None, False
    entries: dict[str, str] = {}
    for number, value, first, last in _fields(data, start, stop):
        if number == _NAME:
            name = bytes(data[first:last]).decode()
        elif number == _DATA_TYPE:
            data_type = value
        elif number == _DIMS:
            dims += [value] if last == first else _packed(data, first, last)
        elif number == _RAW_DATA:
            raw = (first, last - first)
        elif number == _DATA_LOCATION:
            is_external = value == _EXTERNAL
        elif number == _EXTERNAL_DATA:
            pair = {key: bytes(data[at:end]).decode() for key, _, at, end in _fields(data, first, last)}
            entries[pair.get(1, "")] = pair.get(2, "")
    if is_external:
        offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
        return StoredInitializer(name, data_type, tuple(dims), offset, length, entries.get("location", ""))
    return None if raw is None else StoredInitializer(name, data_type, tuple(dims), *raw)


def _packed(data: Any, start: int, stop: int) -> list[int]:
    values = []
    while start < stop:
        value, start = _varint(data, start, stop)
        values.append(value)
    return values


def _fields(data: Any, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message: its number, its value if it is a number, and first and last offset of its bytes."""
    while at < stop:
        key, at = _varint(data, at, stop)
        kind, value, end = key & 7, 0, at
        if kind == _VARINT:
            value, at = _varint(data, at, stop)
            end = at
        elif kind == _BYTES:
            size, at = _varint(data, at, stop)
            end = at + size
        elif kind in (_FIXED64, _FIXED32):
            end = at + (8 if kind == _FIXED64 else 4)
        else:
            raise ValueError(f"a field has the unknown wire type {kind}")
        if end > stop:
            raise ValueError("a field goes on after its message")
        yield key >> 3, value, at, end
        at = end


def _varint(data: Any, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut short")
