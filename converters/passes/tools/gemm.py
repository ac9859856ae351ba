"""Gemm nodes with a stored matrix: as MatMul and Add, and with a matrix of their own."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes.tools import graph


class Gemms:
    """The Gemm nodes of a model by a stored matrix, without `alpha`, `beta` or `transA`: they are a product and a sum."""

    def __init__(self, model: Any) -> None:
        self._model = model
        bodies = list(within(model.graph))
        self._stored = {tensor.name: (body, tensor) for body in bodies for tensor in body.initializer}
        self._readers = Counter(name for body in bodies for node in body.node for name in node.input)
        self._transposed: dict[str, str] = {}

    def unfold(self, excluded: Collection[str] = ()) -> None:
        """Replace each by MatMul and Add, in place, the matrix transposed if need be; nodes called `excluded` stay."""
        bodies = list(within(self._model.graph))
        for body in reversed(bodies):  # a body before the one around it, which is copied with it
            if not any(map(self._is_one, body.node)):
                continue
            nodes: list[Any] = []
            for node in body.node:
                is_unfolded = self._is_one(node) and not (node.name and node.name in excluded)
                nodes += self._matmul_and_add(node) if is_unfolded else [node]
            graph.replace_nodes(body, nodes)
        graph.drop_unread_weights(self._model)

    def part_shared(self) -> None:
        """Let each with `transB` that shares its matrix with another node read a transposed copy, in place.

        The static quantizer of ONNX Runtime (1.31) gives all readers the channels of the first. One copy is made of a matrix.
        """
        for node in (node for body in within(self._model.graph) for node in body.node):
            if self._is_one(node) and self._readers[node.input[1]] > 1:
                self._read_transposed(node)
        graph.drop_unread_weights(self._model)

    def _is_one(self, node: Any) -> bool:
        return (
            node.op_type == "Gemm"
            and graph.is_standard(node)
            and node.input[1] in self._stored
            and all(graph.attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
            and not graph.attribute(node, "transA", 0)
        )

    def _read_transposed(self, node: Any) -> None:
        """Let a Gemm with `transB` read the transpose of its matrix: the same one turned over, or one beside it if others read it."""
        import numpy as np
        import onnx

        if not graph.attribute(node, "transB", 0):
            return
        name = node.input[1]
        if name not in self._transposed:
            body, tensor = self._stored[name]
            across = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
            is_shared = self._readers[name] > 1
            self._transposed[name] = (
                graph.fresh_name(self._model, f"{name}_transposed") if is_shared else name
            )
            target = body.initializer.add() if is_shared else tensor
            target.CopyFrom(onnx.numpy_helper.from_array(across, self._transposed[name]))
        node.input[1] = self._transposed[name]
        attributes = [entry for entry in node.attribute if entry.name != "transB"]
        del node.attribute[:]
        node.attribute.extend(attributes)

    def _matmul_and_add(self, node: Any) -> Iterator[Any]:
        import onnx

        self._read_transposed(node)
        bias = [name for name in node.input[2:] if name]
        product = graph.fresh_name(self._model, f"{node.output[0]}_MatMul") if bias else node.output[0]
        names = {kind: f"{node.name}_{kind}" if node.name else "" for kind in ("MatMul", "Add")}
        yield onnx.helper.make_node("MatMul", node.input[:2], [product], names["MatMul"])
        if bias:
            yield onnx.helper.make_node("Add", [product, *bias], [node.output[0]], names["Add"])
