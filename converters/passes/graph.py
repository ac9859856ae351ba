"""Small helpers over ONNX protobufs that several passes share."""

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

SMALL = 1024
"""Initializers up to this many elements take part in shape inference by value, larger ones by type only."""


def containers(model: Any) -> Iterator[Any]:
    """Every proto of a model that holds nodes: the graph, its subgraphs, the functions and theirs."""
    stack = [model.graph, *model.functions]
    while stack:
        container = stack.pop()
        yield container
        for node in container.node:
            for attribute in node.attribute:
                stack.extend([attribute.g] if attribute.HasField("g") else [])
                stack.extend(attribute.graphs)


def count_operators(model: Any) -> dict[str, int]:
    """How often each operator occurs, subgraphs and functions included; `domain:Op` beyond the default domain."""
    names = (
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
        for container in containers(model)
        for node in container.node
    )
    return dict(sorted(Counter(names).items()))


def default_opset(model: Any) -> int | None:
    """The opset of the default domain that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def infer_values(model: Any) -> dict[str, Any]:
    """The ValueInfoProto of each value of the main graph whose type can be inferred.

    Inference runs on a copy without the large weights, so it costs milliseconds whatever the size of the model.
    """
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    known = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        if prod(tensor.dims) <= SMALL:
            graph.initializer.append(tensor)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: value for value in values}


def set_aside(model: Any, keep: set[str]) -> list[Any]:
    """Take the large initializers that are not in `keep` out of the graph; inputs of the same type stand in for them.

    Tools that copy a whole model then copy less. `put_back` undoes it.
    """
    import onnx

    known = {value.name for value in model.graph.input}
    aside: list[Any] = []
    kept: list[Any] = []
    for tensor in model.graph.initializer:
        large = prod(tensor.dims) > SMALL and tensor.name not in keep | known
        (aside if large else kept).append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in aside
    )
    return aside


def put_back(model: Any, aside: list[Any]) -> None:
    """Return the initializers that `set_aside` took out."""
    names = {tensor.name for tensor in aside}
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(aside)


def clear_value_info(model: Any) -> None:
    """Drop the inferred types of intermediate values: a rewritten graph makes them stale."""
    for container in containers(model):
        del container.value_info[:]
