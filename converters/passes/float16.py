"""`OnnxFloatToFloat16`: half the bytes, the same public types."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field, model_validator

from onnxreg.converters.passes import base, graph
from onnxreg.converters.passes.graph_pass import GraphPass, public_types
from onnxreg.converters.passes.half import LARGEST, SMALLEST
from onnxreg.converters.passes.halving import FLOAT, FLOAT16, count_halves, to_float16
from onnxreg.schema.errors import ConversionError


class OnnxFloatToFloat16(GraphPass):
    """float32 weights and activations to float16 with ONNX Runtime's converter.

    `op_block_list` and `node_block_list` name operators and nodes that stay float32; absent, ONNX Runtime's own list
    holds. `op_include_list` and `node_include_list` name the only ones that do not; they exclude the block lists.
    `keep_io_types` is whether inputs and outputs stay float32, or the names of those that do. Weights whose size is
    above `max_finite_val`, or below `min_positive_val` but not 0, become these.
    """

    id = "OnnxFloatToFloat16"
    version = 2
    keeps_types = False

    class Params(base.PassParams):
        min_positive_val: float = Field(SMALLEST, ge=SMALLEST, lt=1)
        max_finite_val: float = Field(float(LARGEST), ge=1, le=LARGEST)
        keep_io_types: bool | tuple[str, ...] = True
        op_block_list: tuple[str, ...] | None = None
        node_block_list: tuple[str, ...] | None = None
        op_include_list: tuple[str, ...] | None = None
        node_include_list: tuple[str, ...] | None = None

        @model_validator(mode="after")
        def _is_one_way(self) -> "OnnxFloatToFloat16.Params":
            blocks = self.op_block_list is not None or self.node_block_list is not None
            includes = self.op_include_list is not None or self.node_include_list is not None
            if blocks and includes:
                raise ValueError("block lists and include lists exclude each other")
            return self

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        asked = self.params
        graph.refuse_unknown("operator", asked.op_include_list, graph.count_operators(subject))
        graph.refuse_unknown(
            "node", asked.node_block_list or asked.node_include_list, graph.node_names(subject)
        )
        if isinstance(asked.keep_io_types, tuple):
            graph.refuse_unknown("input or output", asked.keep_io_types, public_types(subject))

    def apply(self, subject: Any) -> Any:
        operators, nodes = self._blocked(subject)
        keep = self.params.keep_io_types
        bounds = (self.params.min_positive_val, self.params.max_finite_val)
        return to_float16(subject, operators, nodes, keep, *bounds)

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        types = public_types(after)
        expected = {name: self._expected(name, element) for name, element in before["types"].items()}
        if types != expected:
            raise ConversionError(f"{self.id}: asked for the public types {expected}, got {types}")
        halves = count_halves(after)
        if not halves["float16_weights"]:
            raise ConversionError("float16 conversion left every weight in float32")
        return {**result, **halves}

    def _expected(self, name: str, element: int) -> int:
        kept = self.params.keep_io_types
        stays = kept if isinstance(kept, bool) else name in kept
        return element if stays or element != FLOAT else FLOAT16

    def _blocked(self, subject: Any) -> tuple[Collection[str] | None, Collection[str]]:
        """The operators (None: ONNX Runtime's own list) and the nodes that stay float32."""
        asked = self.params
        if asked.op_include_list is None and asked.node_include_list is None:
            return asked.op_block_list, asked.node_block_list or ()
        graph.name_nodes(subject)
        operators, nodes = set(asked.op_include_list or ()), set(asked.node_include_list or ())
        every = [node for body in graph.within(subject.graph) for node in body.node]
        return (), [n.name for n in every if n.op_type not in operators and n.name not in nodes]
