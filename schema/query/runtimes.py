"""The newest opset, ONNX IR version and ORT format that each release of ONNX Runtime loads.

Measured with the wheels of 1.15.1, 1.16.3, 1.17.3, 1.18.1, 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1, 1.27.0, 1.29.0
and 1.31.1 from PyPI, by loading a graph of one `Relu` with rising versions. If two of them gave equal results, releases in
between count as equal. In an .ort file, ONNX Runtime checks the opset, not the IR version. Format 5 came with 1.13, 6 with 1.16
(https://onnxruntime.ai/docs/performance/model-optimizations/ort-format-models.html, microsoft/onnxruntime#20670). Files of
formats before 5 load with limits, and count as too old.

Contrib operators are the operators that ONNX Runtime adds in the domain `com.microsoft`. A need is an operator, alone or with
one feature: `MatMulNBits`, `MatMulNBits bits=8`, `MatMulNBits inputs=5`, `GroupQueryAttention softcap` (an attribute). An
operator of another domain has its domain: `ai.onnx:DequantizeLinear Int4x2` (an element type), `ai.onnx:MatMul
kernel=MLFloat16` (an element type in ORT format, where no cast is added). `contrib_releases.json` has the first release that
meets each need (measured by tests/support/contrib/measure.py). `docs/resolve.md` is the specification.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from onnxreg.schema.core.errors import InputError

OLDEST_FORMAT = 5


class Runtime(NamedTuple):
    """The newest versions that a release loads. The release also loads older ones (ORT formats from `OLDEST_FORMAT` on)."""

    opset: int
    ir: int
    ort_format: int


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
"""The versions that each release loads, by its major and minor number. A release newer than these counts as the newest."""
NEWEST = RELEASES[max(RELEASES)]


def release_number(release: str) -> tuple[int, int]:
    """Return the major and minor number of a release such as `1.23.2`. Raise InputError if the text is not a release."""
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?", release)
    if match is None:
        raise InputError(f"not a release of ONNX Runtime: {release[:40]!r}", "write it as 1.23.2 or 1.23")
    return int(match[1]), int(match[2])


def runtime(release: str) -> Runtime:
    """Return the versions that a release such as `1.23.2` loads. Raise InputError for other text or too old a release."""
    requested = release_number(release)
    older = [number for number in RELEASES if number <= requested]
    if not older:
        oldest = ".".join(map(str, min(RELEASES)))
        raise InputError(f"ONNX Runtime {release} is older than {oldest}, the oldest known here")
    return RELEASES[max(older)]


DOMAIN = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds to ONNX's."""
FIRST_RELEASES = msgspec.json.decode(
    Path(__file__).with_name("contrib_releases.json").read_bytes(), type=dict[str, tuple[int, int]]
)
"""The first release that meets each need on the CPU. Features that are not listed are as old as their operator."""


class Use(NamedTuple):
    """The use of an operator by a node: the operator, the number of the node's inputs, the element types and the attributes.

    An attribute is None if its value is not an integer. If `in_ort_format` is true, ONNX Runtime adds no casts on loading.
    """

    domain: str
    name: str
    inputs: int
    types: frozenset[str]
    attributes: Mapping[str, int | None]
    in_ort_format: bool


def words(use: Use) -> Iterator[str]:
    """Yield the needs of a node: the operator, then the operator with each of its features."""
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
    """Return the sorted needs that not every release meets: contrib operators, and the features in `FIRST_RELEASES`."""
    needed = {
        word
        for use in uses
        for word in words(use)
        if word in FIRST_RELEASES or (use.domain == DOMAIN and word == use.name)
    }
    return tuple(sorted(needed))


def problem(contrib: Iterable[str], release: str) -> str:
    """Describe the first need in `contrib` that a release such as `1.23.2` does not meet; "" if it meets all."""
    number = release_number(release)
    for need in contrib:
        first = FIRST_RELEASES.get(need)
        if first is None:
            return f"needs {need}, which no release of ONNX Runtime known here runs on the CPU"
        if number < first:
            return f"needs {need}, ONNX Runtime {release} lacks it, {first[0]}.{first[1]} has it"
    return ""
