"""Gemm nodes with a stored matrix: as MatMul and Add, and with a matrix of their own."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes.tools import graph


def unfold_gemms(model: Any, excluded: Collection[str] = ()) -> None:
    """Replace each Gemm by a stored matrix with MatMul and Add, in place; a matrix with `transB` is transposed.

    A Gemm with `alpha`, `beta` or `transA` is not such a product and stays, as do the nodes called `excluded`.
    """
    stored, transposed = _stored(model), dict[str, str]()
    for body in reversed(
        list(within(model.graph))
    ):  # a body before the one around it, which is copied with it
        if not any(_is_gemm(node, stored, excluded) for node in body.node):
            continue
        nodes: list[Any] = []
        for node in body.node:
            if not _is_gemm(node, stored, excluded):
                nodes.append(node)
                continue
            if _attribute(node, "transB", 0):
                _read_transposed(model, node, stored, transposed)
            nodes += _matmul_and_add(model, node)
        del body.node[:]
        body.node.extend(nodes)
    graph.drop_unread_weights(model)


def part_shared_gemms(model: Any) -> None:
    """Let each Gemm with `transB` that shares its stored matrix with another node read a transposed copy, in place.

    The dynamic quantizer of ONNX Runtime (1.31) transposes the matrix itself, once for each such Gemm, and looks for no
    other reader. The static one gives all readers the channels of the first. One copy is made of a matrix.
    """
    readers = Counter(name for body in within(model.graph) for node in body.node for name in node.input)
    stored, transposed = _stored(model), dict[str, str]()
    for body in within(model.graph):
        for node in body.node:
            if _is_gemm(node, stored) and _attribute(node, "transB", 0) and readers[node.input[1]] > 1:
                _read_transposed(model, node, stored, transposed)
    graph.drop_unread_weights(model)


def _stored(model: Any) -> dict[str, tuple[Any, Any]]:
    """Each initializer with the graph that holds it, by name."""
    return {tensor.name: (body, tensor) for body in within(model.graph) for tensor in body.initializer}


def _is_gemm(node: Any, stored: Collection[str], excluded: Collection[str] = ()) -> bool:
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


def _read_transposed(model: Any, node: Any, stored: Mapping[str, Any], transposed: dict[str, str]) -> None:
    """Let a Gemm with `transB` read the transpose of its matrix, which is stored beside that once."""
    import numpy as np
    import onnx

    name = node.input[1]
    if name not in transposed:
        body, tensor = stored[name]
        transposed[name] = graph.fresh_name(model, f"{name}_transposed")
        across = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
        body.initializer.append(onnx.numpy_helper.from_array(across, transposed[name]))
    node.input[1] = transposed[name]
    attributes = [entry for entry in node.attribute if entry.name != "transB"]
    del node.attribute[:]
    node.attribute.extend(attributes)


def _matmul_and_add(model: Any, node: Any) -> Iterator[Any]:
    import onnx

    bias = [name for name in node.input[2:] if name]
    product = graph.fresh_name(model, f"{node.output[0]}_product") if bias else node.output[0]
    names = {kind: f"{node.name}_{kind}" if node.name else "" for kind in ("MatMul", "Add")}
    yield onnx.helper.make_node("MatMul", node.input[:2], [product], names["MatMul"])
    if bias:
        yield onnx.helper.make_node("Add", [product, *bias], [node.output[0]], names["Add"])
