"""Golden vectors: small inputs of a graph, the outputs it gave where it was made, and how far others may be from these.

    {"format": "onnxreg-golden", "format_version": 1, "cases": [{"name", "inputs": {name: tensor}, "outputs": {name: tensor}}]}
    tensor: {"dtype", "shape", "data": [numbers, the last axis fastest], "atol"?, "rtol"?}

A sidecar of each artifact (role `golden`), so that a phone or a CI job can test its runtime after the download. A value
passes if it differs from the expected one by at most `atol + rtol * |expected|`. `docs/golden.md` is for readers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError, about

ROLE = "golden"
FORMAT = "onnxreg-golden"
FORMAT_VERSION = 1
MAX_ROW_TOKENS = 16
"""Tokens of the longest row."""
MAX_VALUES = 4_500
"""The most values of all outputs together: a file stays below 64 kB."""
DTYPES = ("bool", "float16", "float32", "float64", "int32", "int64", "int8", "uint8")
MAX_ELEMENTS = 2**24

Tensors = Mapping[str, Any]
"""numpy arrays by the names that the graph has for them."""


@dataclass(frozen=True)
class Tolerance:
    """The largest distance of a value from the expected one: `atol + rtol * |expected|`."""

    atol: float
    rtol: float

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g} * |x|"


@dataclass(frozen=True)
class GoldenCase:
    """Inputs, and the outputs to expect with their tolerances."""

    name: str
    inputs: Tensors
    outputs: Tensors
    tolerances: Mapping[str, Tolerance]


@dataclass(frozen=True)
class GoldenComparison:
    """One output of one case: the largest difference, the tolerance, and how many of the values are beyond it.

    `max_abs_error` is infinite if a value is not a number or the shape is another.
    """

    case: str
    output: str
    values: int
    max_abs_error: float
    tolerance: Tolerance
    beyond: int

    @property
    def passed(self) -> bool:
        return self.beyond == 0

    def to_json(self) -> dict[str, Any]:
        """`max_abs_error` is null if it is infinite."""
        error = self.max_abs_error if math.isfinite(self.max_abs_error) else None
        value = {"case": self.case, "output": self.output, "values": self.values, "max_abs_error": error}
        return {**value, **asdict(self.tolerance), "beyond": self.beyond, "passed": self.passed}


def feeds_of(sample: Sequence[Tensors], labels: int) -> dict[str, Tensors]:
    """Small inputs out of a profile's sample (`sample_feeds`), by the names of their cases.

    A short row, and two rows of which one is padded; shorter if a token has very many labels.
    """
    width = max(1, min(MAX_ROW_TOKENS, MAX_VALUES // (3 * labels)))
    row = {name: array[:, :width] for name, array in sample[0].items()}
    return {"row": row, "padded": {name: array[1:3, :width] for name, array in sample[1].items()}}


def tolerance_of(outputs: Sequence[Any], share: float, least: float = 0.0) -> Tolerance:
    """A share of the largest output (at least 1) or `least`, whichever is more; and that share of the value itself."""
    scale = max([1.0, *(float(abs(array).max(initial=0)) for array in outputs)])
    return Tolerance(float(f"{max(share * scale, least):.2g}"), share)


def encode(cases: Sequence[GoldenCase]) -> bytes:
    """Canonical JSON (RFC 8785). Expected values are rounded to a hundredth of `atol`, which takes nothing from a test."""

    def tensor(array: Any, data: list[Any]) -> dict[str, Any]:
        return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}

    values = []
    for case in cases:
        outputs = {}
        for name, array in case.outputs.items():
            tolerance = case.tolerances[name]
            digits = 2 - math.floor(math.log10(tolerance.atol))
            rounded = [round(float(value), digits) for value in array.reshape(-1)]
            outputs[name] = {**tensor(array, rounded), **asdict(tolerance)}
        inputs = {name: tensor(array, array.reshape(-1).tolist()) for name, array in case.inputs.items()}
        values.append({"name": case.name, "inputs": inputs, "outputs": outputs})
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, "cases": values}
    return canonical.encode(document, "golden vectors")


def decode(data: bytes, label: str) -> tuple[GoldenCase, ...]:
    """Read golden vectors; InputError, naming `label`, if they are invalid."""
    value = canonical.decode(data, label)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f"{label} holds no golden vectors: its format is not {FORMAT!r}")
    if value.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{label} has an unknown format_version", "upgrade onnxreg to read a newer one")
    with about(label):
        cases = [
            GoldenCase(
                case.name,
                {name: tensor.array() for name, tensor in case.inputs.items()},
                {name: tensor.array() for name, tensor in case.outputs.items()},
                {name: Tolerance(tensor.atol, tensor.rtol) for name, tensor in case.outputs.items()},
            )
            for case in convert(value.get("cases"), list[_Case], "cases")
        ]
        if not cases or not all(case.outputs for case in cases):
            raise InputError("there is nothing to compare")
        return tuple(cases)


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0, le=MAX_ELEMENTS)], ...]
    data: list[Any]
    atol: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    rtol: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def array(self) -> Any:
        import numpy as np

        if self.dtype not in DTYPES:
            raise InputError(f"not a type of tensors: {self.dtype[:40]!r}", f"one of {', '.join(DTYPES)}")
        if math.prod(self.shape) != len(self.data):
            raise InputError("a tensor does not hold as many values as its shape says")
        try:
            return np.array(self.data, dtype=self.dtype).reshape(self.shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"a tensor holds a value that is not of type {self.dtype}") from error


class _Case(msgspec.Struct):
    name: str
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]


def read_tensor(value: Any) -> Any:
    """`{"dtype", "shape", "data"}` as a numpy array; InputError if the three do not fit."""
    return convert(value, _Tensor, "a tensor").array()


def compare(case: GoldenCase, got: Tensors) -> list[GoldenComparison]:
    """Each expected output of a case beside what a runtime gave; one that it did not give counts as wholly wrong."""
    import numpy as np

    comparisons = []
    for name, array in case.outputs.items():
        expected, value, tolerance = np.asarray(array, np.float64), got.get(name), case.tolerances[name]
        largest, beyond = math.inf, max(1, expected.size)
        if value is not None and np.shape(value) == expected.shape:
            error = np.abs(np.asarray(value, np.float64) - expected)
            error[np.isnan(error)] = math.inf
            largest = float(error.max(initial=0.0))
            beyond = int((error > tolerance.atol + tolerance.rtol * np.abs(expected)).sum())
        comparisons.append(GoldenComparison(case.name, name, expected.size, largest, tolerance, beyond))
    return comparisons
