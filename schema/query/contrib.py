"""Contrib operators: those that ONNX Runtime adds to ONNX's, in the domain `com.microsoft`, and the releases that run them.

A need is an operator's name, alone or with one feature: `MatMulNBits`, `MatMulNBits bits=8`, `MatMulNBits inputs=5`,
`GroupQueryAttention softcap` (an attribute), `ai.onnx:DequantizeLinear Int4x2` (an element type; an operator of another
domain is written with it), `ai.onnx:MatMul kernel=MLFloat16` (the same in ORT format, where nothing is cast). `contrib_releases.py` is the measured table, `docs/resolve.md` the specification.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.schema.query.contrib_releases import FIRST_RELEASES
from onnxreg.schema.query.runtimes import release_number

if TYPE_CHECKING:
    from onnxreg.schema.manifest.operators import Need

DOMAIN = "com.microsoft"
_POSITION = re.compile("[0-9]{1,4}")


class Use(NamedTuple):
    """A node: its operator, the number of its inputs, its element types and its attributes.

    An attribute without an integer value is None. `in_ort_format`: no casts are added when the file is loaded.
    """

    domain: str
    name: str
    inputs: int
    types: frozenset[str]
    attributes: Mapping[str, int | None]
    in_ort_format: bool


def words(use: Use) -> Iterator[str]:
    """The operator, then each of its features."""
    domain, name, inputs, types, attributes, in_ort_format = use
    operator = name if domain == DOMAIN else f"{domain}:{name}"
    yield operator
    yield f"{operator} inputs={inputs}"
    for element in types:
        yield f"{operator} {element}"
        if in_ort_format:
            yield f"{operator} kernel={element}"
    for attribute, value in attributes.items():
        yield f"{operator} {attribute}"
        yield f"{operator} {attribute}={value}"


def needs(uses: Iterable[Use]) -> tuple[str, ...]:
    """Those words of nodes that a release may lack, sorted: contrib operators, and features that are in the table."""
    needed = {
        word
        for use in uses
        for word in words(use)
        if word in FIRST_RELEASES or (use.domain == DOMAIN and word == use.name)
    }
    return tuple(sorted(needed))


def needs_of_set(operators: "Iterable[Need]", precision: str, in_ort_format: bool) -> tuple[str, ...]:
    """The needs of an artifact of which only the operator set is recorded, which has no attributes.

    `bits` counts as 8, unless the weights have 4.
    """
    attributes = {} if precision == "int4" else {"bits": 8}
    return needs(
        Use(
            operator.domain,
            operator.name,
            max(map(int, filter(_POSITION.fullmatch, operator.inputs)), default=-1) + 1,
            frozenset().union(*operator.inputs.values(), *operator.outputs.values()),
            attributes,
            in_ort_format,
        )
        for operator in operators
    )


def problem(contrib: Iterable[str], release: str) -> str:
    """The first need that a release such as `1.23.2` lacks, in words; "" if it meets all."""
    number = release_number(release)
    for need in contrib:
        first = FIRST_RELEASES.get(need)
        if first is None:
            return f"needs {need}, which no release of ONNX Runtime known here runs on the CPU"
        if number < first:
            return f"needs {need}, ONNX Runtime {release} lacks it, {first[0]}.{first[1]} has it"
    return ""
