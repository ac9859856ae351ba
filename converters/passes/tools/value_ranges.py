"""The nodes of a graph that handle values beyond the range of float16."""

from collections.abc import Sequence
from typing import Any

from onnxreg.converters.passes.tools import graph, model_file, proof
from onnxreg.converters.passes.tools.half_graph import FLOAT
from onnxreg.converters.passes.tools.half_weights import LARGEST
from onnxreg.converters.passes.tools.samples import Feed

SENTINEL = 1e30
"""Larger values mean infinity, as in attention masks: a converter may use its own bound there."""


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

    largest: dict[str, float] = {}
    watched = model_file.session(_with_all_outputs(subject), "the graph with all its values as outputs")
    for feed in feeds:
        for name, array in proof.outputs(watched, feed, "the graph").items():
            sizes = np.abs(array[np.isfinite(array) & (np.abs(array) < SENTINEL)])
            largest[name] = max(largest.get(name, 0.0), float(sizes.max(initial=0)))
    return {name for name, value in largest.items() if value > LARGEST}


def _with_all_outputs(subject: Any) -> Any:
    inferred = graph.infer_values(subject)
    computed = {
        name for node in subject.graph.node if node.op_type != "Constant" for name in node.output if name
    }
    exposed = graph.copy(subject)
    del exposed.graph.output[:]
    exposed.graph.output.extend(
        value
        for name, value in inferred.items()
        if name in computed and value.type.tensor_type.elem_type == FLOAT
    )
    return exposed
