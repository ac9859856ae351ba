"""Real weights through `reg`: exported, checked, published, pushed and pulled."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pii_data import held_out_sentences
from support.e2e import real_models, smollm2

pytestmark = pytest.mark.large
Reg = Callable[..., Any]


PRECISIONS = {"fp32": "float32", "fp16": "float16", "int4": "int4"}
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def published(reg: Reg, directory: Path, *words: object) -> dict[str, Any]:
    """Export, push, pull into another registry and write out what came; returns the manifest."""
    done, other = reg("export", *words, "--name", "acme/x", "--json"), ("--registry", directory / "other")
    reg("push", "acme/x", directory / "remote")
    reg(*other, "pull", "acme/x", directory / "remote", "--output", directory / "x")
    reg(*other, "verify")
    return dict(json.loads(done.stdout)["manifest"])


def test_embeddings_are_those_of_another_export(reg, tmp_path):
    """Somebody else's ONNX of the same weights, pooled here by numpy."""
    import onnxruntime
    import transformers

    manifest = published(reg, tmp_path, real_models.minilm(), "--task", "pooling", "--quantize")
    assert manifest["recipe"]["parameters"]["got"]["pooling"] == {"mode": "mean", "normalize": True}
    assert manifest["max_sequence_length"] == 256
    texts = [sentence.text for sentence in held_out_sentences(40, 3)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    feed = dict(tokenizer(texts, padding=True, return_tensors="np"))

    def run(graph: Path) -> Any:
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        return session.run(None, {value.name: feed[value.name] for value in session.get_inputs()})[0]

    mask = feed["attention_mask"][..., None]
    pooled = (run(real_models.theirs()) * mask).sum(axis=1) / mask.sum(axis=1)
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(run(tmp_path / "x" / "model.onnx"), expected, atol=1e-5)
    assert (run(tmp_path / "x" / "model_int8.onnx") * expected).sum(axis=1).min() > 0.97


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
def test_every_precision_of_a_decoder_answers_after_all_of_it(reg, tmp_path):
    steps = [{"name": each, "pass": "ModelBuilder", "params": {"precision": each}} for each in PRECISIONS]
    outputs = [{"step": each, "path": f"{each}/model.onnx"} for each in PRECISIONS]
    recipe = tmp_path / "decoder.json"
    recipe.write_text(json.dumps({"task": "text-generation", "steps": steps, "outputs": outputs}))
    manifest = published(reg, tmp_path, smollm2.checkpoint(), "--recipe", recipe)
    artifacts = {Path(each["path"]).parent.name: each["precision"] for each in manifest["artifacts"]}
    assert artifacts == PRECISIONS
    results = [step["result"]["parity"]["outputs"]["logits"] for step in manifest["recipe"]["steps"]]
    distances = [parity["max_abs_diff"] for parity in results]
    assert distances == sorted(distances) and distances[0] < 1e-3 < distances[2]
    for name in PRECISIONS:
        assert "Paris" in answer(tmp_path / "x" / name, QUESTION), name


@pytest.mark.timeout(1800)
def test_a_plain_export_of_a_decoder_answers_in_genai(reg, tmp_path):
    published(reg, tmp_path, smollm2.checkpoint())
    assert "Paris" in answer(tmp_path / "x", QUESTION)
