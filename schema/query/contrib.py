"""Contrib operators: those that ONNX Runtime adds to ONNX's, in the domain `com.microsoft`, and the releases that run them.

A need is an operator's name, alone or with one feature: `MatMulNBits`, `MatMulNBits bits=8`, `MatMulNBits inputs=5`,
`GroupQueryAttention softcap` (an attribute), `ai.onnx:DequantizeLinear Int4x2` (an element type; an operator of another
domain is written with it). `contrib_releases.py` is the measured table, `docs/resolve.md` the specification.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from onnxreg.schema.query.contrib_releases import FIRST_RELEASES
from onnxreg.schema.query.runtimes import release_number

if TYPE_CHECKING:
    from onnxreg.schema.manifest.operators import Need

DOMAIN = "com.microsoft"


def words(
    domain: str, name: str, inputs: int, types: Iterable[str], attributes: Mapping[str, int | None]
) -> Iterator[str]:
    """The operator, then each of its features. An attribute without an integer value is None."""
    operator = name if domain == DOMAIN else f"{domain}:{name}"
    yield operator
    yield f"{operator} inputs={inputs}"
    for element in types:
        yield f"{operator} {element}"
    for attribute, value in attributes.items():
        yield f"{operator} {attribute}"
        yield f"{operator} {attribute}={value}"


def needs(
    domain: str, name: str, inputs: int, types: Iterable[str], attributes: Mapping[str, int | None]
) -> Iterator[str]:
    """Those words of a node that a release may lack: each contrib operator, and each feature that is in the table."""
    for word in words(domain, name, inputs, types, attributes):
        if word in FIRST_RELEASES or (domain == DOMAIN and word == name):
            yield word


def needs_of_set(operators: "Iterable[Need]", precision: str) -> tuple[str, ...]:
    """The needs of an artifact of which only the operator set is recorded, which has no attributes.

    `bits` counts as 8, unless the weights have 4.
    """
    attributes = {} if precision == "int4" else {"bits": 8}
    needed: set[str] = set()
    for operator in operators:
        types = frozenset().union(*operator.inputs.values(), *operator.outputs.values())
        inputs = max(map(int, operator.inputs), default=-1) + 1
        needed.update(needs(operator.domain, operator.name, inputs, types, attributes))
    return tuple(sorted(needed))


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
