"""Running an artifact on this machine: on tensors that were handed in, and against its golden vectors."""

import math
from codecs import BOM_UTF8
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.npz import read_arrays
from onnxreg.converters.runtime.sessions import load_session, numpy_type, run_session, with_reason
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, HostError, InputError
from onnxreg.schema.core.given_file import read_given

MAX_INPUT_BYTES = 256 * 2**20
KINDS = 'inputs are an .npz file of arrays by name, or JSON such as {"input_ids": [[1, 2]]}'


class Runnable:
    """An ONNX or ORT-format file in ONNX Runtime on the CPU.

    Raise HostError if this machine's cannot load it.
    """

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

    def run(self, feeds: golden.Tensors) -> dict[str, Any]:
        """The outputs by name. Raise InputError if the graph takes other inputs, or does not run on these."""
        self._check_names(feeds)
        try:
            return run_session(self._session, feeds)
        except Exception as error:
            raise InputError(with_reason(f"{self._name} does not run on these inputs", error)) from error

    def read(self, path: Path) -> dict[str, Any]:
        """The inputs in a file: `.npz`, or JSON of `{name: nested lists, or {"dtype", "shape", "data"}}`.

        Raises NotFoundError if there is none, InputError if it is neither, or of another graph's inputs.
        """
        values = read_arrays(path) if path.suffix == ".npz" else _read_json(path)
        self._check_names(values)
        return {name: _as_array(name, value, self._inputs[name]) for name, value in values.items()}

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        if feeds.keys() != self._inputs.keys():
            raise InputError(
                f"{self._name} takes {', '.join(self._inputs)}; given were {', '.join(feeds) or 'none'}"
            )


def self_test(path: Path, vectors: bytes, label: str) -> list[golden.GoldenComparison]:
    """Run a graph on its golden vectors and compare. Raise InputError if these are malformed.

    A graph that does not run on a case gave none of its outputs.
    """
    graph, comparisons = Runnable(path), []
    for case in golden.decode(vectors, label):
        outputs: golden.Tensors = {}
        with suppress(InputError):
            outputs = graph.run(case.inputs)
        comparisons += golden.compare(case, outputs)
    return comparisons


def runtime_version() -> str:
    """The release of ONNX Runtime that is installed."""
    import onnxruntime

    return str(onnxruntime.__version__)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = canonical.decode(
            read_given(path, limit=MAX_INPUT_BYTES).removeprefix(BOM_UTF8), "it", MAX_INPUT_BYTES
        )
    except InputError as error:
        raise InputError(
            f"{path} is not an .npz file, and cannot be read as JSON: {error.message}", KINDS
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object of inputs by name", KINDS)
    return value


def _as_array(name: str, value: Any, dtype: str) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return golden.read_tensor(value)
    try:
        return np.asarray(value, dtype=dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} is not an array of {dtype}") from error


def to_json(outputs: golden.Tensors) -> dict[str, Any]:
    """Outputs as `{name: {"dtype", "shape", "data"}}`; what JSON cannot say (NaN, infinity) is null."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {
        name: {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "data": [plain(value) for value in array.reshape(-1).tolist()],
        }
        for name, array in outputs.items()
    }
