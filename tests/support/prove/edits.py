"""Random edits of a graph, and if they change its outputs in ONNX Runtime."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime

Edit = Callable[[Any, np.random.Generator], str | None]
"""Changes a model in place and says what it did; None if it could not."""
SWAPS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Erf": "Tanh", "Sqrt": "Exp", "Softmax": "LogSoftmax",
    "ReduceMean": "ReduceSum", "MatMulInteger": "MatMulInteger",
}  # fmt: skip


SIZES = (
    [0, 0, 2, 16], [0, -1, 2, 16], [0, 0, 4, 8], [-1, 0, 2, 16], [0, 2, -1, 16], [0, 0, 16, 2], [2, 8, 2, -1],
    [0, -1, 32], [0, 0, 32], [-1, 8, 32], [2, -1, 32], [0, 16, 16], [-1, 0, 32], [0, 0, -1],
)  # fmt: skip
"""Of a Reshape: some are those of the models here, in another form."""


def change_attribute(model: Any, draw: np.random.Generator) -> str | None:
    items = [(n, a) for n in model.graph.node for a in n.attribute if a.type in (1, 2, 7)]
    if not items:
        return None
    node, item = items[draw.integers(len(items))]
    if item.type == onnx.AttributeProto.FLOAT:
        item.f = item.f * 3 + 0.5
    elif item.type == onnx.AttributeProto.INT:
        item.i += int(draw.choice([-1, 1]))
    else:
        order = draw.permutation(len(item.ints))
        item.ints[:] = [item.ints[at] for at in order] if len(item.ints) > 1 else [item.ints[0] + 1]
    return f"attribute {item.name} of {node.name}"


def swap_inputs(model: Any, draw: np.random.Generator) -> str | None:
    node = _any(model, draw, lambda n: len(n.input) > 1)
    if node is None:
        return None
    one, other = draw.choice(len(node.input), 2, replace=False)
    node.input[one], node.input[other] = node.input[other], node.input[one]
    return f"inputs of {node.name}"


def rewire(model: Any, draw: np.random.Generator) -> str | None:
    at = int(draw.integers(len(model.graph.node)))
    node = model.graph.node[at]
    names = [name for n in model.graph.node[:at] for name in n.output]
    names += [item.name for item in (*model.graph.initializer, *model.graph.input)]
    slot = int(draw.integers(len(node.input)))
    node.input[slot] = names[draw.integers(len(names))]
    return f"input {slot} of {node.name} is {node.input[slot]}"


def replace_weight(model: Any, draw: np.random.Generator) -> str | None:
    """Another tensor of the same shape and type takes the place of one."""
    stored = {item.name: item for item in model.graph.initializer}
    node = _any(model, draw, lambda n: any(name in stored for name in n.input))
    if node is None:
        return None
    slot = next(at for at, name in enumerate(node.input) if name in stored)
    mine = stored[node.input[slot]]
    twins = [
        t for t in stored.values() if (t.dims, t.data_type) == (mine.dims, mine.data_type) and t is not mine
    ]
    if not twins:
        return None
    node.input[slot] = twins[draw.integers(len(twins))].name
    return f"{node.input[slot]} for {mine.name}"


def change_operator(model: Any, draw: np.random.Generator) -> str | None:
    node = _any(model, draw, lambda n: n.op_type in SWAPS)
    if node is None:
        return None
    node.op_type = SWAPS[node.op_type]
    return f"{node.name} is {node.op_type}"


def change_tensor(model: Any, draw: np.random.Generator) -> str | None:
    """One element of any stored tensor: a weight, code, scale, zero point, size or index."""
    tensor = model.graph.initializer[draw.integers(len(model.graph.initializer))]
    array = onnx.numpy_helper.to_array(tensor).copy()
    if not array.size:
        return None
    at = int(draw.integers(array.size))
    flat = array.reshape(-1)
    is_float = array.dtype.kind == "f"
    flat[at] = (
        flat[at] * array.dtype.type(1.25) + array.dtype.type(0.01)
        if is_float
        else flat[at] ^ flat.dtype.type(1)
    )
    tensor.CopyFrom(onnx.numpy_helper.from_array(flat.reshape(array.shape), tensor.name))
    return f"element {at} of {tensor.name}"


def scale_tensor(model: Any, draw: np.random.Generator) -> str | None:
    floats = [item for item in model.graph.initializer if item.data_type in (1, 10)]
    tensor = floats[draw.integers(len(floats))]
    array = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array((array * 1.01).astype(array.dtype), tensor.name))
    return f"{tensor.name} times 1.01"


def change_sizes(model: Any, draw: np.random.Generator) -> str | None:
    """Other sizes of a Reshape, of the same number of elements: computed ones are stored, stored ones change."""
    node = _any(model, draw, lambda n: n.op_type == "Reshape")
    if node is None:
        return None
    sizes = SIZES[draw.integers(len(SIZES))]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(sizes), f"sizes{len(node.name)}"))
    node.input[1] = model.graph.initializer[-1].name
    return f"sizes of {node.name} are {sizes}"


def skip_node(model: Any, draw: np.random.Generator) -> str | None:
    node = _any(model, draw, lambda n: len(n.output) == 1 and bool(n.input) and n.input[0] != "")
    if node is None:
        return None
    source = node.input[0]
    for other in model.graph.node:
        other.input[:] = [source if name == node.output[0] else name for name in other.input]
    return f"without {node.name}"


def insert_node(model: Any, draw: np.random.Generator) -> str | None:
    at = int(draw.integers(len(model.graph.node)))
    node = model.graph.node[at]
    slot = int(draw.integers(len(node.input)))
    kind = str(draw.choice(["Neg", "Relu", "Floor", "Abs", "Softmax", "Transpose", "Sigmoid"]))
    model.graph.node.insert(at, onnx.helper.make_node(kind, [node.input[slot]], ["inserted"], "inserted"))
    model.graph.node[at + 1].input[slot] = "inserted"
    return f"{kind} before {node.name}"


EDITS: tuple[Edit, ...] = (
    change_attribute, swap_inputs, rewire, replace_weight, change_operator, change_tensor, scale_tensor, skip_node,
    insert_node, change_sizes,
)  # fmt: skip


def _any(model: Any, draw: np.random.Generator, wanted: Callable[[Any], bool]) -> Any:
    nodes = [node for node in model.graph.node if wanted(node)]
    return nodes[draw.integers(len(nodes))] if nodes else None


def session(model: Any) -> Any:
    """A session of ONNX Runtime without optimizations; None if it refuses the graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(data, options, providers=providers)
    except Exception:  # noqa: BLE001  onnxruntime raises a class for each of its statuses
        return None


