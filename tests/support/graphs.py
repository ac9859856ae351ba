"""Small ONNX graphs for tests."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxreg.converters.passes import base, models, pass_contract, samples
from onnxreg.converters.passes.pass_contract import PassContract

Weight = tuple[int, ...] | np.ndarray[Any, Any]


def graph(
    body: str,
    inputs: str = "float[n, 40] x",
    outputs: str = "float[n, 40] y",
    *,
    opset: int = 18,
    ir: int = 8,
    named: bool = False,
    more: str = "",
    **weights: Weight | float,
) -> Any:
    """An `onnx.ModelProto` of ONNX's own text. A weight is a value, or the shape of float32 numbers drawn with a seed.

    `named` calls the nodes node0, node1 and so on; `more` is text behind the graph, such as functions. Domains that the
    body names are of version 1.
    """
    others = sorted(set(re.findall(r"([a-z]+(?:\.[a-z]+)*)\.[A-Za-z]+ ?[(<]", body + more)))
    domains = ", ".join([f'"" : {opset}', *(f'"{domain}" : 1' for domain in others)])
    model = onnx.parser.parse_model(
        f"<ir_version: {ir}, opset_import: [{domains}]> g ({inputs}) => ({outputs}) {{ {body} }} {more}"
    )
    for index, node in enumerate(model.graph.node if named else ()):
        node.name = f"node{index}"
    draw = np.random.default_rng(0)
    for name, weight in weights.items():
        value = draw.normal(size=weight).astype(np.float32) if isinstance(weight, tuple) else weight
        store(model, name, value)
    return model


def store(model: Any, name: str, value: Any) -> None:
    """Set or add a weight; a Python float is a float32."""
    array = np.float32(value) if isinstance(value, float) else np.asarray(value)
    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    for known in model.graph.initializer:
        if known.name == name:
            known.CopyFrom(tensor)
            return
    model.graph.initializer.append(tensor)


def put(path: str, value: Any) -> Callable[[Any], None]:
    """An edit of a model that sets one field: `graph.node.-1.input.0` is names of fields and indices."""

    def edit(model: Any) -> None:
        *parents, last = (int(part) if part.strip("-").isdigit() else part for part in path.split("."))
        for part in parents:
            model = model[part] if isinstance(part, int) else getattr(model, part)
        if isinstance(last, int):
            model[last] = value
        else:
            setattr(model, last, value)

    return edit


def stored(model: Any) -> dict[str, Any]:
    """The weights of a graph by name."""
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def operators(model: Any) -> list[str]:
    """The operators of a graph, node by node."""
    return [node.op_type for node in model.graph.node]


def write_optimized(source: Path, level: str, target: Path) -> Path:
    """Let ONNX Runtime write a graph as it optimizes it at a level, in its own format if the target is an `.ort` file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(target), 4
    name = "ORT_DISABLE_ALL" if level == "NONE" else f"ORT_ENABLE_{level}"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
    if target.suffix == ".ort":
        options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return target


def write_ort(source: Path, level: str = "ALL") -> Path:
    """The graph in ONNX Runtime's format, beside the source."""
    return write_optimized(source, level, source.with_suffix(".ort"))


def contract(make: Callable[[], Any], subject: Callable[[], Any]) -> type[PassContract]:
    """The contract suite of a pass: pytest collects it under a name that begins with Test."""
    methods = {"make": lambda self: make(), "subject": lambda self: read(subject())}
    return type("Contract", (PassContract,), methods)


# Passes take `onnx_ir.Model`, and tests write and read protobuf.


def read(model: Any) -> Any:
    """The model for a pass; what is no protobuf stays as it is."""
    return ir.from_proto(model) if isinstance(model, onnx.ModelProto) else model


def run(step: str, pass_: Any, subject: Any, source: str | None = None) -> tuple[Any, Any]:
    after, record = base.run(step, pass_, read(subject), source)
    return models.to_proto(after) if isinstance(after, ir.Model) else after, record


def run_and_compare(step: str, pass_: Any, subject: Any, feeds: Any = None) -> tuple[Any, Any]:
    after, record = pass_contract.run_and_compare(step, pass_, read(subject), feeds)
    return models.to_proto(after), record


def draw(model: Any) -> Any:
    return samples.draw(read(model))


def all_outputs(model: Any, feeds: Any, label: str = "the graph") -> Any:
    return samples.all_outputs(read(model), feeds, label)


def public_types(model: Any) -> dict[str, int]:
    return base.public_types(read(model))


def count_operators(model: Any) -> dict[str, int]:
    return models.count_operators(read(model))


def load(path: Path) -> Any:
    return models.to_proto(models.load(path))
