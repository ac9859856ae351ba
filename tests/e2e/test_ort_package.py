"""A version out as a model package and back: the same artifacts, and ONNX Runtime itself loads it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.e2e.load_package import library
from support.graphs import graph

from onnxreg.cli.main import main

pytestmark = pytest.mark.usefixtures("reader_in_process")
BERT = Path(__file__).parents[1] / "fixtures/openmed-v1/bert"
Answer = Callable[..., Any]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Answer:
    """Run `reg ... --json` and return what it printed; it must succeed, or end with this status."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(*words: object, status: int = 0) -> Any:
        capfd.readouterr()
        assert main([*map(str, words), "--json"]) == status
        out, err = capfd.readouterr()
        return json.loads(err)["error"] if status else json.loads(out)

    return run


@pytest.fixture
def package(answer: Answer, tmp_path: Path) -> Path:
    """Four builds of a real export, with tokenizer, labels and an operator config."""
    files = [path for path in sorted(BERT.iterdir()) if path.name != "openmed-onnx.json"]
    answer("add", *files, "--name", "acme/bert")
    answer("archive", "package", "acme/bert", tmp_path / "package")
    return tmp_path / "package"


def loaded(directory: Path, *references: str) -> Any:
    """What ONNX Runtime says of a package, in a process of its own."""
    script = Path(__file__).parents[1] / "support" / "e2e" / "load_package.py"
    words = [sys.executable, str(script), str(directory), *references]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


needs_packages = pytest.mark.skipif(library() is None, reason="needs model packages in ONNX Runtime's C API")


@needs_packages
@pytest.mark.more
def test_onnx_runtime_loads_it(answer, package, tmp_path):
    told = answer("archive", "package", "acme/bert", package)
    found = loaded(package, *told["shared_assets"])
    assert found["schema"] == 1
    names = {variant["name"]: variant["ep"] for variant in told["variants"]}
    component = found["components"]["bert"]
    assert component["variants"] == names
    assert component["selected"] == next(iter(names)) == "onnx-float32"
    assert Path(component["folder"]).resolve() == (package / "model/onnx-float32").resolve()
    contract = answer("show", "acme/bert")["artifacts"][0]["metadata"]
    assert component["inputs"] == len(contract["inputs"])
    assert component["outputs"] == len(contract["outputs"])
    for uri, path in found["resolved"].items():
        assert Path(path).name == uri.replace(":", "-") and (Path(path) / "tokenizer.json").is_file()
    for format in ("onnx-int8", "ort"):
        out = tmp_path / format
        answer("archive", "package", "acme/bert", out, "--format", format)
        assert loaded(out)["components"]["bert"]["inputs"] == len(contract["inputs"])


@needs_packages
def test_onnx_runtime_finds_external_data(answer, tmp_path):
    for name, body in {"a.onnx": "z = MatMul(x, w)", "b.onnx": "y = MatMul(x, w) z = Relu(y)"}.items():
        model = graph(body, "float[b, 64] x", "float[b, 64] z", w=np.ones((64, 64), np.float32))
        (tmp_path / "w.data").unlink(missing_ok=True)
        onnx.save(model, tmp_path / name, save_as_external_data=True, location="w.data", size_threshold=0)
    answer("add", tmp_path / "a.onnx", tmp_path / "b.onnx", "--name", "two")
    told = answer("archive", "package", "two", tmp_path / "package")
    assert len(list((tmp_path / "package").rglob("w.data"))) == 2 and told["shared_assets"] == []
    assert loaded(tmp_path / "package")["components"]["two"]["outputs"] == 1
