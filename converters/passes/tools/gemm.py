"""Gemm as MatMul and Add, which is what quantizers by blocks know."""

from collections.abc import Collection, Iterator
from typing import Any

from onnxreg.converters.passes.tools import graph


def unfold(model: Any, excluded: Collection[str] = ()) -> None:
    """Replace each Gemm by a stored matrix with MatMul and Add, in place; a matrix with `transB` is transposed.

    A Gemm with `alpha`, `beta` or `transA` is not such a product and stays, as do the nodes called `excluded`.
    """
    stored = {
        tensor.name: (body, tensor) for body in graph.within(model.graph) for tensor in body.initializer
    }
    turned: dict[str, str] = {}
    for body in reversed(
        list(graph.within(model.graph))
    ):  # a body before the one around it, which is copied with it
        if not any(_is_product(node, stored, excluded) for node in body.node):
            continue
        nodes: list[Any] = []
        for node in body.node:
            if not _is_product(node, stored, excluded):
                nodes.append(node)
                continue
            matrix = node.input[1]
            if _attribute(node, "transB", 0):
                if matrix not in turned:
                    turned[matrix] = _turn(model, *stored[matrix])
                matrix = turned[matrix]
            nodes += _products(model, node, matrix)
        del body.node[:]
        body.node.extend(nodes)
    graph.drop_unread_weights(model)


def _is_product(node: Any, stored: Collection[str], excluded: Collection[str]) -> bool:
    return (
        node.op_type == "Gemm"
        and node.domain in ("", "ai.onnx")
        and node.input[1] in stored
        and not (node.name and node.name in excluded)
        and (_attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0)) == (1.0, 1.0)
        and not _attribute(node, "transA", 0)
    )


def _attribute(node: Any, name: str, default: Any) -> Any:
    entries = (entry for entry in node.attribute if entry.name == name)
    return next((entry.f if isinstance(default, float) else entry.i for entry in entries), default)


def _turn(model: Any, body: Any, tensor: Any) -> str:
    """Store the transpose of a matrix beside it; its name."""
    import numpy as np
    import onnx

    name = graph.fresh_name(model, f"{tensor.name}_transposed")
    across = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
    body.initializer.append(onnx.numpy_helper.from_array(across, name))
    return name


def _products(model: Any, node: Any, matrix: str) -> Iterator[Any]:
    import onnx

    bias = [name for name in node.input[2:] if name]
    product = graph.fresh_name(model, f"{node.output[0]}_product") if bias else node.output[0]
    names = {kind: f"{node.name}_{kind}" if node.name else "" for kind in ("MatMul", "Add")}
    yield onnx.helper.make_node("MatMul", [node.input[0], matrix], [product], names["MatMul"])
    if bias:
        yield onnx.helper.make_node("Add", [product, *bias], [node.output[0]], names["Add"])
