"""Protobuf's encoding of ONNX models: read a model without its large weights, and write it without copies of them."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.tensors import MAX_AXES, MAX_SMALL_ELEMENTS, copy_bytes, tensor_bytes

if TYPE_CHECKING:
    import onnx_ir as ir

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""The numbers of fields in onnx.proto: `ModelProto.graph`, `GraphProto.initializer` and `TensorProto.raw_data`."""


def fields(data: Any, at: int, end: int, number: int) -> Iterator[tuple[int, int, int]]:
    """Yield a message's fields that have a length and this `number`: (offset, start of the value, end of the value).

    Raises ValueError or KeyError for an invalid message.
    """

    def varint(at: int) -> tuple[int, int]:
        last = next(last for last in range(at, at + 10) if data[last] < 0x80)
        return sum((data[byte] & 0x7F) << 7 * (byte - at) for byte in range(at, last + 1)), last + 1

    while at < end:
        key, start = varint(at)
        if key & 7 == 0:
            stop = varint(start)[1]
        elif key & 7 == 2:
            size, start = varint(start)
            stop = start + size
        else:
            stop = start + {1: 8, 5: 4}[key & 7]
        if stop > end:
            raise ValueError("a field ends after its message")
        if key == number << 3 | 2:
            yield at, start, stop
        at = stop


def parse_light(data: memoryview) -> tuple[Any, dict[str, int]]:
    """Parse a model without the bytes of large initializers. Return the model, and the bytes' offsets by name.

    Raises an error of protobuf, LookupError, RuntimeError or ValueError for an invalid model.
    """
    import onnx

    model, places = onnx.ModelProto(), dict[str, int]()

    def merge(message: Any, start: int, stop: int, number: int) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the value of each field with this number. Merge all other fields into `message`."""
        for key, first, last in (*fields(data, start, stop, number), (stop, stop, stop)):
            message.MergeFromString(data[start:key])
            start = last
            if key < stop:
                yield first, last

    for graph in merge(model, 0, len(data), GRAPH):
        model.graph.SetInParent()
        for start, stop in merge(model.graph, *graph, INITIALIZER):
            key, first, last = next(fields(data, start, stop, RAW_DATA), (stop, stop, stop))
            tensor = onnx.TensorProto.FromString(bytes(data[start:key]) + bytes(data[last:stop]))
            is_large = len(tensor.dims) <= MAX_AXES and prod(tensor.dims) > MAX_SMALL_ELEMENTS
            is_plain = not tensor.HasField("raw_data") and tensor.data_location == tensor.DEFAULT
            is_new = tensor.name and tensor.name not in places
            if is_new and is_plain and is_large and tensor_bytes(tensor) == last - first:
                places[tensor.name] = first
            else:
                tensor = onnx.TensorProto.FromString(data[start:stop])
            model.graph.initializer.append(tensor)
    return model, places


def encode(proto: Any, weights: Mapping[str, "ir.TensorProtocol"], write: Callable[[Any], Any]) -> None:
    """Give the bytes of a model to `write`. `weights` has the tensors of initializers that lack bytes in `proto`."""

    def part(message: Any, numbers: range) -> bytes:
        part = type(message)()
        part.CopyFrom(message)
        for field in (field for field, _ in message.ListFields() if field.number not in numbers):
            part.ClearField(field.name)
        return bytes(part.SerializeToString(deterministic=True))

    def head(number: int, size: int) -> bytes:  # the size in groups of 7 bits
        groups = [size >> at & 0x7F for at in range(0, max(size.bit_length(), 1), 7)]
        return bytes((number << 3 | 2, *(group | 0x80 for group in groups[:-1]), groups[-1]))

    graph, tensors = proto.graph, list[tuple[bytes, int, Any]]()
    for tensor in graph.initializer:
        weight = weights.get(tensor.name)
        size = 0 if weight is None else tensor_bytes(tensor)
        begin = tensor.SerializeToString() + (head(RAW_DATA, size) if size else b"")
        tensors.append((head(INITIALIZER, len(begin) + size) + begin, size, weight))
    del graph.initializer[:]
    first, last = part(graph, range(INITIALIZER)), part(graph, range(INITIALIZER, 100))
    length = len(first) + sum(len(begin) + size for begin, size, _ in tensors) + len(last)
    proto.ClearField("graph")
    write(part(proto, range(GRAPH)) + head(GRAPH, length) + first)
    for begin, _, weight in tensors:
        write(begin)
        if weight is not None:
            copy_bytes(weight, write)
    write(last + part(proto, range(GRAPH, 100)))
