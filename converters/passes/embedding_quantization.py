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
        return {**super().observe(subject), "quantized_bytes": sum(map(tensor_bytes, find_tables(subject)))}

    def apply(self, subject: Any) -> Any:
        self._transfer = None if self.scales is None else ScaleTransfer(self.scales)
        self._embeddings = quantize_tables(subject, self._transfer)
        graph.clear_value_info(subject)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        if self._transfer is not None:
            result["scales"] = self._transfer.report()
        return {**result, "quantized_bytes": before["quantized_bytes"], "embeddings": self._embeddings}


def find_tables(subject: Any) -> list[Any]:
    """The float32 matrices of the main graph that only Gather along the first axis reads."""
    readers: dict[str, list[bool]] = {}
    for body in within(subject.graph):
        for node in body.node:
            reads_rows = (
                body is subject.graph
                and node.op_type == "Gather"
                and graph.is_standard(node)
                and graph.attribute(node, "axis", 0) == 0
            )
            for position, name in enumerate(node.input):
                readers.setdefault(name, []).append(reads_rows and position == 0)
    public = {value.name for value in (*subject.graph.input, *subject.graph.output)}
    return [
        tensor
        for tensor in subject.graph.initializer
        if tensor.data_type == tensor.FLOAT
        and len(tensor.dims) == 2
        and tensor.name not in public
        and all(readers.get(tensor.name, [False]))
    ]


def quantize_tables(subject: Any, transfer: ScaleTransfer | None) -> dict[str, Any]:
    """Quantize the tables of a graph in place. Raise ConversionError if it has none, or if a row is another one.

    Returns `tables`, `tables_quantized`, and `min_row_cosine`, the lowest cosine of a row with its original.
    """
    import numpy as np
    import onnx

    graph.name_nodes(subject)
    least, names = 1.0, dict[str, tuple[str, str]]()
    for tensor in find_tables(subject):
        table = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        if not np.isfinite(table).all():
            raise ConversionError(f"the table {tensor.name} holds NaN or infinity")
        scales = (np.abs(table).max(axis=1, keepdims=True) / np.float32(LARGEST_CODE)).astype(np.float32)
        scales[scales == 0] = 1.0
        values = np.clip(np.rint(table / scales), -LARGEST_CODE, LARGEST_CODE).astype(np.int8)
        codes = Codes(values, scales, np.zeros_like(scales))
        codes_name, scales_name = names[tensor.name] = (
            graph.fresh_name(subject, f"{tensor.name}_codes"),
            graph.fresh_name(subject, f"{tensor.name}_scales"),
        )
        new = [
            onnx.numpy_helper.from_array(codes.values, codes_name),
            onnx.numpy_helper.from_array(codes.scales, scales_name),
        ]
        if transfer is not None:
            codes = transfer.requantize(table, codes, (-LARGEST_CODE, LARGEST_CODE), *new)
            new[0].raw_data, new[1].raw_data = codes.values.tobytes(), codes.scales.tobytes()
        subject.graph.initializer.extend(new)
        rows = codes.restore()
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(rows, axis=1)
        cosines = (table * rows).sum(axis=1)[norms > 0] / norms[norms > 0]
        least = min(least, float(cosines.min(initial=1.0)))
    if not names:
        raise ConversionError(
            "quantization reached none of the embedding tables",
            "the graph has no table that only Gather reads",
        )
    if not least >= MIN_ROW_COSINE:
        raise ConversionError(f"a row of a quantized table has the cosine {least:.3g} with its original")
    nodes: list[Any] = []
    for node in subject.graph.node:
        is_read = node.op_type == "Gather" and node.input[0] in names
        nodes += _rows(node, *names[node.input[0]]) if is_read else [node]
    graph.replace_nodes(subject.graph, nodes)
    graph.drop_unread_weights(subject)
    return {
        "tables": len(names),
        "tables_quantized": len(names),
        "min_row_cosine": float(f"{least:.6g}"),
    }


def _rows(node: Any, codes: str, scales: str) -> list[Any]:
    """Gather, Gather, Cast and Mul in the place of a Gather."""
    import onnx

    make, indices = onnx.helper.make_node, node.input[1]
    read, scale, values = (f"{node.name}_{part}" for part in ("codes", "scale", "values"))
    return [
        make("Gather", [codes, indices], [read], read, axis=0),
        make("Gather", [scales, indices], [scale], scale, axis=0),
        make("Cast", [read], [values], values, to=onnx.TensorProto.FLOAT),
        make("Mul", [values, scale], [node.output[0]], f"{node.name}_rows"),
    ]
