"""Verdicts on pairs of small graphs, with tensors that all of them may read."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from support.graphs import graph, store
from support.prove.children import verdict_of

WEIGHT = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
SCALE = np.float32(2 * np.abs(WEIGHT).max() / 254)
CODES = np.rint(WEIGHT / SCALE).astype(np.int8)
TENSORS: dict[str, Any] = {
    "w": WEIGHT, "v": WEIGHT[::-1], "b": WEIGHT[0], "c": WEIGHT[1], "a": np.ones(8, np.float32), "q": CODES, "s": SCALE, "z": np.int8(0),
    "u8": np.uint8(128), "zero": 0.0, "one": 1.0, "two": 2.0, "half": 0.5, "root": float(np.sqrt(2)), "ones": np.ones(1, np.float32), "twos": np.full(1, 2, np.float32),
    "zeros": np.zeros((1, 1, 1, 1), np.float32), "last": np.array([-1]), "ratio": 0.5, "on": np.array(True), "off": np.array(False),
    "i7": np.eye(8, dtype=np.int32) * 7, "i2": np.eye(8, dtype=np.int32) * 2 + 1, "sizes": np.array([2**40, 2**20]), "epsilon": 1e-5,
    "i0": np.array(0), "i1": np.array(1), "i0v": np.array([0]), "onei": np.array([1]), "twoi": np.array([2]), "three": np.array([3]), "four": np.array([4]),
}  # fmt: skip
"""WEIGHT is w; q and s are its codes and their scale."""


def build(
    body: str,
    head: str = "float[n, 8] x => float[n, 8] y",
    more: str = "",
    opset: int = 18,
    local: int = 1,
    **tensors: Any,
) -> Any:
    """A graph by its text, which stores those of `TENSORS` and `tensors` that it reads and does not compute."""
    inputs, _, outputs = head.partition(" => ")
    model = graph(body, inputs, outputs, opset=opset, ir=9, more=more)
    del model.opset_import[:]
    versions = {"": opset, "com.microsoft": 1, "local": local}
    model.opset_import.extend(onnx.helper.make_opsetid(*item) for item in versions.items())
    nodes = list(model.graph.node)
    for node in nodes:
        nodes += [inner for item in node.attribute for inner in item.g.node]
    written = {name for node in nodes for name in node.output} | {item.name for item in model.graph.input}
    for name in dict.fromkeys(name for node in nodes for name in node.input if name not in written):
        if name in TENSORS or name in tensors:
            store(model, name, {**TENSORS, **tensors}[name])
    return model


def verdict(folder: Path, parent: Any, child: Any) -> tuple[str, str]:
    """The verdict on two graphs, or on two texts of such, and the reasons."""
    for name, model in (("parent", parent), ("child", child)):
        onnx.save(build(model) if isinstance(model, str) else model, folder / f"{name}.onnx")
    report = verdict_of(folder / "parent.onnx", folder / "child.onnx")
    return report.verdict, " ".join(report.reasons)
