"""A model of timm, in an environment of its own: PyPI's torchvision does not import beside the CPU build of PyTorch that ours has."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from e2e.conftest import CACHE, environment_of
from support.environments import installed

pytestmark = [pytest.mark.large, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
REQUIREMENTS = ("torch==2.14.1", "torchvision==0.29.1", "--editable", f"{ROOT}[timm,run]")
LABELS = ["cat", "dog", "owl"]
SAVE = """
import sys, timm, torch
from timm.models import save_for_hf
name, directory, labels = sys.argv[1], sys.argv[2], sys.argv[3:]
torch.manual_seed(0)
model = timm.create_model(name, num_classes=len(labels) or 1000).eval()
for parameter in model.parameters():
    if parameter.ndim == 1:
        torch.nn.init.normal_(parameter, std=0.5)
save_for_hf(model, directory, model_config={"label_names": labels} if labels else {}, safe_serialization=len(labels) > 0)
"""
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
        return installed(CACHE / "timm", *REQUIREMENTS)
    except subprocess.CalledProcessError:
        pytest.skip("pip cannot install timm")


@pytest.mark.parametrize(
    ("name", "labels", "resize", "close"),
    [
        ("vit_tiny_patch16_224", LABELS, 248, 1e-4),
        ("mobilenetv3_small_050", [], 256, 1e-4),
        ("resnet18", LABELS, 235, 0.1),  # of 11 pixels, torchvision cuts off 6 on the left, we 5
    ],
)
def test_a_directory_of_timm_is_exported_run_and_resolved(name, labels, resize, close, programs, tmp_path):
    from PIL import Image

    checkpoint, image = tmp_path / "model", tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8).repeat(20, 0).repeat(20, 1)
    Image.fromarray(pixels).save(image)  # a square, of which an even number of pixels is cut off

    def call(*words: object, seed: str = "0", home: str = "home") -> str:
        environment = environment_of(tmp_path) | {"PYTHONHASHSEED": seed, "REG_HOME": str(tmp_path / home)}
        done = subprocess.run(
            [programs / str(words[0]), *map(str, words[1:])],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    call("python", "-c", SAVE, name, checkpoint, *labels)
    made = json.loads(call("reg", "export", checkpoint, "--quantize", "--name", "acme/timm", "--json"))
    again = call(
        "reg", "export", checkpoint, "--quantize", "--name", "acme/timm", "--json", seed="1", home="b"
    )
    assert json.loads(again)["manifest"] == made["manifest"]
    manifest = json.loads(call("reg", "show", "acme/timm", "--json"))
    assert manifest["preprocessing"]["resize"] == resize and "timm" in manifest["recipe"]["tools"]
    assert len(set(manifest["labels"])) == len(labels or range(1000))
    parity = next(check for check in manifest["artifacts"][0]["checks"] if check["metric"] == "max_abs_diff")
    assert parity["verdict"] == "pass"

    expected = json.loads(call("python", "-c", SCORES, checkpoint, image))
    classes = json.loads(call("reg", "run", "acme/timm", "--image", image, "--json"))["classes"]
    scores = {one["label"]: one["score"] for one in classes}
    found = [scores[label] for label in manifest["labels"]]
    assert found == pytest.approx(expected, abs=close)
    chosen = json.loads(call("reg", "resolve", "acme/timm", "--format", "onnx-int8", "--json"))
    assert chosen["artifact"]["path"] == "model_int8.onnx"
