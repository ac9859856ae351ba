"""A model of timm, in an environment of its own: PyPI's torchvision does not import beside the CPU build of PyTorch that ours has."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from e2e.conftest import environment_of
from PIL import Image
from sklearn.datasets import load_sample_image
from support.tasks import timm_models
from support.tasks.timm_models import SAVE

pytestmark = [pytest.mark.large, pytest.mark.timeout(3600)]
SCORES = """
import json, sys, timm, torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
directory, image = sys.argv[1:]
model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
transform = create_transform(**resolve_data_config(model=model))
with torch.no_grad():
    print(json.dumps(model(transform(Image.open(image))[None]).softmax(-1)[0].tolist()))
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    try:
        return timm_models.programs()
    except subprocess.CalledProcessError:
        pytest.skip("pip cannot install timm")


@pytest.fixture
def call(programs: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a program of the environment, and return what it prints."""

    def run(*words: object, seed: str = "0", home: str = "home") -> str:
        own = {"PYTHONHASHSEED": seed, "REG_HOME": str(tmp_path / home)}
        command = [programs / str(words[0]), *map(str, words[1:])]
        environment = environment_of(tmp_path) | own
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("name", "mode", "resize", "close"),
    [
        ("vit_tiny_patch16_224", "RGB", 248, 1e-4),
        ("resnet18", "L", 235, 0.1),  # of 11 pixels, torchvision cuts off 6 on the left, we 5
    ],
)
def test_a_directory_of_timm_is_exported_run_and_resolved(name, mode, resize, close, call, tmp_path):
    checkpoint, image = tmp_path / "model", tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8).repeat(20, 0).repeat(20, 1)
    square = Image.fromarray(pixels).convert(mode)  # of which an even number of pixels is cut off
    square.save(image)
    call("python", "-c", SAVE, name, checkpoint, len(mode))
    export = ("reg", "export", checkpoint, "--quantize", "--no-cache", "--name", "acme/timm", "--json")
    made = json.loads(call(*export))
    assert json.loads(call(*export, seed="1", home="b"))["manifest"] == made["manifest"]
    manifest = json.loads(call("reg", "show", "acme/timm", "--json"))
    assert manifest["preprocessing"]["resize"] == resize and "timm" in manifest["recipe"]["tools"]
    assert manifest["preprocessing"]["color"] == mode
    assert manifest["labels"] == ["cat", "dog", "owl"]
    parity = next(check for check in manifest["artifacts"][0]["checks"] if check["metric"] == "max_abs_diff")
    assert parity["verdict"] == "pass"
    expected = json.loads(call("python", "-c", SCORES, checkpoint, image))
    classes = json.loads(call("reg", "run", "acme/timm", "--image", image, "--json"))["classes"]
    scores = {one["label"]: one["score"] for one in classes}
    assert [scores[label] for label in manifest["labels"]] == pytest.approx(expected, abs=close)
    chosen = json.loads(call("reg", "resolve", "acme/timm", "--format", "onnx-int8", "--json"))
    assert chosen["artifact"]["path"] == "model_int8.onnx"


def test_trained_weights_name_a_photograph(mobilenet, call, tmp_path):
    """With the labels that timm knows for ImageNet, among them two cranes."""
    Image.fromarray(load_sample_image("china.jpg")).save(tmp_path / "photo.png")
    call("python", "-c", SAVE, "mobilenetv2_100", tmp_path / "model", 3, mobilenet)
    call("reg", "export", tmp_path / "model", "--quantize", "--name", "acme/timm")
    words = ("reg", "run", "acme/timm", "--image", tmp_path / "photo.png", "--json", "--precision")
    for precision in ("float32", "int8"):
        classes = json.loads(call(*words, precision))["classes"]
        assert classes[0]["label"] == "palace" and classes[0]["score"] > 0.5
        assert {"crane (134)", "crane (517)"} < {one["label"] for one in classes}
