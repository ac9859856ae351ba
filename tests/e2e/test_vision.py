"""A trained vision model from checkpoint to another registry: exported, checked, published, pulled, run on photographs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxreg.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FP32, QUANTIZED = "exports/model.onnx", "exports/model_quantized.onnx"

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


def pulled(reg: Callable[..., Any], tmp_path: Path) -> Callable[[str, Any], dict[str, Any]]:
    """The published files, pulled into another registry and run where they then lie."""
    reg("--registry", "elsewhere", "pull", "acme/vision", tmp_path / "home", "--output", "out")

    def run(path: str, images: Any) -> dict[str, Any]:
        session = ort.InferenceSession(tmp_path / "out" / path)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, {"input": images}), strict=True))

    return run


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
