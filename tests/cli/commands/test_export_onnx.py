"""`reg export FILE.onnx`: an ONNX file from somebody is a source like a checkpoint."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.docs.nets import write_mlp

from onnxreg.schema.query.runtimes import NEWEST

Reg = Callable[..., Any]


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    write_mlp(tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def test_a_file_is_published_byte_for_byte_with_int8_judged_beside_it(reg: Reg, mlp: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((220, 64)).astype(np.float32)
    np.savez("rows.npz", x=rows)
    words = ["export", mlp, "--quantize", "--eval-suite", "rows.npz", "--name", "me/mlp", "--json"]
    done = reg("--registry", "r", *words)
    assert done.status == 0, done.err
    manifest = json.loads(done.out)["manifest"]
    full, int8 = manifest["artifacts"]
    assert full["digest"] == f"sha256:{hashlib.sha256(mlp.read_bytes()).hexdigest()}"
    assert (int8["precision"], int8["parent"], int8["certification"]["state"]) == (
        "int8",
        full["digest"],
        "certified",
    )
    assert "output_cosine" in {check["metric"] for check in int8["checks"]}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["none.onnx", "--quantize"], 3),
        (["mlp.onnx", "--opset", "17"], 2),
        (["mlp.onnx", "--task", "pooling"], 3),
        (["mlp.onnx", "--quantize", "--eval-suite", "texts.jsonl"], 2),
    ],
)
def test_what_a_file_does_not_take_is_refused_and_nothing_is_published(
    reg: Reg, mlp: Path, words: list[str], status: int
) -> None:
    Path("texts.jsonl").write_text('{"text": "a"}\n')
    done = reg("--registry", "r", "export", *words, "--name", "me/mlp")
    assert (done.status, done.out) == (status, ""), done.err
    assert reg("--registry", "r", "show", "me/mlp").status == 3


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_link_beside_a_file_publishes_nothing_of_the_user(reg: Reg, mlp: Path, name: str) -> None:
    """A cloned directory may link to any file."""
    folder = Path("clone")
    folder.mkdir()
    mlp.rename(folder / mlp.name)
    Path("secret.json").write_text('{"key": "hunter2"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret.json")
    done = reg("--registry", "r", "export", folder / mlp.name, "--name", "me/mlp")
    assert (done.status, done.out) == (2, "") and name in done.err


@pytest.mark.usefixtures("reader_in_process")
def test_an_opset_that_no_runtime_loads_is_reported(reg: Reg, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17]> m (float[n,2] x) => (float[n,2] y) { y = Relu(x) }'
    )
    model.opset_import[0].version = NEWEST.opset + 2
    onnx.save(model, tmp_path / "new.onnx")
    done = reg("--registry", "r", "add", "new.onnx", "--name", "me/new")
    assert done.status == 0, done.err
    assert "warning: new.onnx" in done.out and str(NEWEST.opset + 2) in done.out


def test_a_recipe_for_another_task_is_named(reg: Reg, mlp: Path) -> None:
    Path("r.yaml").write_text("task: pooling\nsteps: [{name: fp32, pass: OnnxConversion}]\n")
    done = reg("--registry", "r", "export", mlp, "--recipe", "r.yaml", "--name", "me/mlp")
    assert done.status == 2 and "r.yaml: its task is pooling" in done.err


def test_a_suite_without_items_judges_nothing(reg: Reg, mlp: Path) -> None:
    np.savez("rows.npz", x=np.zeros((0, 64), np.float32))
    Path("empty.jsonl").write_text("")
    for suite in ("rows.npz", "empty.jsonl"):
        done = reg("--registry", "r", "export", mlp, "--quantize", "--eval-suite", suite, "--name", "me/mlp")
        assert done.status == 2, done.err
    assert not Path("r").exists()
