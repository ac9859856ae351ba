"""`OnnxFloatToFloat16`: half the bytes, the same public types."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field, model_validator

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass, public_types
from onnxreg.converters.passes.tools import graph, samples
from onnxreg.converters.passes.tools.half_graph import (
    FLOAT,
    FLOAT16,
    LARGEST,
    SMALLEST,
    count_halves,
    halved_operators,
    overflowing,
    refuse_halved,
    refuse_integers,
    refuse_unhalved,
    to_float16,
)
from onnxreg.schema.core.errors import ConversionError, InputError


class Float16Params(base.PassParams, title="Params"):
    min_positive_val: float = Field(SMALLEST, ge=SMALLEST, lt=1)
    max_finite_val: float = Field(float(LARGEST), ge=1, le=LARGEST)
    keep_io_types: bool | tuple[str, ...] = True
    op_block_list: tuple[str, ...] | None = None
    node_block_list: tuple[str, ...] | None = None
    op_include_list: tuple[str, ...] | None = None
    node_include_list: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "Float16Params":
        blocks = self.op_block_list is not None or self.node_block_list is not None
        includes = self.op_include_list is not None or self.node_include_list is not None
        if blocks and includes:
            raise ValueError("block lists and include lists exclude each other")
        return self


class OnnxFloatToFloat16(GraphPass):
    """Convert float32 weights and activations to float16 with ONNX Runtime's converter.

    Nodes that handle values beyond float16 on the sample inputs stay float32 too (`overflowing` in the result; null if the
    graph does not run on samples that are drawn for it): other processors than a CPU would make infinity of these. An error if an include list names one of them.

    `op_block_list` and `node_block_list` name operators and nodes that stay float32; absent, ONNX Runtime's own list
    holds. `op_include_list` and `node_include_list` name the only ones that do not; they exclude the block lists.
    `keep_io_types` is whether inputs and outputs stay float32, or the names of those that do. Weights whose size is
    above `max_finite_val`, or below `min_positive_val` but not 0, become these.
    """

    id = "OnnxFloatToFloat16"
    version = 4
    keeps_types = False

    Params = Float16Params

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        refuse_integers(subject, self.id)
        params = self.params
        graph.refuse_unknown("operator", params.op_include_list, graph.count_operators(subject))
        graph.refuse_unknown(
            "node", params.node_block_list or params.node_include_list, graph.node_names(subject)
        )
        if isinstance(params.keep_io_types, tuple):
            graph.refuse_unknown("input or output", params.keep_io_types, public_types(subject))

    def apply(self, subject: Any) -> Any:
        graph.inline_functions(subject)
        self._overflowing = self._measure(subject)
        operators, nodes = self._blocked(subject)
        self._refuse_included(subject)
        keep = self.params.keep_io_types
        bounds = (self.params.min_positive_val, self.params.max_finite_val)
        return to_float16(subject, operators, {*nodes, *(self._overflowing or ())}, keep, *bounds)

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {
            **super().observe(subject),
            "halves": halved_operators(subject),
            "weights": count_halves(subject),
        }

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        types = public_types(after)
        expected = {name: self._expected(name, element) for name, element in before["types"].items()}
        if types != expected:
            raise ConversionError(f"{self.id}: asked for the public types {expected}, got {types}")
        refuse_halved(before["halves"], after, self.params.op_block_list or (), self.id)
        halves = count_halves(after)
        if not halves["float16_weights"]:
            why = ": its values are beyond float16 on the samples" if self._overflowing else ""
            raise ConversionError(f"float16 conversion left every weight in float32{why}")
        refuse_unhalved(before["weights"]["float16_weights"], halves, self.id)
        return {**result, **halves, "overflowing": self._overflowing}

    def _measure(self, subject: Any) -> list[str] | None:
        """The nodes with values beyond float16; None if the graph does not run on samples that fit its inputs."""
        if self.data is not None:
            samples.check(self.data, subject, self.id)
            return sorted(overflowing(subject, self.data))
        with suppress(ConversionError, InputError):
            return sorted(overflowing(subject, samples.draw(subject)))
        return None

    def _expected(self, name: str, element: int) -> int:
        float32_names = self.params.keep_io_types
        stays = float32_names if isinstance(float32_names, bool) else name in float32_names
        return element if stays or element != FLOAT else FLOAT16

    def _blocked(self, subject: Any) -> tuple[Collection[str] | None, Collection[str]]:
        """The operators (None: ONNX Runtime's own list) and the nodes that stay float32."""
        params = self.params
        if params.op_include_list is None and params.node_include_list is None:
            return params.op_block_list, params.node_block_list or ()
        graph.name_nodes(subject)
        operators, nodes = set(params.op_include_list or ()), set(params.node_include_list or ())
        every = [node for body in within(subject.graph) for node in body.node]
        return (), [n.name for n in every if n.op_type not in operators and n.name not in nodes]

    def _refuse_included(self, subject: Any) -> None:
        """Raise ConversionError if an include list names a node whose values float16 cannot hold."""
        operators, nodes = self.params.op_include_list or (), self.params.node_include_list or ()
        named = [
            node.name
            for node in subject.graph.node
            if node.name in (self._overflowing or ()) and (node.op_type in operators or node.name in nodes)
        ]
        if named:
            raise ConversionError(
                f"{self.id}: values of {', '.join(named)[:200]} are beyond float16 on the samples",
                "leave them out of the include lists, or use OrtMixedPrecision",
            )
