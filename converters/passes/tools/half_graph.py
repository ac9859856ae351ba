"""ONNX Runtime's float16 converter with a list of what stays float32, fixes of its graphs, and values beyond float16.

Weights become float16 in numpy: the numbers of the converter, in a tenth of its time.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import tensors
from onnxreg.converters.onnx.graph_operators import element_of, within
from onnxreg.converters.onnx.onnx_graph import operator_nodes
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.onnx.weightless import MAX_SMALL_ELEMENTS, without_weights
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, FLOAT16 = 1, 10
LARGEST, SMALLEST = 65504.0, 5.96e-08
"""The bounds of float16: the largest finite value, and the smallest above 0."""
SENTINEL = 1e30
"""Larger values mean infinity, as in attention masks: a converter may use its own bound there."""
Keep = bool | Collection[str]


def to_float16(
    model: Any,
    operators: Collection[str] | None = None,
    nodes: Collection[str] = (),
    keep_io_types: Keep = True,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
) -> Any:
    """The float16 form of a model (`onnx.ModelProto`), which is changed in place.

    Args:
        operators: those that stay float32; ONNX Runtime's own list if None.
        nodes: the names of nodes that stay float32.
        keep_io_types: whether inputs and outputs stay float32, or the names of those that do.
        smallest, largest: the bounds of `to_half`.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph.inline_functions(model)
    nodes = {*nodes, *crashing_transposes(model)}
    _infer_value_info(model)
    with (
        graph.blame_tool("ONNX Runtime could not convert the graph to float16"),
        quiet(),
        emptied_weights(model, smallest, largest),
    ):
        half = convert_float_to_float16(
            model,
            min_positive_val=smallest,
            max_finite_val=largest,
            keep_io_types=keep_io_types if isinstance(keep_io_types, bool) else list(keep_io_types),
            disable_shape_infer=True,
            op_block_list=operators,
            node_block_list=nodes,
        )
    graph.clear_value_info(half)
    graph.drop_repeated_nodes(half)
    _join_float32(half)
    graph.sort_nodes(half)
    return half


