"""Inputs to measure a graph on: drawn with a seed to fit its contract, or read from files."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.onnx_graph import graph_inputs
from onnxreg.converters.runtime.npz import read_rows
from onnxreg.converters.runtime.sessions import BFLOAT16_NUMBER, numpy_type
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError

Feed = Mapping[str, Any]
"""The inputs of one run: numpy arrays by name."""

SIZES = ({"batch": 1}, {"batch": 2})
"""The sizes of dynamic axes in each drawn run, by name; others get `LENGTHS`."""
LENGTHS = (8, 12)
SEED = 0


def index_bounds(model: Any) -> dict[str, int]:
    """For each integer input that picks rows of stored tables, how many rows the smallest of them has."""
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) >= 2}
    origin = {value.name: value.name for value in graph_inputs(model.graph)}
    bounds: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and node.input[0] in rows and node.input[1] in origin:
            name = origin[node.input[1]]
            bounds[name] = min(bounds.get(name, rows[node.input[0]]), rows[node.input[0]])
    return bounds


def draw(
    model: Any,
    bounds: Mapping[str, int] | None = None,
    seed: int = SEED,
    sizes: Sequence[Mapping[str, int]] = SIZES,
    lengths: Sequence[int] = LENGTHS,
) -> tuple[Feed, ...]:
    """Runs for a graph, drawn with a seed: two, of which the second has another batch and length if these are dynamic.

    Floats are normal, indices of stored tables are within them, other integers are 1 (a mask without padding) and
    booleans true.

    Args:
        bounds: what `index_bounds` gives; of the graph itself if absent.
        sizes: of dynamic axes by name, for each run.
        lengths: of other dynamic axes, for each run.
    """
    import numpy as np

    bounds = index_bounds(model) if bounds is None else bounds
    generator = np.random.default_rng(seed)
    return tuple(
        {
            value.name: _draw(value, _shape(value, named, length), bounds, generator)
            for value in graph_inputs(model.graph)
        }
        for named, length in zip(sizes, lengths, strict=True)
    )


def taken_by(session: Any) -> Any:
    """Return an `onnx.ModelProto` with only the inputs of a loaded graph, for `draw`.

    Raises InputError for an input that is not a tensor of numbers.

    Args:
        session: `onnxruntime.InferenceSession`, of a file in either format.
    """
    import numpy as np
    import onnx

    model = onnx.ModelProto()
    for item in session.get_inputs():
        try:
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(numpy_type(item.type)))
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"the input {item.name} is not a tensor of numbers: {item.type}") from error
        model.graph.input.append(onnx.helper.make_tensor_value_info(item.name, kind, item.shape))
    return model


def read(path: Path, count: int | None = None, seed: int = SEED) -> tuple[Feed, ...]:
    """Rows of a `.npz` file, or of every one in a directory: arrays by input name whose first axis counts
    rows.

    Each row is one run of batch 1. Raises InputError if there are none, or fewer than asked for.

    Args:
        count: how many rows to pick, with the seed; all of them if absent.
    """
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path.name} holds no rows of .npz arrays")
    if count is None:
        return tuple(rows)
    if count > len(rows):
        raise InputError(f"{count} samples were asked for, {path.name} holds {len(rows)}")
    return tuple(rows[index] for index in sorted(random.Random(seed).sample(range(len(rows)), count)))


def check(feeds: Sequence[Feed], model: Any, label: str) -> None:
    """Raise InputError, naming `label`, if there are no feeds or they have other names than the graph's inputs."""
    names = sorted(value.name for value in graph_inputs(model.graph))
    if not feeds:
        raise InputError(f"{label} needs sample inputs, and none were given")
    for feed in feeds:
        if sorted(feed) != names:
            raise InputError(
                f"{label}: the graph takes {', '.join(names)}; given were {', '.join(sorted(feed))}"
            )


def digest(feeds: Sequence[Feed]) -> Digest:
    """The digest of names, types, shapes and values."""
    parts = [
        part
        for feed in feeds
        for name, array in sorted(feed.items())
        for part in (f"{name} {array.dtype} {array.shape}\n".encode(), array.tobytes())
    ]
    return Digest.of(b"".join(parts))


def _rows(path: Path) -> Iterator[Feed]:
    for file in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
        arrays = read_rows(file)
        count = len(next(iter(arrays.values())))
        yield from ({name: a[index : index + 1] for name, a in arrays.items()} for index in range(count))


def _shape(value: Any, sizes: Mapping[str, int], length: int) -> list[int]:
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, length) for dim in dims]


def _draw(value: Any, shape: list[int], bounds: Mapping[str, int], generator: Any) -> Any:
    import numpy as np
    import onnx

    if not value.type.HasField("tensor_type"):
        raise InputError(f"the input {value.name} is not a tensor: give sample inputs")
    number = value.type.tensor_type.elem_type
    dtype = np.dtype("float32") if number == BFLOAT16_NUMBER else onnx.helper.tensor_dtype_to_np_dtype(number)
    if np.issubdtype(dtype, np.floating):
        return generator.normal(size=shape).astype(dtype)
    if np.issubdtype(dtype, np.integer) and value.name in bounds:
        return generator.integers(0, bounds[value.name], shape).astype(dtype)
    return np.ones(shape, dtype=dtype)
