"""The newest opset, ONNX IR version and ORT format that each release of ONNX Runtime loads.

These were measured with wheels of ONNX Runtime from PyPI: each wheel loaded a graph of one `Relu` with rising opsets
and versions. The wheels were 1.15.1, 1.16.3, 1.17.3, 1.18.1, 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1, 1.27.0,
1.29.0 and 1.31.1. If two wheels gave equal results, the releases between them are taken to give the same results.
Format 5 came with 1.13, format 6 with 1.16
(https://onnxruntime.ai/docs/performance/model-optimizations/ort-format-models.html, microsoft/onnxruntime#20670). ONNX
Runtime loads files of earlier formats with limits. Here these files count as too old.

Contrib operators are operators of ONNX Runtime's domain `com.microsoft`. A *need* is an operator, alone or with one
feature: `MatMulNBits`, `MatMulNBits bits=8`, `MatMulNBits inputs=5`. An operator of another domain is written with the
domain: `ai.onnx:DequantizeLinear Int4x2`. `contrib_releases.json` has the first release that meets each need, as
measured by tests/support/contrib/measure.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from onnxreg.schema.core.errors import InputError

OLDEST_FORMAT = 5


class Runtime(NamedTuple):
    """The newest opset, IR version and ORT format that a release loads."""

    opset: int
    ir: int
    ort_format: int


# Releases that are newer than these count as the newest
RELEASES = {
    (1, 15): Runtime(19, 9, 5),
    (1, 16): Runtime(19, 9, 6),
    (1, 17): Runtime(20, 9, 6),
    (1, 18): Runtime(21, 10, 6),
    (1, 19): Runtime(21, 10, 6),
    (1, 20): Runtime(21, 10, 6),
    (1, 21): Runtime(22, 10, 6),
    (1, 22): Runtime(22, 10, 6),
    (1, 23): Runtime(23, 11, 6),
    (1, 24): Runtime(25, 13, 6),
    **dict.fromkeys([(1, minor) for minor in range(25, 32)], Runtime(26, 13, 6)),
}
NEWEST = RELEASES[max(RELEASES)]


def release_number(release: str) -> tuple[int, int]:
    """Return `(1, 23)` for the release `1.23.2` or `1.23`. Raise InputError for other text."""
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?", release)
    if match is None:
        raise InputError(f"not a release of ONNX Runtime: {release[:40]!r}", "write it as 1.23.2 or 1.23")
    return int(match[1]), int(match[2])


def runtime(release: str) -> Runtime:
    """Return the `Runtime` of a release such as `1.23.2`. Raise InputError for other text or a release before 1.15."""
    requested = release_number(release)
    older = [number for number in RELEASES if number <= requested]
    if not older:
        oldest = ".".join(map(str, min(RELEASES)))
        raise InputError(f"ONNX Runtime {release} is older than {oldest}, the oldest known here")
    return RELEASES[max(older)]


DOMAIN = "com.microsoft"
# The first release that meets each need on the CPU. Features that are not listed are as old as their operator.
FIRST_RELEASES = msgspec.json.decode(
    Path(__file__).with_name("contrib_releases.json").read_bytes(), type=dict[str, tuple[int, int]]
)


class Use(NamedTuple):
    """The use of an operator by a node, for `all_needs`: the number of inputs, the element types and the attributes of
    the node.
    """

    domain: str
    name: str
    inputs: int
    types: frozenset[str]
    attributes: Mapping[str, int | None]  # None if not an integer
    in_ort_format: bool  # ONNX Runtime adds no casts on loading


def all_needs(use: Use) -> Iterator[str]:
    """Yield what a node needs from a runtime: its operator, then each feature of the operator that the node uses."""
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
    """Return the needs of the nodes, sorted. Needs that every release of ONNX Runtime meets are left out."""
    needed = {
        word
        for use in uses
        for word in all_needs(use)
        if word in FIRST_RELEASES or (use.domain == DOMAIN and word == use.name)
    }
    return tuple(sorted(needed))


def problem(contrib: Iterable[str], release: str) -> str:
    """Describe the first need that a release such as `1.23.2` does not meet, or return "" if it meets all needs."""
    number = release_number(release)
    for need in contrib:
        first = FIRST_RELEASES.get(need)
        if first is None:
            return f"needs {need}, which no release of ONNX Runtime known here runs on the CPU"
        if number < first:
            return f"needs {need}, ONNX Runtime {release} lacks it, {first[0]}.{first[1]} has it"
    return ""
