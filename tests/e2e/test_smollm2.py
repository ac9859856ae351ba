"""A trained decoder through `ModelBuilder` and `reg`: exported, checked, published, pushed, pulled, and asked a question."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.e2e import smollm2

pytestmark = pytest.mark.large
Reg = Callable[..., Any]
PRECISIONS = ("fp32", "fp16", "int4")
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def recipe(directory: Path) -> Path:
    steps = [{"name": each, "pass": "ModelBuilder", "params": {"precision": each}} for each in PRECISIONS]
    outputs = [{"step": each, "path": f"{each}/model.onnx"} for each in PRECISIONS]
    path = directory / "decoder.json"
    path.write_text(json.dumps({"task": "text-generation", "steps": steps, "outputs": outputs}))
    return path


def answer(directory: Path, question: str, tokens: int = 12) -> str:
    """What the published files generate, the likeliest token each time."""
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(directory))
    tokenizer = onnxruntime_genai.Tokenizer(model)
    given = tokenizer.encode(question)
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=len(given) + tokens, do_sample=False)
    generator = onnxruntime_genai.Generator(model, options)
    generator.append_tokens(given)
    while not generator.is_done():
        generator.generate_next_token()
    return str(tokenizer.decode(generator.get_sequence(0)[len(given) :]))


@pytest.mark.timeout(1800)
def test_every_precision_answers_after_all_of_it(reg: Reg, tmp_path: Path) -> None:
    words = ("export", smollm2.checkpoint(), "--recipe", recipe(tmp_path), "--name", "acme/smollm2")
    manifest = json.loads(reg(*words, "--json").stdout)["manifest"]
    reg("push", "acme/smollm2", tmp_path / "remote")
    reg(
        "--registry",
        tmp_path / "other",
        "pull",
        "acme/smollm2",
        tmp_path / "remote",
        "--output",
        tmp_path / "x",
    )
    assert reg("--registry", tmp_path / "other", "verify").returncode == 0
    artifacts = {Path(each["path"]).parent.name: each for each in manifest["artifacts"]}
    assert {name: each["precision"] for name, each in artifacts.items()} == {
        "fp32": "float32",
        "fp16": "float16",
        "int4": "int4",
    }
    parity = {
        step["name"]: step["result"]["parity"]["outputs"]["logits"] for step in manifest["recipe"]["steps"]
    }
    distances = [parity[name]["max_abs_diff"] for name in PRECISIONS]
    assert distances == sorted(distances) and distances[0] < 1e-3 < distances[2]
    for name in PRECISIONS:
        assert "Paris" in answer(tmp_path / "x" / name, QUESTION), name
