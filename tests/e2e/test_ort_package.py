"""A version out as a model package and back: the same artifacts, and ONNX Runtime itself loads it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from support.e2e.load_package import library

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
    answer("package", "acme/bert", tmp_path / "package")
    return tmp_path / "package"


def loaded(directory: Path, *references: str) -> Any:
    """What ONNX Runtime says of a package, in a process of its own."""
    script = Path(__file__).parents[1] / "support" / "e2e" / "load_package.py"
    words = [sys.executable, str(script), str(directory), *references]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def identity(manifest: dict[str, Any]) -> list[tuple[str, ...]]:
    keys = ("path", "format", "precision", "digest")
    return sorted(tuple(item[key] for key in keys) for item in manifest["artifacts"])


def by_path(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(files, key=lambda file: str(file["path"]))


def test_round_trip(answer: Answer, package: Path) -> None:
    before = answer("show", "acme/bert")
    back = answer("import", package, "--name", "acme/back")
    after = back["manifest"]
    assert identity(after) == identity(before)
    assert back["differences"] == []
    for key in ("labels", "task", "tokenizer"):
        assert after[key] == before[key]
    assert by_path(after["files"]) == by_path(before["files"])
    for old, new in zip(before["artifacts"], after["artifacts"], strict=True):
        assert [old[key] for key in ("files", "operators", "metadata")] == [
            new[key] for key in ("files", "operators", "metadata")
        ]
    assert after["recipe"]["steps"][0]["params"]["from"].startswith("acme/bert@sha256:")


def test_a_package_of_a_package_is_the_same(answer: Answer, package: Path, tmp_path: Path) -> None:
    answer("import", package, "--name", "acme/bert", "--version", "2.0.0")
    answer("package", "acme/bert:2.0.0", tmp_path / "again")
    for path in package.rglob("*"):
        if path.is_file() and path.name != "manifest.json":
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(package)).read_bytes()


def one_file(root: Path, name: str) -> Path:
    (path,) = root.rglob(name)
    return path


SPOILED: dict[str, tuple[Callable[[Path], Any], int, str]] = {
    "model changed": (
        lambda root: one_file(root, "model_int8.onnx").write_bytes(one_file(root, "model.onnx").read_bytes()),
        4,
        "model_int8.onnx in the package is damaged",
    ),
    "component changed": (
        lambda root: (root / "model/component.json").write_text('{"variants": {}}'),
        4,
        "model/component.json in the package is damaged",
    ),
    "file missing": (lambda root: one_file(root, "model.ort").unlink(), 2, "model.ort, which is missing"),
    "file added": (
        lambda root: (root / "model/x").write_text("x"),
        2,
        "model/x is not a file of this package",
    ),
    "link": (lambda root: (root / "x").symlink_to("manifest.json"), 2, "x in the package is a symbolic link"),
}


@pytest.mark.parametrize(("spoil", "status", "message"), SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_package_is_refused_and_leaves_nothing(
    answer: Answer, package: Path, spoil: Callable[[Path], Any], status: int, message: str
) -> None:
    spoil(package)
    assert message in answer("import", package, "--name", "acme/back", status=status)["message"]
    assert [row["name"] for row in answer("ls")["models"]] == ["acme/bert"]


needs_packages = pytest.mark.skipif(library() is None, reason="needs model packages in ONNX Runtime's C API")


@needs_packages
def test_onnx_runtime_loads_it(answer: Answer, package: Path, tmp_path: Path) -> None:
    told = answer("package", "acme/bert", package)
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
        answer("package", "acme/bert", out, "--format", format)
        assert loaded(out)["components"]["bert"]["inputs"] == len(contract["inputs"])


@needs_packages
def test_onnx_runtime_finds_external_data_in_a_shared_asset(answer: Answer, tmp_path: Path) -> None:
    for name, end in (("a.onnx", ""), ("b.onnx", "Relu")):
        body = "z = MatMul(x, w)" if not end else "y = MatMul(x, w) z = Relu(y)"
        text = (
            '<ir_version: 8, opset_import: ["" : 18]> g (float[b, 64] x) => (float[b, 64] z) {' + body + "}"
        )
        model = parser.parse_model(text)
        model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
        (tmp_path / "w.data").unlink(missing_ok=True)
        onnx.save(model, tmp_path / name, save_as_external_data=True, location="w.data", size_threshold=0)
    answer("add", tmp_path / "a.onnx", tmp_path / "b.onnx", "--name", "two")
    told = answer("package", "two", tmp_path / "package")
    assert len(list((tmp_path / "package").rglob("w.data"))) == len(told["shared_assets"]) == 1
    assert loaded(tmp_path / "package")["components"]["two"]["outputs"] == 1
    back = answer("import", tmp_path / "package", "--name", "back")["manifest"]
    assert [[file["path"] for file in item["files"]] for item in back["artifacts"]] == [
        ["w.data"],
        ["w.data"],
    ]
    shutil.rmtree(tmp_path / "package/shared_assets")
    script = Path(__file__).parents[1] / "support" / "e2e" / "load_package.py"
    words = [sys.executable, str(script), str(tmp_path / "package")]
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0
