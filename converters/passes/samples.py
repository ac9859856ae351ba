"""Sample inputs of graphs, and comparisons of the outputs of two graphs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import models
from onnxreg.converters.runtime.golden import INFINITE, as_type, magnitude, read_rows
from onnxreg.converters.runtime.sessions import BFLOAT16_NUMBER, numpy_type, run_session, with_reason
from onnxreg.converters.source.source_files import row_files
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, InputError

Feed = Mapping[str, Any]

SIZES = ({"batch": 1}, {"batch": 2})
"""For each of two random runs, the sizes of dynamic axes by name. `LENGTHS` has the size of all other axes."""
LENGTHS = (8, 12)
SEED = 0
MIN_COSINE = 0.5  # the lowest accepted cosine of an output with the parent's output
MIN_COVARIATION = 0.7  # the lowest cosine that `_refuse_chance` accepts
ROUNDED = 0.1  # a difference of at most this share of the parent's norm is not given to `_refuse_chance`
ROUNDINGS = 8  # the allowed error of graphs with 16-bit weights, in units of the type's precision (`STEPS`)
EIGHT_BITS = {2, 3}  # uint8, int8
STEPS = {10: 2.0**-10, 16: 2.0**-7}  # the distance from 1 to the next float16 and bfloat16


def draw(
    model: Any,
    bounds: Mapping[str, int] | None = None,
    sizes: Sequence[Mapping[str, int]] = SIZES,
    lengths: Sequence[int] = LENGTHS,
) -> tuple[Feed, ...]:
    """Make random inputs for two runs, with a fixed seed. The runs differ in batch and length if these are dynamic.

    Floats are normally distributed, indices are below their `bounds`, other integers are 1, and booleans are true. For
    each run, `sizes` has the sizes of dynamic axes by name, and `lengths` the size of all others.
    """
    import numpy as np
    import onnx

    bounds = index_bounds(model) if bounds is None else bounds
    generator = np.random.default_rng(SEED)
    table = model.graph.initializers.get("cos_cache")
    heads = {} if table is None else {"kv_cache_dim": 2 * table.shape[1]}
    others = {BFLOAT16_NUMBER: np.dtype("float32"), onnx.TensorProto.STRING: np.dtype(str)}

    def draw_one(value: Any, named: Mapping[str, int], length: int) -> Any:
        if not models.is_tensor(value):
            raise InputError(f"the input {value.name} is not a tensor: give sample inputs")
        number, axes = int(value.dtype), {"past_sequence_length": 0, **heads, **named}
        shape = [size if isinstance(size, int) else axes.get(size, length) for size in models.sizes_of(value)]
        dtype = others[number] if number in others else onnx.helper.tensor_dtype_to_np_dtype(number)
        if np.issubdtype(dtype, np.floating):
            return generator.normal(size=shape).astype(dtype)
        if np.issubdtype(dtype, np.integer) and value.name in bounds:
            return generator.integers(0, bounds[value.name], shape).astype(dtype)
        return np.ones(shape, dtype=dtype)

    return tuple(
        {value.name: draw_one(value, named, length) for value in model.graph.inputs}
        for named, length in zip(sizes, lengths, strict=True)
    )


def index_bounds(model: Any) -> dict[str, int]:
    """Return a bound for each input that indexes tables: the number of rows of the smallest of these tables."""
    bounds: dict[str, int] = {}
    for node in model.graph:
        if node.op_type == "Gather" and node.inputs[0].is_initializer() and len(node.inputs[0].shape) >= 2:
            index, rows = node.inputs[1], node.inputs[0].shape[0]
            while (maker := index.producer()) is not None and maker.op_type in ("Cast", "Identity"):
                index = maker.inputs[0]
            if index.is_graph_input():
                bounds[index.name] = min(bounds.get(index.name, rows), rows)
    return bounds


def model_of_inputs(session: Any) -> Any:
    """Make an `onnx_ir.Model` that has only a session's inputs. Raise InputError if an input is not numeric."""
    import numpy as np
    import onnx_ir as ir

    inputs = []
    for item in session.get_inputs():
        if not item.type.startswith("tensor(") or item.type == "tensor(string)":
            raise InputError(f"the input {item.name} is not a tensor of numbers: {item.type}")
        kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(numpy_type(item.type))))
        inputs.append(ir.Value(name=item.name, type=kind, shape=ir.Shape(item.shape)))
    return ir.Model(ir.Graph(inputs, [], nodes=[]), ir_version=models.FIRST_IR_WITH_CONSTANTS)


