"""Small helpers over ONNX protobufs that several passes share."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from onnxreg.converters.inspection.weightless import without_weights


def containers(model: Any) -> Iterator[Any]:
    """Every proto of a model that holds nodes: the graph, its subgraphs, the functions and theirs."""
    for body in (model.graph, *model.functions):
        yield from within(body)


def within(body: Any) -> Iterator[Any]:
    """A graph or function and every subgraph in it."""
    stack = [body]
    while stack:
        container = stack.pop()
        yield container
        for node in container.node:
            for attribute in node.attribute:
                stack.extend([attribute.g] if attribute.HasField("g") else [])
                stack.extend(attribute.graphs)


def count_operators(model: Any) -> dict[str, int]:
    """How often each operator occurs, subgraphs and functions included; `domain:Op` beyond the default domain."""
    names = (
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
        for container in containers(model)
        for node in container.node
    )
    return dict(sorted(Counter(names).items()))


def default_opset(model: Any) -> int | None:
    """The opset of the default domain that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def infer_values(model: Any) -> dict[str, Any]:
    """The ValueInfoProto of each value of the main graph whose type can be inferred; large weights are not copied."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(without_weights(model), data_prop=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: value for value in values}


def clear_value_info(model: Any) -> None:
    """Drop the inferred types of intermediate values: a rewritten graph makes them stale."""
    for container in containers(model):
        del container.value_info[:]
