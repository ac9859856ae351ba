"""Golden vectors: small inputs of a graph, its expected outputs, and how much they may differ (docs/golden.md).

A device tests its runtime with them. This module also reads other arrays from files.
"""

import math
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from onnxreg.converters.runtime.sessions import load_session, numpy_type, run_session, with_reason
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import ConversionError, HostError, InputError, about, unreadable
from onnxreg.schema.core.files import HEAD_BYTES, check_content, check_given, read_given

ROLE = "golden"
FORMAT, FORMAT_VERSION = "onnxreg-golden", 1
MAX_ROW_TOKENS = 16
MAX_VALUES = 4_500
"""The maximum number of values in all outputs of golden vectors, so that their file is smaller than 64 kB."""
DTYPES = ("bool", "float16", "float32", "float64", "int32", "int64", "int8", "uint8")
MAX_ELEMENTS, MAX_INPUT_BYTES = 2**24, 256 * 2**20
INFINITE = 1e30  # larger values count as infinity, as in masks: no tolerance is a share of them
INPUTS = 'inputs are an .npz file of arrays by name, or JSON such as {"input_ids": [[1, 2]]}'

Tensors = Mapping[str, Any]  # arrays by name: the inputs or outputs of a graph


@dataclass(frozen=True)
class Tolerance:
    """The largest allowed error of a value: `atol + rtol * |expected|`."""

    atol: float
    rtol: float

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g} * |x|"


@dataclass(frozen=True)
class GoldenCase:
    """Inputs of a graph, the expected outputs, and a tolerance for each output."""

    name: str
    inputs: Tensors
    outputs: Tensors
    tolerances: Mapping[str, Tolerance]


@dataclass(frozen=True)
class GoldenComparison:
    """The difference between an output and the expected output. `beyond` is the number of values beyond the tolerance.

    `max_abs_error` is infinite if a value is NaN, or if the shape is wrong.
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
        """Return the JSON form. An infinite `max_abs_error` becomes null."""
        error = self.max_abs_error if math.isfinite(self.max_abs_error) else None
        value = {"case": self.case, "output": self.output, "values": self.values, "max_abs_error": error}
        return {**value, **asdict(self.tolerance), "beyond": self.beyond, "passed": self.passed}


def feeds_of(sample: Sequence[Tensors], labels: int) -> dict[str, Tensors]:
    """Make the inputs of two golden cases: `row`, a single short row, and `padded`, two rows with padding."""
    width = max(1, min(MAX_ROW_TOKENS, MAX_VALUES // (3 * labels)))
    row = {name: array[:, :width] for name, array in sample[0].items()}
    return {"row": row, "padded": {name: array[1:3, :width] for name, array in sample[1].items()}}


def magnitude(array: Any) -> float:
    """Return an array's largest magnitude. 65504 (float16's largest) and `INFINITE` or more do not count."""
    sizes = abs(array).astype("float64")
    return float(sizes[(sizes < INFINITE) & (sizes != 65504)].max(initial=0))


def tolerance_of(outputs: Sequence[Any], share: float, least: float = 0.0) -> Tolerance:
    """Return a tolerance with `rtol = share`. `atol` is `share` of the largest output, and at least `least`."""
    scale = max([1.0, *map(magnitude, outputs)])
    return Tolerance(float(f"{max(share * scale, least):.2g}"), share)


def encode(cases: Sequence[GoldenCase]) -> bytes:
    """Encode golden vectors as canonical JSON. Expected values are rounded to about `atol / 100`."""
    values = []
    for case in cases:
        outputs = {}
        for name, array in case.outputs.items():
            tolerance = case.tolerances[name]
            digits = 2 - math.floor(math.log10(tolerance.atol))
            rounded = [round(float(value), digits) for value in array.reshape(-1)]
            outputs[name] = {**_tensor_json(array), "data": rounded, **asdict(tolerance)}
        inputs = {name: _tensor_json(array) for name, array in case.inputs.items()}
        values.append({"name": case.name, "inputs": inputs, "outputs": outputs})
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, "cases": values}
    return canonical.encode(document, "golden vectors")


def decode(data: bytes, label: str) -> tuple[GoldenCase, ...]:
    """Decode golden vectors. Raise InputError about `label` if they are invalid."""
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
        if self.dtype not in DTYPES:
            raise InputError(f"not a type of tensors: {self.dtype[:40]!r}", f"one of {', '.join(DTYPES)}")
        if math.prod(self.shape) != len(self.data):
            raise InputError("a tensor does not hold as many values as its shape says")
        try:
            return as_type(self.data, self.dtype).reshape(self.shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"a tensor holds a value that is not of type {self.dtype}") from error


class _Case(msgspec.Struct):
    name: str
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]


def as_type(value: Any, dtype: str) -> Any:
    """Return values as an array. Raise ValueError or OverflowError if an integer would change: 300 in `int8`."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        array = np.asarray(value, dtype=dtype)
    if array.dtype.kind in "iub" and not np.array_equal(array, np.asarray(value)):
        raise ValueError(f"the graph takes {dtype}, which cannot hold these values")
    return array