def crashing_transposes(model: Any) -> Iterator[str]:
    """The names of the Transpose nodes before a MatMul by a stored matrix, given in place.

    ONNX Runtime (1.31, x86-64) crashes while it loads such a graph if both are float16.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    for product in [
        node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in stored
    ]:
        node = makers.get(product.input[0])
        while node is not None and node.op_type in ("Squeeze", "Unsqueeze", "Identity", "Cast"):
            node = makers.get(node.input[0])
        if node is not None and node.op_type == "Transpose":
            graph.name_nodes(model)
            yield node.name


def _infer_value_info(model: Any) -> None:
    """State the types and shapes of all inner values, inferred from the graph."""
    inferred = graph.infer_values(model)
    outer = {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    graph.clear_value_info(model)
    model.graph.value_info.extend(value for name, value in inferred.items() if name not in outer)


def _join_float32(model: Any) -> None:
    """Let a node that stays float32 read what another one made, in place, without a float16 value between them.

    The converter casts every value of such a node to float16 and back, which loses what float32 was kept for.
    """
    halved = {node.output[0]: node.input[0] for node in model.graph.node if _is_cast(node, FLOAT16)}
    widened = {
        node.output[0]: halved[node.input[0]]
        for node in model.graph.node
        if _is_cast(node, FLOAT) and node.input[0] in halved
    }
    public = {value.name for value in model.graph.output}
    for index in reversed(range(len(model.graph.node))):
        node = model.graph.node[index]
        if node.output and node.output[0] in widened:
            if node.output[0] in public:
                node.op_type, node.input[0] = "Identity", widened[node.output[0]]
                del node.attribute[:]
            else:
                del model.graph.node[index]
    graph.rename_values(model, {name: origin for name, origin in widened.items() if name not in public})
    read = {name for body in within(model.graph) for node in body.node for name in node.input} | public
    for index in reversed(range(len(model.graph.node))):
        if model.graph.node[index].op_type == "Cast" and not read & set(model.graph.node[index].output):
            del model.graph.node[index]


def _is_cast(node: Any, element: int) -> bool:
    """Return True if a node is a Cast to this type that the converter, which names its nodes so, has put
    in."""
    inserted = node.name.endswith(("_cast_to_fp16_node", "_cast_to_fp32_node")) or node.name.startswith(
        ("graph_input_cast", "graph_output_cast")
    )
    return inserted and node.op_type == "Cast" and any(entry.i == element for entry in node.attribute)


def refuse_integers(model: Any, step: str) -> None:
    """Raise InputError for products in integers, whose sums and scales are beyond float16."""
    integers = {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul"}
    operators = {node.op_type for body in within(model.graph) for node in body.node}
    if names := sorted(operators & integers):
        raise InputError(
            f"{step}: the graph is quantized dynamically ({', '.join(names)}), and sums of integers are beyond float16",
            "take the float32 graph for each of the two: input: STEP",
        )


def refuse_unhalved(before: int, halves: Mapping[str, int], step: str) -> None:
    """Raise ConversionError if no more weights are float16 than `before`."""
    if halves["float16_weights"] <= before:
        raise ConversionError(
            f"{step} changed nothing: {before} weights were float16 before, and no other could become it",
            "leave this step out",
        )


def halved_operators(model: Any) -> Counter[str]:
    """Count, for each operator, the nodes that read or make a float16 value, subgraphs included."""
    return Counter(
        node.op_type
        for node in operator_nodes(model, Path("the graph"))
        if any(
            (element := element_of(value)) and element.name == "float16"
            for value in (*node.inputs, *node.outputs)
        )
    )


def refuse_halved(before: Counter[str], after: Any, operators: Collection[str], step: str) -> None:
    """Raise ConversionError if one of these operators reads or makes float16 more often than `before`."""
    counts = halved_operators(after)
    if halved := sorted(name for name in operators if counts[name] > before[name]):
        raise ConversionError(f"{step}: {', '.join(halved)} should stay float32 and became float16")


def count_halves(model: Any) -> dict[str, int]:
    """Count the weights of a graph in both types, subgraphs and constants included."""
    kinds = [tensor.data_type for tensor in tensors(model)]
    return {"float16_weights": kinds.count(FLOAT16), "float32_weights": kinds.count(FLOAT)}


def overflowing(subject: Any, feeds: Sequence[Feed]) -> set[str]:
    """The names of the nodes of the main graph that make or read a float32 value beyond float16's largest.

    Nodes get names, in place, if there are any such values.
    """
    beyond = values_beyond(subject, feeds)
    if beyond:
        graph.name_nodes(subject)
    return {node.name for node in subject.graph.node if beyond.intersection((*node.input, *node.output))}


def values_beyond(subject: Any, feeds: Sequence[Feed]) -> set[str]:
    """The names of the float32 values that nodes of the main graph make and float16 cannot hold.

    On the CPU ONNX Runtime computes most of float16 in float32 and leaves the rounding between out, so that running
    the float16 graph there does not show what overflows elsewhere.
    """
    import numpy as np
    from onnx.numpy_helper import to_array

    largest: dict[str, float] = {}
    watched = model_file.session(_with_all_outputs(subject), "the graph with all its values as outputs")
    inputs = {item.name for item in watched.get_inputs()}
    weights = {tensor.name: to_array(tensor) for tensor in subject.graph.initializer if tensor.name in inputs}
    for feed in feeds:
        for name, array in samples.outputs(watched, {**weights, **feed}, "the graph").items():
            sizes = np.abs(array[np.isfinite(array) & (np.abs(array) < SENTINEL)])
            largest[name] = max(largest.get(name, 0.0), float(sizes.max(initial=0)))
    return {name for name, value in largest.items() if value > LARGEST}


def _with_all_outputs(subject: Any) -> Any:
    """The graph with every float32 value as an output; large float32 weights are inputs, which are not copied."""
    inferred = graph.infer_values(subject)
    computed = {
        name for node in subject.graph.node if node.op_type != "Constant" for name in node.output if name
    }
    others = {tensor.name for tensor in subject.graph.initializer if tensor.data_type != FLOAT}
    exposed = without_weights(subject, others)
    del exposed.graph.output[:]
    exposed.graph.output.extend(
        value
        for name, value in inferred.items()
        if name in computed and value.type.tensor_type.elem_type == FLOAT
    )
    return exposed


def to_half(values: Any, smallest: float = SMALLEST, largest: float = LARGEST) -> Any:
    """float32 to float16 as `onnxruntime.transformers.float16.convert_np_to_float16` does, to the bit.

    What is finite stays finite and what is not zero stays so: values beyond the bounds become the largest or smallest
    of their sign.
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        half = values.astype(np.float16)
    low, high = np.array([smallest, largest], np.float16).view(np.uint16)
    magnitudes = half.view(np.uint16) & 0x7FFF
    (lost,) = np.nonzero((magnitudes <= low) | (magnitudes >= high))
    exact = values[lost]
    bounded = np.sign(exact) * np.clip(np.abs(exact), smallest, largest)
    half[lost] = np.where((exact == 0) | np.isinf(exact), exact, bounded).astype(np.float16)
    return half


@contextmanager
def emptied_weights(model: Any, smallest: float = SMALLEST, largest: float = LARGEST) -> Iterator[None]:
    """Inside, the large float32 initializers of a graph have no elements; after it, those of the type they then have.

    A converter inside changes their type to float16 or leaves it; the bounds are those of `to_half`.
    """
    import numpy as np

    emptied = []
    for tensor in model.graph.initializer:
        if tensor.data_type == tensor.FLOAT and len(tensor.raw_data) > 4 * MAX_SMALL_ELEMENTS:
            emptied.append((tensor, tuple(tensor.dims), tensor.raw_data))
            tensor.raw_data = b""
            tensor.dims[:] = [0]
    try:
        yield
    finally:
        while emptied:
            tensor, dims, data = emptied.pop()
            tensor.dims[:] = dims
            halved = tensor.data_type == tensor.FLOAT16
            tensor.raw_data = (
                to_half(np.frombuffer(data, "<f4"), smallest, largest).tobytes() if halved else data
            )
