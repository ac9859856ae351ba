"""ONNX Runtime's float16 converter with a list of what stays float32, fixes of its graphs, and values beyond float16."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import tensors
from onnxreg.converters.onnx.graph_operators import element_of, within
from onnxreg.converters.onnx.onnx_graph import operator_nodes
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.converters.passes.base import Facts, GraphPass
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, FLOAT16 = 1, 10
LARGEST, SMALLEST = 65504.0, 5.96e-08
"""The bounds of float16: the largest finite value, and the smallest above 0."""
SENTINEL = 1e30
"""Larger values mean infinity, as in attention masks: a converter may use its own bound there."""
INTEGERS = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul"})


class HalfPass(GraphPass):
    """A pass to float16: some weights become it, and the operators of `kept` do not."""

    keeps_types = False

    @property
    def kept(self) -> Collection[str]:
        """The operators that stay float32 whatever the samples show."""
        return ()

    def requires(self, subject: Any) -> None:
        """Refuse products in integers, whose sums and scales are beyond float16."""
        super().requires(subject)
        operators = {node.op_type for body in within(subject.graph) for node in body.node}
        if names := sorted(operators & INTEGERS):
            raise InputError(
                f"{self.id}: the graph is quantized dynamically ({', '.join(names)}), and sums of integers are beyond float16",
                "take the float32 graph for each of the two: input: STEP",
            )

    def observe(self, subject: Any) -> Facts:
        halves, weights = halved_operators(subject), count_halves(subject)["float16_weights"]
        return {**super().observe(subject), "halves": halves, "float16_weights": weights}

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        result, halves = super().ensures(before, after), halved_operators(after)
        if halved := sorted(name for name in self.kept if halves[name] > before["halves"][name]):
            raise ConversionError(f"{self.id}: {', '.join(halved)} should stay float32 and became float16")
        counts, weights = count_halves(after), before["float16_weights"]
        if counts["float16_weights"] <= weights:
            raise ConversionError(
                f"{self.id} changed nothing: {weights} weights were float16 before, and no other could become it"
                + self.reason,
                "leave this step out, or allow more",
            )
        return {**result, **counts}

    @property
    def reason(self) -> str:
        """Why no weight may have become float16."""
        return ""


def to_float16(
    model: Any,
    operators: Collection[str] | None = None,
    nodes: Collection[str] = (),
    keep_io_types: bool = True,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
) -> Any:
    """The float16 form of a model (`onnx.ModelProto`), which is changed in place.

    Args:
        operators: those that stay float32; ONNX Runtime's own list if None.
        nodes: the names of nodes that stay float32.
        keep_io_types: whether inputs and outputs stay float32.
        smallest, largest: what is not 0 has at least and at most this size.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph.inline_functions(model)
    nodes = {*nodes, *crashing_transposes(model)}
    outer = {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    inferred = graph.infer_values(model)
    graph.clear_value_info(model)
    model.graph.value_info.extend(value for name, value in inferred.items() if name not in outer)
    with graph.blame_tool("ONNX Runtime could not convert the graph to float16"), quiet():
        half = convert_float_to_float16(
            model,
            min_positive_val=smallest,
            max_finite_val=largest,
            keep_io_types=keep_io_types,
            disable_shape_infer=True,
            op_block_list=operators,
            node_block_list=nodes,
        )
    graph.clear_value_info(half)
    _drop_repeated_nodes(half)
    _join_float32(half)
    graph.sort_nodes(half)
    return half


def crashing_transposes(model: Any) -> Iterator[str]:
    """The names of the Transpose nodes before a MatMul by a stored matrix, given in place.

    ONNX Runtime (1.31, x86-64) crashes while it loads such a graph if both are float16.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in stored]
    for product in products:
        node = makers.get(product.input[0])
        while node is not None and node.op_type in ("Squeeze", "Unsqueeze", "Identity", "Cast"):
            node = makers.get(node.input[0])
        if node is not None and node.op_type == "Transpose":
            graph.name_nodes(model)
            yield node.name


def _drop_repeated_nodes(model: Any) -> None:
    """Keep one of the nodes that make the same value, in place: the converter adds one Cast for each reader, all of one name."""
    for body in within(model.graph):
        first: dict[tuple[str, ...], Any] = {}
        nodes = [
            node
            for node in body.node
            if not node.output
            or (other := first.setdefault(tuple(node.output), node)) is node
            or other != node
        ]
        if len(nodes) < len(body.node):
            graph.replace_nodes(body, nodes)


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
    nodes = []
    for node in model.graph.node:
        if node.output and node.output[0] in widened:
            if node.output[0] not in public:
                continue
            node.op_type, node.input[0] = "Identity", widened[node.output[0]]
            del node.attribute[:]
        nodes.append(node)
    graph.replace_nodes(model.graph, nodes)
    graph.rename_values(model, {name: origin for name, origin in widened.items() if name not in public})
    read = {name for body in within(model.graph) for node in body.node for name in node.input} | public
    nodes = [node for node in model.graph.node if node.op_type != "Cast" or read & set(node.output)]
    graph.replace_nodes(model.graph, nodes)


def _is_cast(node: Any, element: int) -> bool:
    """Return True if a node is a Cast to this type that the converter, which names its nodes so, has put in."""
    inserted = node.name.endswith(("_cast_to_fp16_node", "_cast_to_fp32_node")) or node.name.startswith(
        ("graph_input_cast", "graph_output_cast")
    )
    return inserted and node.op_type == "Cast" and bool(graph.attribute(node, "to", 0) == element)


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


def count_halves(model: Any) -> dict[str, int]:
    """Count the weights of a graph in both types, subgraphs and constants included."""
    kinds = [tensor.data_type for tensor in tensors(model)]
    return {"float16_weights": kinds.count(FLOAT16), "float32_weights": kinds.count(FLOAT)}


def overflowing(subject: Any, feeds: Sequence[Feed]) -> set[str]:
    """The names of the nodes of the main graph that make or read a float32 value beyond float16's largest.

    Nodes get names, in place, if there are any such values. On the CPU ONNX Runtime computes most of float16 in float32 and
    leaves the rounding between out, so that running the float16 graph there does not show what overflows elsewhere.
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
    beyond = {name for name, value in largest.items() if value > LARGEST}
    if beyond:
        graph.name_nodes(subject)
    return {node.name for node in subject.graph.node if beyond.intersection((*node.input, *node.output))}


def _with_all_outputs(subject: Any) -> Any:
    """The graph with every float32 value as an output; large float32 weights are inputs, which are not copied."""
    computed = {name for node in subject.graph.node if node.op_type != "Constant" for name in node.output}
    others = {tensor.name for tensor in subject.graph.initializer if tensor.data_type != FLOAT}
    exposed = without_weights(subject, others)
    del exposed.graph.output[:]
    exposed.graph.output.extend(
        value
        for name, value in graph.infer_values(subject).items()
        if name in computed and value.type.tensor_type.elem_type == FLOAT
    )
    return exposed


def kinds_of(subject: Any) -> Mapping[str, list[str]]:
    """The names of the nodes of each operator, in the order of the graph, subgraphs included."""
    names: dict[str, list[str]] = {}
    for body in within(subject.graph):
        for node in body.node:
            names.setdefault(node.op_type, []).append(node.name)
    return names