def _tensor_json(array: Any) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": array.reshape(-1).tolist()}


def compare(case: GoldenCase, got: Tensors) -> list[GoldenComparison]:
    """Compare the expected outputs with a runtime's outputs. All values of a missing output count as wrong."""
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


class Runnable:
    """A model file in ONNX Runtime on the CPU. Raises HostError if ONNX Runtime of this machine cannot load it."""

    def __init__(self, path: Path) -> None:
        try:
            self._session = load_session(path)
        except ConversionError as error:
            hint = (
                f"ONNX Runtime here is {runtime_version()}: `reg resolve --device` finds what a release loads"
            )
            raise HostError(error.message, hint) from error
        self._name = path.name
        self._inputs = {item.name: numpy_type(item.type) for item in self._session.get_inputs()}

    def run(self, feeds: Tensors) -> dict[str, Any]:
        """Run the graph. Raise InputError if the names of inputs are wrong, or if the graph does not run."""
        self._check_names(feeds)
        try:
            return run_session(self._session, feeds)
        except Exception as error:
            raise InputError(with_reason(f"{self._name} does not run on these inputs", error)) from error

    def read(self, path: Path) -> dict[str, Any]:
        """Read inputs from an `.npz` file, or from JSON such as `{"input_ids": [[1, 2]]}`.

        Raises NotFoundError if there is no file, and InputError if it is invalid or does not fit the graph.
        """
        if path.suffix == ".npz":
            values = read_arrays(path)
        else:
            data = read_given(path, limit=MAX_INPUT_BYTES).removeprefix(BOM_UTF8)
            with about(f"{path} is not an .npz file, and cannot be read as JSON", hint=INPUTS):
                values = canonical.decode(data, "it", MAX_INPUT_BYTES)
            if not isinstance(values, dict):
                raise InputError(f"{path} is not a JSON object of inputs by name", INPUTS)
        self._check_names(values)
        arrays = {}
        for name, value in values.items():
            if isinstance(value, dict):
                arrays[name] = convert(value, _Tensor, "a tensor").array()
                continue
            try:
                arrays[name] = as_type(value, self._inputs[name])
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(f"{name} is not an array of {self._inputs[name]}") from error
        return arrays

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        if feeds.keys() != self._inputs.keys():
            raise InputError(
                f"{self._name} takes {', '.join(self._inputs)}; given were {', '.join(feeds) or 'none'}"
            )


def self_test(path: Path, vectors: bytes, label: str) -> list[GoldenComparison]:
    """Run a graph on its golden vectors. Raise InputError if the vectors are malformed.

    If the graph does not run on a case, all outputs of the case count as missing.
    """
    graph, comparisons = Runnable(path), []
    for case in decode(vectors, label):
        outputs: Tensors = {}
        with suppress(InputError):
            outputs = graph.run(case.inputs)
        comparisons += compare(case, outputs)
    return comparisons


def runtime_version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def to_json(outputs: Tensors) -> dict[str, Any]:
    """Return outputs as `{name: {"dtype", "shape", "data"}}`. NaN and infinity become null."""
    values = {name: _tensor_json(array) for name, array in outputs.items()}
    for value in values.values():
        plain = (None if isinstance(one, float) and not math.isfinite(one) else one for one in value["data"])
        value["data"] = list(plain)
    return values


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the arrays of an `.npz` file.

    Raises NotFoundError if it is missing, HostError if it is unreadable, InputError if it has more than plain arrays.
    """
    import numpy as np

    check_given(path)
    try:
        with path.open("rb") as file:
            check_content(file.read(HEAD_BYTES), path.name)
            file.seek(0)
            members = np.load(file, allow_pickle=False)
            arrays = {name: members[name] for name in members.files}
        for array in arrays.values():  # for other members, numpy returns bytes
            if isinstance(array, bytes) or array.dtype.names is not None:
                raise TypeError("no array")
        return arrays
    except MemoryError as error:
        raise InputError(f"{path.name} says that it holds more than there is memory for") from error
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise unreadable(path.name, error) from error
        raise InputError(
            f"{path.name} is not an .npz file of plain arrays", "a pickle is never read"
        ) from error


def read_rows(path: Path) -> dict[str, Any]:
    """Read the arrays of an `.npz` file by `read_arrays`. Raise InputError if their numbers of rows differ."""
    arrays = read_arrays(path)
    if not all(array.ndim for array in arrays.values()) or len({*map(len, arrays.values())}) != 1:
        raise InputError(f"{path.name}: its arrays do not have the same number of rows")
    return arrays


def check_finite(array: Any, label: str) -> None:
    """Raise InputError about `label` if an array has NaN or infinity."""
    import numpy as np

    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise InputError(f"{label} holds NaN or infinity")
