"""The script that asks a family says what is wrong with a directory or an image."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "run_family.py"
CLASSES = {"output": "logits", "ids": ["rye", "oat"]}
BACKBONE = {"name": "backbone", "artifacts": ["backbone.onnx"], "classes": CLASSES}
GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
backbone (float[batch,2,1,1] input) => (float[batch,2] logits, float[batch,2] embedding)
{ logits = Flatten(input) embedding = Flatten(input) }
"""


@pytest.mark.parametrize(
    ("gone", "dtype", "message"),
    [
        ("openmed-onnx.json", "float32", "openmed-onnx.json"),
        ("ood", "float32", "ood.onnx is not there: reg pull with --member ood fetches it"),
        ("", "float64", "the image is float64 [2, 1, 1], the family reads float32 [2, 1, 1]"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(tmp_path, gone, dtype, message):
    onnx.save(onnx.parser.parse_model(GRAPH), tmp_path / "backbone.onnx")
    members = [BACKBONE, *([{"name": "ood", "artifacts": ["ood.onnx"]}] if gone else [])]
    routing = {"rye": None, "oat": None}
    family = {"members": members, "edges": [{"output": "embedding"}], "routing": routing}
    artifacts = [{"path": f"{name}.onnx", "precision": "float32"} for name in ("backbone", "ood")]
    manifest = json.dumps({"artifacts": artifacts, "model_family": family})
    (tmp_path / "openmed-onnx.json").write_text(manifest)
    (tmp_path / (gone or "ood")).unlink(missing_ok=True)
    np.save(tmp_path / "image.npy", np.zeros((2, 1, 1), dtype))
    words = [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "image.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
