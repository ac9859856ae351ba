"""A head as an ONNX graph, written from its weights: 320 of them need no tracing and no PyTorch module."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from onnxreg.converters.families.head_checkpoints import HeadCheckpoint

Activation = Literal["Relu", "Tanh"]
"""The operators between layers of a head. Each maps 0 to 0: hidden columns of zeros change nothing."""

INPUT, OUTPUT = "embedding", "disease_logits"
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
