"""The operators that a graph uses, in either file format."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from onnxreg.converters.onnx.elements import Element
from onnxreg.schema.manifest.manifest import Operator
from onnxreg.schema.query import runtimes

DEFAULT_DOMAIN = "ai.onnx"


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor stored in the file; compared by identity, since names repeat between sibling subgraphs."""

    name: str
    element: Element | None
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its element type, and the stored tensor that it is, if it is one."""

    element: Element | None = None
    constant: Constant | None = None


@dataclass(frozen=True)
class OperatorUse:
    """One node. `opset` is the since-version of its definition; an operand that was left out is None.

    `attributes` has all names; the value of one that is not an integer is None.
    """

    domain: str
    name: str
    opset: int
    inputs: tuple[Value | None, ...] = ()
    outputs: tuple[Value | None, ...] = ()
    attributes: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def qualified(self) -> str:
        """`Op`, or `domain:Op` beyond ai.onnx: the spelling of manifest version 1."""
        return self.name if self.domain == DEFAULT_DOMAIN else f"{self.domain}:{self.name}"


def operator_names(uses: Iterable[OperatorUse]) -> tuple[str, ...]:
    """Each operator once, in first-seen order."""
    return tuple(dict.fromkeys(use.qualified for use in uses))


def contrib_needs(uses: Iterable[OperatorUse], in_ort_format: bool) -> tuple[str, ...]:
    """The contrib operators with their later features, sorted: what a release of ONNX Runtime may lack."""
    return runtimes.needs(
        runtimes.Use(use.domain, use.name, len(use.inputs), _types(use), use.attributes, in_ort_format)
        for use in uses
    )


def _types(use: OperatorUse) -> frozenset[str]:
    elements = (operand.element for operand in (*use.inputs, *use.outputs) if operand is not None)
    return frozenset(element.cpp for element in elements if element is not None)


def operators(uses: Iterable[OperatorUse]) -> tuple[Operator, ...]:
    """Each (domain, opset, name) once, sorted, with the element types seen at each position.

    The operands of a variadic parameter share the position of the first of them.
    """
    types: dict[tuple[str, int, str], tuple[_Types, _Types]] = {}
    for use in uses:
        inputs, outputs = types.setdefault((use.domain, use.opset, use.name), ({}, {}))
        last_input, last_output = _variadic(use.domain, use.name, use.opset)
        _collect(inputs, use.inputs, last_input)
        _collect(outputs, use.outputs, last_output)
    return tuple(operator(*key, *types[key]) for key in sorted(types))


def operator(
    domain: str, opset: int, name: str, inputs: Mapping[int, set[str]], outputs: Mapping[int, set[str]]
) -> Operator:
    """One entry of a manifest; a side of which no type is known stays absent."""
    value: dict[str, Any] = {"domain": domain, "name": name, "opset": opset}
    for side, types in (("inputs", inputs), ("outputs", outputs)):
        if types:
            value[side] = {str(position): sorted(types[position]) for position in sorted(types)}
    return Operator.from_json(value, f"operator {domain[:80]}:{name[:80]}")


_Types = dict[int, set[str]]


def _collect(types: _Types, operands: tuple[Value | None, ...], last: int | None) -> None:
    for index, operand in enumerate(operands):
        if operand is not None and operand.element is not None:
            position = index if last is None else min(index, last)
            types.setdefault(position, set()).add(operand.element.cpp)


def _variadic(domain: str, name: str, opset: int) -> tuple[int | None, int | None]:
    """The positions of an operator's variadic input and output, None if it has none."""
    schema = find_schema(domain, name, opset)
    if schema is None:
        return None, None
    sides = []
    for parameters in (schema.inputs, schema.outputs):
        variadic = parameters and parameters[-1].option == type(parameters[-1].option).Variadic
        sides.append(len(parameters) - 1 if variadic else None)
    return sides[0], sides[1]


@lru_cache(maxsize=4096)
def find_schema(domain: str, name: str, opset: int) -> Any | None:
    """The definition of an operator in force at an opset (`onnx.defs.OpSchema`), or None for one onnx does not know."""
    import onnx.defs

    onnx_domain = "" if domain == DEFAULT_DOMAIN else domain
    try:
        return onnx.defs.get_schema(name, opset, onnx_domain)
    except onnx.defs.SchemaError:
        return None
