"""The script that asks a family says what is wrong with a directory or an image."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "run_family.py"
MANIFEST = {
    "artifacts": [{"path": f"{name}.onnx", "precision": "float32"} for name in ("backbone", "ood")],
    "model_family": {
        "members": [
            {
                "name": "backbone",
                "artifacts": ["backbone.onnx"],
                "classes": {"output": "logits", "ids": ["rye", "oat"]},
            },
            {"name": "ood", "artifacts": ["ood.onnx"]},
        ],
        "edges": [{"output": "embedding"}],
        "routing": {"rye": None, "oat": None},
    },
}


def backbone(path: Path) -> None:
    tensor = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node(op, ["input"], [name])
        for op, name in (("Flatten", "logits"), ("Flatten", "embedding"))
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "backbone",
        [tensor("input", onnx.TensorProto.FLOAT, ["batch", 2, 1, 1])],
        [tensor(name, onnx.TensorProto.FLOAT, ["batch", 2]) for name in ("logits", "embedding")],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.mark.parametrize(
    ("gone", "dtype", "message"),
    [
        ("openmed-onnx.json", "float32", "openmed-onnx.json"),
        ("ood", "float32", "ood.onnx is not there: reg pull with --member ood fetches it"),
        ("", "float64", "the image is float64 [2, 1, 1], the family reads float32 [2, 1, 1]"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(tmp_path: Path, gone: str, dtype: str, message: str) -> None:
    backbone(tmp_path / "backbone.onnx")
    manifest = json.loads(json.dumps(MANIFEST))
    if not gone:
        del manifest["model_family"]["members"][1]
    (tmp_path / "openmed-onnx.json").write_text(json.dumps(manifest))
    (tmp_path / (gone or "ood")).unlink(missing_ok=True)
    np.save(tmp_path / "image.npy", np.zeros((2, 1, 1), dtype))
    words = [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "image.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
