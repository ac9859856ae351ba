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


def audit_program() -> str:
    """The program of the page."""
    program = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert program is not None
    return program[1]


def test_the_program_is_short_and_needs_nothing_of_ours() -> None:
    assert len(audit_program().splitlines()) <= MAX_LINES
    assert "onnxreg" not in audit_program()


@pytest.fixture(scope="module")
def certificates(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the certificate of a pooled encoder's INT8 file, and its item scores."""
    root = tmp_path_factory.mktemp("judged")
    rows = [
        {
            "text": f"w{10 + n % 50} w{20 + n // 50}",
            "text_pair": f"w{10 + n * 7 % 50}",
            "score": n % 6,
            "group": n // 3,
        }
        for n in range(660)
    ]
    (root / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    value = {
        "task": "pooling",
        "steps": [
            {"name": "fp32", "pass": "OnnxConversion"},
            {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
        ],
        "outputs": [{"step": "int8", "path": "model_int8.onnx"}],
        "evaluation": {
            "suite": str(root / "suite.jsonl"),
            "item_scores": True,
            "metrics": [{"metric": "spearman"}, {"metric": "mean_cosine"}],
        },
    }
    workspace = root / "w"
    workspace.mkdir()
    execute(plan_export(RecipeFile.from_json(value), str(make_checkpoint("bert", "")), "acme/x"), workspace)
    return workspace / "certificates"


@pytest.mark.parametrize("metric", ["spearman", pytest.param("mean_cosine", marks=pytest.mark.more)])
def test_an_auditor_derives_the_verdict_with_the_lines_of_the_page(
    metric: str, certificates: Path, tmp_path: Path
) -> None:
    (tmp_path / "audit.py").write_text(audit_program())
    certificate = certificates / "model_int8.onnx.json"
    table = certificates / f"model_int8.onnx.{metric}.csv"
    command = [sys.executable, str(tmp_path / "audit.py"), str(certificate), metric, str(table)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    derived, recorded = printed.splitlines()
    loss, _, low, high = map(float, re.findall(r"-?\d[\d.e-]*", derived))
    (record,) = [item for item in json.loads(certificate.read_text())["metrics"] if item["metric"] == metric]
    assert loss == pytest.approx(record["loss"], rel=1e-5, abs=1e-12)
    assert (low, high) == pytest.approx(tuple(record["interval"]), rel=1e-5, abs=1e-12)
    assert recorded.endswith(record["state"])