def read(path: Path) -> tuple[Feed, ...]:
    """Read sample inputs from a `.npz` file, or from all such files in a directory. Each row becomes a run.

    A file has an array for each input, with rows on the first axis. Raises InputError if there are no rows.
    """
    rows: list[Feed] = []
    for arrays in map(read_rows, row_files(path)):
        number = len(next(iter(arrays.values())))
        rows += [{name: a[at : at + 1] for name, a in arrays.items()} for at in range(number)]
    if not rows:
        raise InputError(f"{path.name} holds no rows of .npz arrays")
    return tuple(rows)


def check(feeds: Sequence[Feed], model: Any, label: str) -> None:
    """Raise InputError about `label` if there are no feeds, or if they have other names than the graph's inputs."""
    names = sorted(value.name for value in model.graph.inputs)
    if not feeds:
        raise InputError(f"{label} needs sample inputs, and none were given")
    for feed in feeds:
        if sorted(feed) != names:
            raise InputError(
                f"{label}: the graph takes {', '.join(names)}; given were {', '.join(sorted(feed))}"
            )


def digest(feeds: Sequence[Feed]) -> Digest:
    arrays = [(name, array) for feed in feeds for name, array in sorted(feed.items())]
    parts = (f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes() for name, array in arrays)
    return Digest.of(b"".join(parts))


def outputs(session: Any, feed: Feed, label: str) -> dict[str, Any]:
    """Run a graph once, with inputs converted to its types. Raise ConversionError about `label` if this fails."""
    types = {item.name: numpy_type(item.type) for item in session.get_inputs()}
    try:
        given = {name: as_type(feed[name], dtype) for name, dtype in types.items()}
        return run_session(session, given)
    except Exception as error:
        raise ConversionError(with_reason(f"{label} does not run in ONNX Runtime", error)) from error


def all_outputs(graph: Any, feeds: Sequence[Feed], label: str) -> list[dict[str, Any]]:
    """Return the outputs of a graph (an `onnx_ir.Model`, a file, or a session) for each feed.

    Raises ConversionError if a run fails. If only some fail, the message says that the graph has a fixed size.
    """
    session = graph if hasattr(graph, "get_inputs") else models.session(graph, label)
    results, errors, fitting = [], dict[str, ConversionError](), set[str]()
    for feed in feeds:
        shape = str(list(next((array.shape for array in feed.values()), ())))
        try:
            results.append({name: copy(value) for name, value in outputs(session, feed, label).items()})
            fitting.add(shape)
        except ConversionError as error:
            errors.setdefault(shape, error)
    if not errors:
        return results
    first = next(iter(errors.values()))
    if not results:
        raise first
    shapes = " or ".join(sorted(fitting - errors.keys()))
    raise ConversionError(
        f"{label} runs on inputs of the shape {shapes}, and not of {', '.join(sorted(errors))}: "
        "the exporter wrote the length of its example into the graph",
        "in a recipe: OnnxConversion with use_dynamo_exporter: auto, or with dynamic: false for one fixed size",
    ) from first


def inner_values(
    graph: Any, names: Sequence[str], feeds: Sequence[Feed], label: str
) -> Iterator[tuple[str, Any]]:
    """Run a graph on each feed. Yield the name and the array of each value in `names`."""
    model = graph.clone()
    values = {value.name: value for node in model.graph for value in node.outputs}
    for value in (values[name] for name in names):
        value.type = value.shape = None
    model.graph.outputs[:] = [values[name] for name in names]
    session = models.session(model, label)
    for feed in feeds:
        yield from outputs(session, feed, label).items()


