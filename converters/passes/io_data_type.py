"""`OnnxIODataTypeConverter`: other element types at the inputs and outputs, the graph inside as it is."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from onnxreg.converters.onnx.elements import ELEMENTS, element_name
from onnxreg.converters.onnx.onnx_graph import graph_inputs
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass, public_types
from onnxreg.converters.passes.tools import graph
from onnxreg.schema.core.errors import ConversionError, InputError


class IoDataTypeParams(base.PassParams, title="Params"):
    name_pattern: str = "logits"
    source_dtype: int = 10
    target_dtype: int = 1

    @field_validator("name_pattern")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    @field_validator("source_dtype", "target_dtype")
    @classmethod
    def _is_number(cls, value: int) -> int:
        if value not in ELEMENTS or not ELEMENTS[value].bits:
            raise ValueError(f"{value} is not the number of an element type that can be cast")
        return value


class OnnxIODataTypeConverter(GraphPass):
    """Put a Cast after each input, and before each output, of one element type whose name matches a pattern.

    Types are numbers of `onnx.TensorProto.DataType`. The pattern is a regular expression that is searched for in the
    name: `logits`, as in Olive, unless another is given; `.*` means all inputs and outputs.
    """

    id = "OnnxIODataTypeConverter"
    keeps_types = False

    Params = IoDataTypeParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if self.params.source_dtype == self.params.target_dtype:
            raise InputError(f"{self.id}: source_dtype and target_dtype are the same")
        if not self._matching(subject):
            values = (*graph_inputs(subject.graph), *subject.graph.output)
            values_text = ", ".join(
                f"{v.name} ({element_name(v.type.tensor_type.elem_type)})" for v in values
            )
            raise InputError(
                f"{self.id}: no input or output of type {element_name(self.params.source_dtype)} matches "
                f"{self.params.name_pattern!r}",
                f"the graph has {values_text}",
            )

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {**super().observe(subject), "matching": self._matching(subject)}

    def apply(self, subject: Any) -> Any:
        matching = self._matching(subject)
        computed = {name for node in subject.graph.node for name in node.output}
        for value in subject.graph.output:
            if value.name in matching and value.name not in computed:
                raise ConversionError(
                    f"the output {value.name} is an input or a weight itself, and has one type only"
                )
        for value in subject.graph.input:
            if value.name in matching:
                self._cast_input(subject, value)
        for value in subject.graph.output:
            if value.name in matching:
                self._cast_output(subject, value)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        expected = {**before["types"], **dict.fromkeys(before["matching"], self.params.target_dtype)}
        if (got := public_types(after)) != expected:
            raise ConversionError(f"{self.id}: asked for the types {expected}, got {got}")
        return {**result, "converted": before["matching"]}

    def _matching(self, subject: Any) -> list[str]:
        """The names of inputs, then of outputs, of the source type that match, each once."""
        values = (*graph_inputs(subject.graph), *subject.graph.output)
        return [
            value.name
            for value in {value.name: value for value in values}.values()
            if value.type.tensor_type.elem_type == self.params.source_dtype
            and re.search(self.params.name_pattern, value.name)
        ]

    def _cast_input(self, subject: Any, value: Any) -> None:
        inside = self._turn(subject, value)
        subject.graph.node.insert(0, _cast(value.name, inside, self.params.source_dtype))

    def _cast_output(self, subject: Any, value: Any) -> None:
        inside = self._turn(subject, value)
        subject.graph.node.append(_cast(inside, value.name, self.params.target_dtype))

    def _turn(self, subject: Any, value: Any) -> str:
        """Give an input or output its new type; returns the name that the value of the old type has from then on."""
        inside = graph.fresh_name(subject, f"{value.name}_as_{element_name(self.params.source_dtype)}")
        graph.rename_values(subject, {value.name: inside})
        value.type.tensor_type.elem_type = self.params.target_dtype
        return inside


def _cast(source: str, target: str, element: int) -> Any:
    import onnx

    return onnx.helper.make_node("Cast", [source], [target], name=f"Cast_{source}_to_{target}", to=element)
