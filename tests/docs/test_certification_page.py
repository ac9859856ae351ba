"""The program of `docs/certification.md` gives the figures of a certificate, without onnxreg."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.schema.inputs.recipe_file import RecipeFile

PAGE = Path(__file__).parents[2] / "docs" / "certification.md"
MAX_LINES = 45


def test_an_auditor_derives_the_verdict_with_the_lines_of_the_page(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    program = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert program is not None and len(program[1].splitlines()) <= MAX_LINES
    assert "onnxreg" not in program[1]
    (tmp_path / "audit.py").write_text(program[1])
    rows = [
        {
            "text": f"w{10 + n % 50} w{20 + n // 50}",
            "text_pair": f"w{10 + n * 7 % 50}",
            "score": n % 6,
            "group": n // 3,
        }
        for n in range(660)
    ]
    (tmp_path / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    value = {
        "task": "pooling",
        "steps": [
            {"name": "fp32", "pass": "OnnxConversion"},
            {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
        ],
        "outputs": [{"step": "int8", "path": "model_int8.onnx"}],
        "evaluation": {
            "suite": str(tmp_path / "suite.jsonl"),
            "item_scores": True,
            "metrics": [{"metric": "spearman"}, {"metric": "mean_cosine"}],
        },
    }
    workspace = tmp_path / "w"
    workspace.mkdir()
    execute(plan_export(RecipeFile.from_json(value), str(make_checkpoint("bert", "")), "acme/x"), workspace)
    certificate = workspace / "certificates" / "model_int8.onnx.json"
    for metric in ("spearman", "mean_cosine"):
        table = workspace / "certificates" / f"model_int8.onnx.{metric}.csv"
        command = [sys.executable, str(tmp_path / "audit.py"), str(certificate), metric, str(table)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        derived, recorded = printed.splitlines()
        numbers = re.findall(r"-?\d[\d.e-]*", derived)
        loss, _, low, high = map(float, numbers)
        (record,) = [
            item for item in json.loads(certificate.read_text())["metrics"] if item["metric"] == metric
        ]
        assert loss == pytest.approx(record["loss"], rel=1e-5, abs=1e-12)
        assert (low, high) == pytest.approx(tuple(record["interval"]), rel=1e-5, abs=1e-12)
        assert recorded.endswith(record["state"])
