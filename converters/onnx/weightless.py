"""A model without its large weights: what type inference and tools that copy a whole model are given."""

from collections.abc import Collection
from math import prod
from typing import Any

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
            value = light.graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            value.type.tensor_type.shape.SetInParent()
            for dim in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=dim)
    return light


def copy_but(source: Any, target: Any, left_out: str) -> None:
    """Copy every field of a protobuf that is set but one."""
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)


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
