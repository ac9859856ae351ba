"""`EmbeddingQuantization`: embedding tables in 8 bits with a scale for each row, by standard operators alone."""

from collections.abc import Mapping
from typing import Any

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.parent_scales import Codes, ScaleTransfer
from onnxreg.schema.core.errors import ConversionError

LARGEST_CODE = 127
MIN_ROW_COSINE = 0.99
"""The least cosine of a row of codes with its original: below it the rows are wrong, not rounded."""


class EmbeddingQuantization(GraphPass):
    """Quantize each float32 table that only Gather reads rows of: int8 codes, and a float32 scale for each row.

    A row is Gather of its codes, Cast and Mul by its scale, so every runtime that loads the graph's opset loads the
    result. Activations and all other weights stay as they are. Symmetric: a row's largest value has the code 127.
    """

    id = "EmbeddingQuantization"
    takes_scales = True

    def observe(self, subject: Any) -> Mapping[str, Any]:
        graph.inline_functions(subject)
        graph.name_nodes(subject)
        tables = {tensor.name: tensor for tensor in _tables(subject)}
        return {
            **super().observe(subject),
            "tables": sorted(tables),
            "quantized_bytes": sum(map(tensor_bytes, tables.values())),
        }

    def apply(self, subject: Any) -> Any:
        self._transfer = None if self.scales is None else ScaleTransfer(self.scales)
        self._cosines = [_quantize(subject, tensor, self._transfer) for tensor in list(_tables(subject))]
        graph.clear_value_info(subject)
        graph.drop_unread_weights(subject)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        if not before["tables"]:
            raise ConversionError(
                "quantization reached none of the weights", "the graph has no table that only Gather reads"
            )
        least = min(self._cosines)
        if not least >= MIN_ROW_COSINE:
            raise ConversionError(f"a row of a quantized table has the cosine {least:.3g} with its original")
        embeddings = {
            "tables": len(before["tables"]),
            "tables_quantized": len(self._cosines),
            "min_row_cosine": float(f"{least:.6g}"),
        }
        if self._transfer is not None:
            result["scales"] = self._transfer.report()
        return {**result, "quantized_bytes": before["quantized_bytes"], "embeddings": embeddings}


def _tables(subject: Any) -> list[Any]:
    """The float32 matrices of the main graph that only Gather along the first axis reads."""
    readers: dict[str, list[Any]] = {}
    for body in within(subject.graph):
        for node in body.node:
            for position, name in enumerate(node.input):
                readers.setdefault(name, []).append(None if position or body is not subject.graph else node)
    public = {value.name for value in (*subject.graph.input, *subject.graph.output)}
    return [
        tensor
        for tensor in subject.graph.initializer
        if tensor.data_type == tensor.FLOAT
        and len(tensor.dims) == 2
        and tensor.name not in public
        and readers.get(tensor.name)
        and all(map(_reads_rows, readers[tensor.name]))
    ]


def _reads_rows(node: Any) -> bool:
    return (
        node is not None
        and node.op_type == "Gather"
        and node.domain in ("", "ai.onnx")
        and all(attribute.i == 0 for attribute in node.attribute if attribute.name == "axis")
    )


def _quantize(subject: Any, tensor: Any, transfer: ScaleTransfer | None) -> float:
    """Replace a table and its readers; return the lowest cosine of a row with its original, of rows that are not 0."""
    import numpy as np
    import onnx

    table = onnx.numpy_helper.to_array(tensor).astype(np.float32)
    if not np.isfinite(table).all():
        raise ConversionError(f"the table {tensor.name} holds NaN or infinity")
    scales = (np.abs(table).max(axis=1, keepdims=True) / np.float32(LARGEST_CODE)).astype(np.float32)
    scales[scales == 0] = 1.0
    codes = np.clip(np.rint(table / scales), -LARGEST_CODE, LARGEST_CODE).astype(np.int8)
    codes_name, scales_name = (
        graph.fresh_name(subject, f"{tensor.name}_{part}") for part in ("codes", "scales")
    )
    tensors = [
        onnx.numpy_helper.from_array(codes, codes_name),
        onnx.numpy_helper.from_array(scales, scales_name),
    ]
    if transfer is not None and (parent := transfer.find(tensors)) is not None:
        zeros = np.zeros_like(scales)
        limits = (-LARGEST_CODE, LARGEST_CODE)
        stable = transfer.requantize(
            table, Codes(codes, scales, zeros), Codes(parent[0], parent[1], zeros), limits
        )
        codes, scales = stable.values, stable.scales
        tensors = [
            onnx.numpy_helper.from_array(array, tensor.name)
            for array, tensor in zip((codes, scales), tensors, strict=True)
        ]
    subject.graph.initializer.extend(tensors)
    for node in [
        node for node in subject.graph.node if node.op_type == "Gather" and node.input[0] == tensor.name
    ]:
        _replace(subject, node, codes_name, scales_name)
    rows = codes.astype(np.float32) * scales
    norms = np.linalg.norm(table, axis=1) * np.linalg.norm(rows, axis=1)
    return float(((table * rows).sum(axis=1)[norms > 0] / norms[norms > 0]).min(initial=1.0))


def _replace(subject: Any, node: Any, codes: str, scales: str) -> None:
    """Put Gather, Gather, Cast and Mul in the place of a Gather."""
    import onnx

    indices, output = node.input[1], node.output[0]
    names = {part: f"{node.name}_{part}" for part in ("codes", "scale", "values")}
    nodes = [
        onnx.helper.make_node("Gather", [codes, indices], [names["codes"]], names["codes"], axis=0),
        onnx.helper.make_node("Gather", [scales, indices], [names["scale"]], names["scale"], axis=0),
        onnx.helper.make_node(
            "Cast", [names["codes"]], [names["values"]], names["values"], to=onnx.TensorProto.FLOAT
        ),
        onnx.helper.make_node("Mul", [names["values"], names["scale"]], [output], f"{node.name}_rows"),
    ]
    position = list(subject.graph.node).index(node)
    subject.graph.node.remove(node)
    for offset, new in enumerate(nodes):
        subject.graph.node.insert(position + offset, new)
