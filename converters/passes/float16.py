"""`OnnxFloatToFloat16`: half the bytes, the same public types."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field, model_validator

from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import public_types
from onnxreg.converters.passes.half_graph import (
    FLOAT,
    FLOAT16,
    LARGEST,
    SMALLEST,
    HalfPass,
    kinds_of,
    overflowing,
    to_float16,
)
from onnxreg.converters.passes.tools import graph, samples
from onnxreg.schema.core.errors import ConversionError, InputError


class Float16Params(base.PassParams, title="Params"):
    min_positive_val: float = Field(SMALLEST, ge=SMALLEST, lt=1)
    max_finite_val: float = Field(float(LARGEST), ge=1, le=LARGEST)
    keep_io_types: bool = True
    op_block_list: tuple[str, ...] | None = None
    node_block_list: tuple[str, ...] | None = None
    op_include_list: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _is_one_way(self) -> "Float16Params":
        blocks = self.op_block_list is not None or self.node_block_list is not None
        if blocks and self.op_include_list is not None:
            raise ValueError("block lists and include lists exclude each other")
        return self


class OnnxFloatToFloat16(HalfPass):
    """Convert float32 weights and activations to float16 with ONNX Runtime's converter.

    Nodes that handle values beyond float16 on the sample inputs stay float32 too (`overflowing` in the result; null if the
    graph does not run on samples that are drawn for it): other processors than a CPU would make infinity of these. An error
    if the include list names one of them.

    `op_block_list` and `node_block_list` name operators and nodes that stay float32; absent, ONNX Runtime's own list
    holds. `op_include_list` names the only operators that do not; it excludes the block lists. `keep_io_types` is whether
    inputs and outputs stay float32. Weights whose size is above `max_finite_val`, or below `min_positive_val` but not 0,
    become these.
    """

    id = "OnnxFloatToFloat16"
    version = 5

    Params = Float16Params

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        listed = (self.params.op_include_list or ()), (self.params.node_block_list or ())
        graph.refuse_unknown("operator", listed[0], graph.count_operators(subject))
        graph.refuse_unknown("node", listed[1], graph.node_names(subject))

    def apply(self, subject: Any) -> Any:
        params = self.params
        graph.inline_functions(subject)
        self._overflowing = self._measure(subject)
        operators, nodes = params.op_block_list, {*(params.node_block_list or ()), *(self._overflowing or ())}
        if params.op_include_list is not None:
            graph.name_nodes(subject)
            kinds = kinds_of(subject)
            included = {name for kind in params.op_include_list for name in kinds.get(kind, ())}
            if beyond := sorted(included.intersection(self._overflowing or ())):
                raise ConversionError(
                    f"{self.id}: values of {', '.join(beyond)[:200]} are beyond float16 on the samples",
                    "leave them out of the include list, or use OrtMixedPrecision",
                )
            operators = ()
            nodes |= {name for names in kinds.values() for name in names} - included
        bounds = params.min_positive_val, params.max_finite_val
        return to_float16(subject, operators, nodes, params.keep_io_types, *bounds)

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        expected = {
            name: FLOAT16 if element == FLOAT and not self.params.keep_io_types else element
            for name, element in before["types"].items()
        }
        if (types := public_types(after)) != expected:
            raise ConversionError(f"{self.id}: asked for the public types {expected}, got {types}")
        return {**result, "overflowing": self._overflowing}

    @property
    def kept(self) -> Collection[str]:
        return self.params.op_block_list or ()

    @property
    def reason(self) -> str:
        return ": its values are beyond float16 on the samples" if self._overflowing else ""

    def _measure(self, subject: Any) -> list[str] | None:
        """The nodes with values beyond float16; None if the graph does not run on samples that fit its inputs."""
        if self.data is not None:
            samples.check(self.data, subject, self.id)
            return sorted(overflowing(subject, self.data))
        with suppress(ConversionError, InputError):
            return sorted(overflowing(subject, samples.draw(subject)))
        return None