@dataclass(frozen=True)
class Distance:
    """The distance of an output from the parent's over all runs. A position is a vector along the last axis.

    `largest` is the parent's largest magnitude. For integers, it is at most 1: large integers get no larger tolerance.
    `cosine` takes all values as a single vector. `min_cosine` is the lowest cosine of a position. `argmax_agreement` is
    the share of positions with the largest value at the same index.
    """

    max_abs_diff: float
    largest: float
    cosine: float
    positions: int
    min_cosine: float
    argmax_agreement: float


def compare(
    expected: Sequence[Mapping[str, Any]],
    got: Sequence[Mapping[str, Any]],
    label: str,
    tolerance: float | None = None,
    is_bounded: bool = True,
) -> dict[str, Distance]:
    """Compare outputs over all runs. Return the distance of each numeric output.

    Raises ConversionError about `label` if an output is missing, has another shape or NaN, or differs by more than
    `tolerance` times the largest value. With `is_bounded`, also raises ConversionError if the cosine of an output with
    the parent's output is below `MIN_COSINE`, or if `_refuse_chance` finds that the output does not follow the input.
    """
    import numpy as np

    distances = {}
    for name in (name for name, array in expected[0].items() if array.dtype.kind in "biufc"):
        pairs, output = _pairs(name, expected, got, label), f"{label}: the output {name}"
        if all(np.array_equal(one, other) for one, other in pairs):
            count = sum(one[..., 0].size if one.ndim > 1 else 1 for one, _ in pairs if one.size)
            distances[name] = Distance(0.0, max(magnitude(one) for one, _ in pairs), 1.0, count, 1.0, 1.0)
            continue
        pairs = [np.array(pair, np.float64) for pair in pairs]
        parent, child = np.concatenate([pair.reshape(2, -1) for pair in pairs], axis=1)
        if np.isnan(parent).any():
            raise ConversionError(f"the graph that {label} was given has NaN in its output {name}")
        is_masked = np.abs(parent) >= INFINITE
        if np.isnan(child).any() or not np.isfinite(child[~is_masked]).all():
            raise ConversionError(f"{label}: NaN or infinity in the output {name}")
        beyond = child[is_masked] * np.sign(parent[is_masked])
        parent, child = parent[~is_masked], child[~is_masked]
        cosine, gap = float(cosines(parent[None], child[None], 0.0)[0]), parent - child
        difference, largest = (float(abs(values).max(initial=0)) for values in (gap, parent))
        if (beyond < largest).any():
            raise ConversionError(f"{output} is {beyond.min():.3g} in size where the parent's is infinite")
        largest = min(largest, 1.0) if expected[0][name].dtype.kind in "biu" else largest
        distances[name] = Distance(difference, largest, cosine, *_by_position(pairs))
        if is_bounded:
            if cosine < MIN_COSINE:
                raise _unlike(f"{output} is not the parent's: their cosine", cosine, MIN_COSINE)
            is_near = np.linalg.norm(gap) <= ROUNDED * np.linalg.norm(parent)
            if expected[0][name].dtype.kind == "f" and not is_near:
                _refuse_chance(pairs, output)
        if tolerance is not None and difference > (most := tolerance * max(1.0, largest)):
            raise ConversionError(f"{output} is {difference:.3g} from the parent's, the most is {most:.3g}")
    return distances


def _pairs(
    name: str, expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], label: str
) -> list[Any]:
    if any(name not in arrays for arrays in got):
        raise ConversionError(f"{label} lost the output {name}")
    pairs = [(one[name], other[name]) for one, other in zip(expected, got, strict=True)]
    if any(one.shape != other.shape for one, other in pairs):
        raise ConversionError(f"{label}: the output {name} has another shape than the parent's")
    return pairs


