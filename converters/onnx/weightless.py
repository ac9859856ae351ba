"""A model without its large weights: what type inference and tools that copy a whole model are given."""

from collections.abc import Collection, Iterator
from math import prod
from typing import Any, BinaryIO

from onnxreg.converters.onnx.elements import tensor_bytes

MAX_SMALL_ELEMENTS = 1024
"""Initializers of up to this many elements take part in inference by value, larger ones by type only."""


def without_weights(model: Any, keep: Collection[str] = ()) -> Any:
    """A copy of a model (`onnx.ModelProto`) in which graph inputs of the same type replace large initializers.

    Those named in `keep` stay. No weight is copied besides, so the copy costs milliseconds whatever the size.
    """
    import onnx

    light = onnx.ModelProto()
    copy_but(model, light, "graph")
    copy_but(model.graph, light.graph, "initializer")
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= MAX_SMALL_ELEMENTS or tensor.name in keep:
            light.graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in inputs:
            _stand_in(light.graph.input.add(name=tensor.name), tensor)
    return light


def _stand_in(value: Any, tensor: Any) -> None:
    value.type.tensor_type.elem_type = tensor.data_type
    value.type.tensor_type.shape.SetInParent()
    for dim in tensor.dims:
        value.type.tensor_type.shape.dim.add(dim_value=dim)


def copy_but(source: Any, target: Any, left_out: str) -> None:
    """Copy every field of a protobuf that is set but one."""
    for field, value in _fields_but(source, left_out):
        _copy_field(value, target, field.name)


def _fields_but(message: Any, left_out: str) -> Iterator[tuple[Any, Any]]:
    """The fields of a protobuf that are set but one, which `ListFields` would copy, with their values."""
    for field in message.DESCRIPTOR.fields:
        if field.name != left_out:
            value = getattr(message, field.name)
            if len(value) if hasattr(value, "extend") else message.HasField(field.name):
                yield field, value


def _copy_field(value: Any, target: Any, name: str) -> None:
    if isinstance(value, str | bytes | int | float):
        setattr(target, name, value)
    else:
        getattr(target, name).MergeFrom(value)


def write_model(model: Any, file: BinaryIO) -> None:
    """Write what `model.SerializeToString(deterministic=True)` gives, with one weight at a time in memory.

    Protobuf writes fields in the order of their numbers, a message as its key, its length and its bytes
    (protobuf.dev/programming-guides/encoding). `SerializeToString` takes three times the memory of a model besides, and
    `ByteSize` as much time. A model with fields that this release of onnx does not know, or with a weight of another
    size than its shape has, is written by it all the same.
    """
    start = file.tell()
    if not _write_parts(model, file):
        file.seek(start)
        file.truncate()
        file.write(model.SerializeToString(deterministic=True))


def _write_parts(model: Any, file: BinaryIO) -> bool:
    """Write a model tensor by tensor; False, with some of it written, if it has a part that this does not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    weights = model.graph.initializer
    if not model.HasField("graph") or any(
        len(UnknownFieldSet(part)) for part in (model, model.graph, *weights)
    ):
        return False
    outer, key, after = _around(model, "graph")
    inner, item_key, inner_after = _around(model.graph, "initializer")
    parts = [_tensor_parts(tensor) for tensor in weights]
    sizes = [len(before) + size + len(behind) for before, size, behind in parts]
    heads = [item_key + _varint(size) for size in sizes]
    size = len(inner) + sum(map(len, heads)) + sum(sizes) + len(inner_after)
    file.write(outer + key + _varint(size) + inner)
    for tensor, head, (before, size, behind) in zip(weights, heads, parts, strict=True):
        data = tensor.raw_data
        if len(data) != size:
            return False
        file.write(head + before)
        file.write(data)
        file.write(behind)
    file.write(inner_after + after)
    return True


def _tensor_parts(tensor: Any) -> tuple[bytes, int, bytes]:
    """The bytes of a tensor before its `raw_data`, the size of that by its shape, and the bytes after it."""
    if not tensor.HasField("raw_data"):
        return tensor.SerializeToString(deterministic=True), 0, b""
    before, key, after = _around(tensor, "raw_data")
    size = max(tensor_bytes(tensor), 0)
    return before + key + _varint(size), size, after


def _around(message: Any, name: str) -> tuple[bytes, bytes, bytes]:
    """The bytes of the fields before one that has a length, the key of each value of it, and what comes after."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    sides = type(message)(), type(message)()
    for field, value in _fields_but(message, name):
        _copy_field(value, sides[field.number > number], field.name)
    before, after = (side.SerializeToString(deterministic=True) for side in sides)
    return before, _varint(number << 3 | 2), after


def _varint(number: int) -> bytes:
    """A number in base 128, the lowest digit first, with the highest bit set in all but the last."""
    digits = [number & 127]
    while number := number >> 7:
        digits[-1] |= 128
        digits.append(number & 127)
    return bytes(digits)


def replace_but_weights(model: Any, light: Any) -> None:
    """Make `model`, in place, what a tool made of `without_weights(model)`; no large weight is moved or copied."""
    public = {value.name for value in model.graph.input}
    large = {tensor.name for tensor in model.graph.initializer if prod(tensor.dims) > MAX_SMALL_ELEMENTS}
    for message, keep in ((model, "graph"), (model.graph, "initializer")):
        for field, _ in message.ListFields():
            if field.name != keep:
                message.ClearField(field.name)
    for index in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[index].name not in large:
            del model.graph.initializer[index]
    copy_but(light, model, "graph")
    copy_but(light.graph, model.graph, "initializer")
    model.graph.initializer.extend(one for one in light.graph.initializer if one.name not in large)
    kept_inputs = [value for value in light.graph.input if value.name in public or value.name not in large]
    del model.graph.input[:]
    model.graph.input.extend(kept_inputs)
