"""Small ONNX graphs for tests."""

from typing import Any

import numpy as np
import onnx

Weight = tuple[int, ...] | np.ndarray[Any, Any]


def graph(
    body: str,
    inputs: str = "float[n, 40] x",
    outputs: str = "float[n, 40] y",
    *,
    opset: int = 18,
    ir: int = 8,
    named: bool = False,
    more: str = "",
    **weights: Weight | float,
) -> Any:
    """An `onnx.ModelProto` of ONNX's own text. A weight is a value, or the shape of float32 numbers drawn with a seed.

    `named` calls the nodes node0, node1 and so on; `more` is text behind the graph, such as functions.
    """
    domains = '"" : ' + str(opset) + (', "local" : 1' if "local." in body else "")
    model = onnx.parser.parse_model(
        f"<ir_version: {ir}, opset_import: [{domains}]> g ({inputs}) => ({outputs}) {{ {body} }} {more}"
    )
    for index, node in enumerate(model.graph.node if named else ()):
        node.name = f"node{index}"
    draw = np.random.default_rng(0)
    for name, weight in weights.items():
        value = draw.normal(size=weight).astype(np.float32) if isinstance(weight, tuple) else weight
        store(model, name, value)
    return model


def store(model: Any, name: str, value: Any) -> None:
    """Set or add a weight; a Python float is a float32."""
    array = np.float32(value) if isinstance(value, float) else np.asarray(value)
    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    for known in model.graph.initializer:
        if known.name == name:
            known.CopyFrom(tensor)
            return
    model.graph.initializer.append(tensor)


def stored(model: Any) -> dict[str, Any]:
    """The weights of a graph by name."""
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def operators(model: Any) -> list[str]:
    """The operators of a graph, node by node."""
    return [node.op_type for node in model.graph.node]