def _by_position(pairs: Sequence[Any]) -> tuple[int, float, float]:
    import numpy as np

    least, same = 1.0, list[Any]()
    for pair in (pair for pair in pairs if pair.size):
        pair = pair.reshape(2, -1, pair.shape[-1] if pair.ndim > 2 else pair.size // 2)
        left, right = np.where(np.abs(pair[0]) < INFINITE, pair, 0)
        least = min(least, float(cosines(left, right, 1.0).min()))
        same.extend(pair[0].argmax(axis=1) == pair[1].argmax(axis=1))
    return len(same), least, float(np.mean(same or [True]))


def parity(feeds: Sequence[Feed], distances: Mapping[str, Distance], dataset: str = "") -> dict[str, Any]:
    """Return a comparison as JSON, for the record of a pass. `dataset` is the digest of the feeds, if it is known."""
    outputs = {
        name: {key: float(f"{getattr(one, key):.6g}") for key in ("max_abs_diff", "cosine")}
        for name, one in distances.items()
    }
    return {"samples": len(feeds), "dataset": dataset or str(digest(feeds)), "outputs": outputs}


def relative_distance(
    expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], label: str, floor: float = 0.0
) -> float:
    """Return the maximum over all outputs of `largest difference / max(largest expected value, floor)`."""
    distances = compare(expected, got, label, is_bounded=False).values()
    return max((one.max_abs_diff / (max(floor, one.largest) or 1.0) for one in distances), default=0.0)


def _refuse_chance(pairs: Sequence[Any], label: str) -> None:
    """Raise ConversionError if an output does not follow the input.

    The mean of the parent's output over rows and positions is subtracted from both outputs. The cosine of what is left
    must be at least `MIN_COVARIATION`.
    """
    import numpy as np

    runs = [pair.reshape(2, *(pair.shape[1:] or (1,))) for pair in pairs if pair.size]
    shapes = {run.shape[2:] for run in runs}
    widths = {shape[-1] if shape else 1 for shape in shapes}
    size = widths.pop() if len(widths) == 1 else 1
    if len(shapes) == 1 and sum(run.shape[1] for run in runs) > 1:
        size = int(np.prod(shapes.pop()))
    values = np.concatenate([run.reshape(2, -1, size) for run in runs], axis=1)
    values = np.where(np.abs(values[0]) < INFINITE, values, 0)
    parent, child = values
    mean = parent.mean(axis=0)
    (cosine,) = cosines((parent - mean).reshape(1, -1), (child - mean).reshape(1, -1), 1.0)
    if cosine < MIN_COVARIATION:
        finding = f"{label} does not follow the input as the parent's does: the cosine of what varies"
        raise _unlike(finding, cosine, MIN_COVARIATION)


def tolerance_of(work: Any, subject: Any) -> float | None:
    """Return how far a pass may move an output, as a share of its largest value; None means no limit.

    The limit is the pass's `tolerance`, or more if weights have 16 bits. A merge of graphs with 8-bit weights has
    no limit, because ONNX Runtime 1.31 lacks an exact kernel for shared weights on some processors.
    """
    stated: float | None = work.tolerance
    kinds = {int(tensor.dtype) for tensor in models.tensors(subject)}
    if stated is None or (work.second and kinds & EIGHT_BITS):
        return None
    return max(stated, *(ROUNDINGS * step for kind, step in STEPS.items() if kind in kinds), 0.0)


def cosines(left: Any, right: Any, otherwise: float = math.nan) -> Any:
    """Return the cosine of each pair of rows; `otherwise` for a pair with a row of zeros."""
    import numpy as np

    left, right = left.astype(np.float64, copy=False), right.astype(np.float64, copy=False)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.divide((left * right).sum(axis=1), norms, out=np.full(len(left), otherwise), where=norms > 0)


def _unlike(finding: str, value: float, least: float) -> ConversionError:
    return ConversionError(
        f"{finding} is {value:.3g}, the least is {least}",
        "quantize fewer nodes (nodes_to_exclude, op_types_to_quantize); a recipe publishes it with a lower limit of its own: "
        "checks: [{metric: min_cosine, min: 0}]",
    )
