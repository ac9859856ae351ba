"""`OnnxIODataTypeConverter`: other element types at the inputs and outputs, the graph inside as it is."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from onnxreg.converters.onnx.elements import ELEMENTS
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
            types = public_types(subject).items()
            raise InputError(
                f"{self.id}: no input or output of type {ELEMENTS[self.params.source_dtype].name} matches "
                f"{self.params.name_pattern!r}",
                f"the graph has {', '.join(f'{name} ({_type_name(number)})' for name, number in types)}",
            )

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {**super().observe(subject), "matching": self._matching(subject)}

    def apply(self, subject: Any) -> Any:
        import onnx

        matching, source, target = self._matching(subject), self.params.source_dtype, self.params.target_dtype
        computed = {name for node in subject.graph.node for name in node.output}
        sides = [
            (value, is_output)
            for is_output, values in enumerate((subject.graph.input, subject.graph.output))
            for value in values
            if value.name in matching
        ]
        if stored := [value.name for value, is_output in sides if is_output and value.name not in computed]:
            raise ConversionError(
                f"the output {stored[0]} is an input or a weight itself, and has one type only"
            )
        for value, is_output in sides:
            inside = graph.fresh_name(subject, f"{value.name}_as_{_type_name(source)}")
            graph.rename_values(subject, {value.name: inside})
            value.type.tensor_type.elem_type = target
            names = (inside, value.name) if is_output else (value.name, inside)
            cast = onnx.helper.make_node(
                "Cast",
                names[:1],
                names[1:],
                f"Cast_{names[0]}_to_{names[1]}",
                to=target if is_output else source,
            )
            subject.graph.node.insert(len(subject.graph.node) if is_output else 0, cast)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        expected = {**before["types"], **dict.fromkeys(before["matching"], self.params.target_dtype)}
        if (types := public_types(after)) != expected:
            raise ConversionError(f"{self.id}: asked for the types {expected}, got {types}")
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


def _type_name(number: int) -> str:
    return ELEMENTS[number].name if number in ELEMENTS else "unknown"