def outputs(model: Any, inputs: list[dict[str, Any]]) -> list[Any] | None:
    """The outputs for some inputs; None if ONNX Runtime refuses the model or an input."""
    try:
        return [running.run(None, feed)[0] for feed in inputs] if (running := session(model)) else None
    except Exception:  # noqa: BLE001
        return None


def changed_models(
    model: Any, inputs: list[dict[str, Any]], seed: int, count: int, rounding: float = 0.0, edits: Any = EDITS
) -> Iterator[tuple[Any, str]]:
    """Yield so many edited models that run and give other outputs, each with what was done.

    Args:
        rounding: a difference up to this share of the largest output is none: a cast to float16 more or less.
    """
    draw, before = np.random.default_rng(seed), outputs(model, inputs)
    assert before is not None
    while count:
        edited = copy.deepcopy(model)
        with np.errstate(over="ignore", invalid="ignore"):
            what = edits[draw.integers(len(edits))](edited, draw)
        after = outputs(edited, inputs) if what else None
        if after is None or all(_is_equal(*pair, rounding) for pair in zip(before, after, strict=True)):
            continue
        count -= 1
        yield edited, str(what)


def _is_equal(one: Any, other: Any, rounding: float) -> bool:
    if one.shape != other.shape or not rounding:
        return one.shape == other.shape and np.array_equal(one, other, equal_nan=True)
    return bool(np.abs(one.astype(float) - other).max() <= rounding * np.abs(one).max())
