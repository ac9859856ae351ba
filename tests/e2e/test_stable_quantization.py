"""Two trainings of one model by the android profile: the second has the scales of the first."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxreg.converters.source.source_files import digest_file

pytestmark = pytest.mark.more
Reg = Callable[..., "subprocess.CompletedProcess[str]"]


def train_further(checkpoint: Path, target: Path) -> None:
    """Change every weight by at most 0.2 % of itself."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, target)
    torch.manual_seed(1)
    weights = load_file(target / "model.safetensors")
    for name, value in weights.items():
        weights[name] = value * (1 + 0.004 * (torch.rand_like(value) - 0.5))
    save_file(weights, target / "model.safetensors", {"format": "pt"})


def tensors(path: Path, *endings: str) -> dict[str, Any]:
    stored = onnx.load(path).graph.initializer
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in stored if tensor.name.endswith(endings)
    }


def changes(left: dict[str, Any], right: dict[str, Any]) -> int:
    assert left.keys() == right.keys() != set()
    return sum(int((left[name] != right[name]).sum()) for name in left)


def test_the_next_training_with_the_scales_of_the_last(bert: Path, reg: Reg, tmp_path: Path) -> None:
    train_further(bert, tmp_path / "next")

    def export(source: Path, name: str, *more: str) -> tuple[Path, Any]:
        output = tmp_path / name.replace("/", "-")
        words = ("--profile", "android", "--int8-embeddings", "--name", name, "--output", output)
        done = reg("export", source, *words, "--json", *more)
        return output / "model_int8.onnx", json.loads(done.stdout)["manifest"]

    (old, _), (own, _) = export(bert, "acme/old"), export(tmp_path / "next", "acme/own")
    stable, manifest = export(tmp_path / "next", "acme/new", "--scales-from", "acme/old")
    scales, codes = ("_scale", "_zero_point"), ("_quantized",)
    assert changes(tensors(old, *scales), tensors(own, *scales)) > 100
    assert changes(tensors(old, *scales), tensors(stable, *scales)) == 0
    assert (
        0
        < changes(tensors(old, *codes), tensors(stable, *codes))
        < changes(tensors(old, *codes), tensors(own, *codes))
    )
    (step,) = (step for step in manifest["recipe"]["steps"] if step["name"] == "int8")
    record = step["result"]["scales"]
    assert record["parent"] == str(digest_file(old))
    assert (record["own_weights"], record["own_scales"]) == (0, 0)
    reg("rebuild", "acme/new", "--source", tmp_path / "next")
