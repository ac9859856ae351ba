"""ONNX Runtime's float16 converter, told what stays float32, and its graphs mended where they need it."""

from collections.abc import Collection
from typing import Any

from onnxreg.converters.inspection.external import tensors
from onnxreg.converters.passes import graph
from onnxreg.converters.passes.half import LARGEST, SMALLEST, emptied_weights
from onnxreg.converters.passes.quiet import quiet

FLOAT, FLOAT16 = 1, 10
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
        operators: those that stay float32; ONNX Runtime's own list where None.
        nodes: the names of nodes that stay float32.
        keep_io_types: whether inputs and outputs stay float32, or the names of those that do.
        smallest, largest: the bounds of `half.to_half`.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph.inline_functions(model)
    inferred = graph.infer_values(model)
    public = {value.name for value in (*model.graph.input, *model.graph.output)}
    weights = {tensor.name for tensor in model.graph.initializer}
    graph.clear_value_info(model)
    model.graph.value_info.extend(
        value for name, value in inferred.items() if name not in public and name not in weights
    )
    with quiet(), emptied_weights(model, smallest, largest):
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
    graph.sort_nodes(half)
    return half


def count_halves(model: Any) -> dict[str, int]:
    """How many weights a graph has in each of both types, subgraphs and constants included."""
    kinds = [tensor.data_type for tensor in tensors(model)]
    return {"float16_weights": kinds.count(FLOAT16), "float32_weights": kinds.count(FLOAT)}
