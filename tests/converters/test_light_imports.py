"""What is heavy is imported by the step that needs it, not by asking for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.sampling import sampled

HEAVY = {"torch", "transformers", "onnx", "onnxruntime", "onnxscript", "safetensors", "tokenizers"}


def loaded(code: str) -> set[str]:
    """Packages, and modules of onnxreg, that some code loads in a process of its own."""
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout.splitlines()[-1])
    return {name if name.startswith("onnxreg.") else name.partition(".")[0] for name in modules}


def test_the_package_loads_nothing_but_itself_until_export_is_asked_for() -> None:
    found = loaded("import onnxreg.converters")
    assert not found & {*HEAVY, "numpy", "pydantic", "onnxreg.schema.manifest.manifest"}
    code = """import onnxreg.converters as it; assert callable(it.export)
try: it.nothing
except AttributeError as error: assert "nothing" in str(error)"""
    assert not loaded(code) & {"torch", "transformers", "onnxruntime"}


@pytest.mark.parametrize("module", sampled(["engine.run_plan", "request", "families.export_family"], 2))
def test_an_export_loads_nothing_heavy_before_it_begins(module: str) -> None:
    found = loaded(f"import onnxreg.converters.{module}")
    assert f"onnxreg.converters.{module}" in found
    assert not found & HEAVY


def test_a_task_is_placed_without_the_parts_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    asked = f"ExportRequest({str(tmp_path)!r}, name='tiny', task='default')"
    found = loaded(f"from onnxreg.converters.request import ExportRequest; {asked}.plan()")
    assert "onnxreg.converters.tasks.text" in found
    assert not found & {*HEAVY, "onnxreg.converters.evaluation.metrics"}
