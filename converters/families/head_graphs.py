"""Heads as ONNX graphs, written from their weights: 320 of them need no tracing and no PyTorch module.

`head_graph` makes one head. `fused_graph` makes all heads of a family as one graph: the weights are stacked, and an
index picks a head for each row. Heads of fewer classes or hidden columns are padded: hidden columns with zeros, classes
with `MASKED`, which no argmax picks. An index that is negative or too large is an error of the run: ONNX's own Gather
would count a negative one from the end, and the last head would answer for an "unknown" of -1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from onnxreg.converters.families.head_checkpoints import HeadCheckpoint, Layer
from onnxreg.converters.passes.dynamic_quantization import int8_codes, int8_scales
from onnxreg.schema.core.errors import InputError

Activation = Literal["Relu", "Tanh"]
"""The operators between layers of a head. Each maps 0 to 0: hidden columns of zeros change nothing."""

INPUT, OUTPUT, INDEX = "embedding", "disease_logits", "head"
MASKED = -1e30
"""The logit of a class that a head does not have."""
BATCH = "batch_size"
Values = Mapping[str, tuple[str, Sequence[int | str]]]
"""Inputs or outputs by name: element type and shape."""


def head_graph(head: HeadCheckpoint, activation: Activation, opset: int) -> Any:
    """Make the graph from `embedding` `[batch_size, width]` to `disease_logits` `[batch_size, classes]`."""
    import onnx

    nodes, weights, value = [], [], INPUT
    for index, layer in enumerate(head.layers):
        last = index == len(head.layers) - 1
        names = [f"layers.{index}.weight", f"layers.{index}.bias"]
        weights += [
            onnx.numpy_helper.from_array(part, name)
            for part, name in zip((layer.weight, layer.bias), names, strict=True)
        ]
        output = OUTPUT if last else f"layers.{index}.sum"
        nodes.append(onnx.helper.make_node("Gemm", [value, *names], [output], f"layers.{index}", transB=1))
        if not last:
            nodes.append(
                onnx.helper.make_node(
                    activation, [output], [f"layers.{index}.out"], f"layers.{index}.activation"
                )
            )
        value = output if last else f"layers.{index}.out"
    inputs: Values = {INPUT: ("FLOAT", [BATCH, head.width])}
    return make_graph("head", nodes, weights, inputs, {OUTPUT: ("FLOAT", [BATCH, len(head.classes)])}, opset)


def make_graph(
    name: str, nodes: Sequence[Any], weights: Sequence[Any], inputs: Values, outputs: Values, opset: int
) -> Any:
    """Make a model (`onnx.ModelProto`) of these parts, with the oldest IR version that has the opset."""
    import onnx

    sides = (
        [
            onnx.helper.make_tensor_value_info(key, getattr(onnx.TensorProto, kind), list(shape))
            for key, (kind, shape) in side.items()
        ]
        for side in (inputs, outputs)
    )
    graph = onnx.helper.make_graph(nodes, name, *sides, initializer=weights)
    opsets = [onnx.helper.make_opsetid("", opset)]
    ir_version = onnx.helper.find_min_ir_version_for(opsets)
    return onnx.helper.make_model(graph, producer_name="onnxreg", opset_imports=opsets, ir_version=ir_version)


def fused_graph(
    heads: Sequence[HeadCheckpoint], activation: Activation, opset: int, *, quantized: bool = False
) -> Any:
    """Make the graph from `embedding` float32 `[batch_size, width]` and `head` int64 `[batch_size]` to
    `disease_logits` float32 `[batch_size, C]`.

    C is the largest number of classes of a head; `head` is a position in `heads`.

    Args:
        quantized: int8 weights with a scale for each head and column, so that no head costs another one
        precision.

    Raises InputError, naming the head, if it has another width or number of layers than the first.
    """
    import onnx

    _check_alike(heads)
    make = onnx.helper.make_node
    constants = [_constant("zero", 0), _constant("beyond", len(heads)), _constant("axis", [1])]
    nodes = [
        make("Less", [INDEX, "zero"], ["is_negative"]),
        make("Where", ["is_negative", "beyond", INDEX], ["index"]),
        make("Unsqueeze", [INPUT, "axis"], ["row"]),
    ]
    value, last = "row", len(heads[0].layers) - 1
    for depth in range(last + 1):
        stacked = _stack([head.layers[depth] for head in heads], MASKED if depth == last else 0.0)
        layer_nodes, weights = _product(value, depth, stacked, quantized)
        nodes += layer_nodes
        constants += weights
        value = f"layers.{depth}.sum"
        if depth < last:
            nodes.append(make(activation, [value], [f"layers.{depth}.out"]))
            value = f"layers.{depth}.out"
    nodes.append(make("Squeeze", [value, "axis"], [OUTPUT]))
    inputs: Values = {INPUT: ("FLOAT", [BATCH, heads[0].width]), INDEX: ("INT64", [BATCH])}
    columns = max(len(head.classes) for head in heads)
    return make_graph("fused_heads", nodes, constants, inputs, {OUTPUT: ("FLOAT", [BATCH, columns])}, opset)


def _check_alike(heads: Sequence[HeadCheckpoint]) -> None:
    first = heads[0]
    for head in heads:
        if head.width != first.width:
            raise InputError(
                f"{head.name} reads embeddings of width {head.width}, and {first.name} of {first.width}"
            )
        if len(head.layers) != len(first.layers):
            raise InputError(
                f"{head.name} has {len(head.layers)} layers and {first.name} {len(first.layers)}: "
                "they cannot be stacked",
                "leave fused out of the recipe, or train heads of one depth",
            )


def _stack(layers: Sequence[Layer], padding: float) -> tuple[Any, Any]:
    """Stack weights to `[heads, in, out]` and biases to `[heads, 1, out]`, padded to the largest of each."""
    import numpy as np

    rows, columns = (max(layer.weight.shape[axis] for layer in layers) for axis in (1, 0))
    weight = np.zeros((len(layers), rows, columns), np.float32)
    bias = np.full((len(layers), 1, columns), padding, np.float32)
    for index, layer in enumerate(layers):
        height, width = layer.weight.shape
        weight[index, :width, :height] = layer.weight.T
        bias[index, 0, :height] = layer.bias
    return weight, bias


def _product(
    value: str, depth: int, stacked: tuple[Any, Any], quantized: bool
) -> tuple[list[Any], list[Any]]:
    """Make nodes and weights of a layer, from `value` to `layers.<depth>.sum`, both `[batch, 1, columns]`."""
    import onnx

    make, at = onnx.helper.make_node, f"layers.{depth}"
    weight, bias = stacked
    arrays = {f"{at}.weight": weight, f"{at}.bias": bias}
    if quantized:
        steps, codes = _quantize(weight)
        arrays = {f"{at}.weight": codes, f"{at}.scale": steps, f"{at}.bias": bias}
    nodes = [make("Gather", [name, "index"], [f"{name}.of_head"]) for name in arrays]
    if not quantized:
        nodes.append(make("MatMul", [value, f"{at}.weight.of_head"], [f"{at}.product"]))
    else:
        nodes += [
            make("Cast", [f"{at}.weight.of_head"], [f"{at}.codes"], to=onnx.TensorProto.FLOAT),
            make("MatMul", [value, f"{at}.codes"], [f"{at}.unscaled"]),
            make("Mul", [f"{at}.unscaled", f"{at}.scale.of_head"], [f"{at}.product"]),
        ]
    nodes.append(make("Add", [f"{at}.product", f"{at}.bias.of_head"], [f"{at}.sum"]))
    return nodes, [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]


def _quantize(weight: Any) -> tuple[Any, Any]:
    """Return the scales, float32 `[heads, 1, out]`, and the int8 codes of weights `[heads, in, out]`."""
    import numpy as np

    steps = np.stack([int8_scales(head, -1) for head in weight])
    return steps, int8_codes(weight, steps)


def _constant(name: str, value: int | list[int]) -> Any:
    import numpy as np
    import onnx

    return onnx.numpy_helper.from_array(np.array(value, np.int64), name)
