"""Versions of one model whose weights move a little from each to the next, as after a fine-tune."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

ELEMENTS = 300_000
"""Weights of the model: 1.2 MB in float32."""


RUNS = {
    "metadata": {"opset": 17},
    "ir_version": 8,
    "operators": [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}],
}
"""What a device must know of a graph."""


def weights(step: int) -> np.ndarray:
    """The weights after so many fine-tunes."""
    random = np.random.default_rng(7)
    values = random.normal(0, 0.05, ELEMENTS)
    for _ in range(step):
        values = values * (1 + random.normal(0, 3e-4, ELEMENTS))
    return values.astype(np.float32).reshape(500, -1)


def model(step: int, dtype: type = np.float32, **names: str) -> onnx.ModelProto:
    """A model that multiplies by its weights. `names` rename the initializers `weight` and `bias`."""
    weight, bias = names.get("weight", "weight"), names.get("bias", "bias")
    matrix = weights(step)
    if dtype is np.int8:
        matrix = np.round(matrix / 0.002).clip(-127, 127)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensors = [
        numpy_helper.from_array(matrix.astype(dtype), weight),
        numpy_helper.from_array(np.full(600, step).astype(dtype), bias),
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", weight], ["h"]), helper.make_node("Add", ["h", bias], ["y"])],
        "main",
        [helper.make_tensor_value_info("x", kind, ["batch", 500])],
        [helper.make_tensor_value_info("y", kind, ["batch", 600])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=f"trainer {step}")


def draft(root: Path, step: int, name: str = "acme/pii") -> Draft:
    """A version: float32, INT8, and a copy in another wrapper that is derived from the float32 file."""
    root.mkdir(parents=True)
    full = model(step)
    onnx.save(full, root / "model.onnx")
    onnx.save(model(step, np.int8), root / "model_int8.onnx")
    full.doc_string = "mobile"
    onnx.save(full, root / "mobile.onnx")
    (root / "config.json").write_bytes(b'{"step":%d}' % step)
    return Draft(
        name,
        root,
        (
            DraftArtifact("onnx", "float32", "model.onnx", fields=RUNS),
            DraftArtifact("onnx-android", "float32", "mobile.onnx", parent="model.onnx", fields=RUNS),
            DraftArtifact("onnx-int8", "int8", "model_int8.onnx", parent="model.onnx", fields=RUNS),
        ),
        (DraftFile("config", "config.json"),),
        {"task": "token-classification"},
    )
