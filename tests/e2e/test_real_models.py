"""Real weights through `reg`: exported, checked, published, pushed and pulled."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.e2e import real_models
from support.e2e.real_models import LESSONS

pytestmark = pytest.mark.large
Reg = Callable[..., Any]


def published(reg: Reg, checkpoint: Path, task: str, directory: Path) -> dict[str, Any]:
    """Export both precisions, push them, pull them into another registry and write them out; returns the manifest."""
    done = reg("export", checkpoint, "--task", task, "--quantize", "--name", "acme/x", "--json")
    reg("push", "acme/x", directory / "remote")
    reg(
        "--registry", directory / "other", "pull", "acme/x", directory / "remote", "--output", directory / "x"
    )
    assert reg("--registry", directory / "other", "verify").returncode == 0
    return dict(json.loads(done.stdout)["manifest"])


def test_embeddings_are_those_of_another_export(reg: Reg, tmp_path: Path) -> None:
    """Somebody else's ONNX of the same weights, pooled here by numpy."""
    import onnxruntime
    import transformers

    manifest = published(reg, real_models.minilm(), "pooling", tmp_path)
    assert manifest["recipe"]["parameters"]["got"]["pooling"] == {"mode": "mean", "normalize": True}
    assert manifest["max_sequence_length"] == 256
    texts = [sentence.text for sentence in real_models.held_out_sentences(40, 3)]
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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", LESSONS)
def test_a_trained_head_is_right_as_often_after_all_of_it(task: str, reg: Reg, tmp_path: Path) -> None:
    lesson, checkpoint = LESSONS[task], tmp_path / "checkpoint"
    lesson.train(real_models.minilm(), checkpoint)
    published(reg, checkpoint, task, tmp_path)
    exact = lesson.accuracy(tmp_path / "x" / "model.onnx", tmp_path / "x")
    assert exact == lesson.accuracy_of_checkpoint(checkpoint) > lesson.chance + 0.2
    assert lesson.accuracy(tmp_path / "x" / "model_int8.onnx", tmp_path / "x") > exact - 0.1
