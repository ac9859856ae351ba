"""Drafts made of a few bytes: the registry does not look inside files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact, DraftFile

MakeDraft = Callable[..., Draft]


@pytest.fixture
def make_draft(tmp_path: Path) -> MakeDraft:
    """Make a draft with two artifacts and two companions; `seed` decides the bytes of the weights."""
    count = 0

    def make(name: str = "acme/pii", seed: str = "a", size: int = 100) -> Draft:
        nonlocal count
        count += 1
        root = tmp_path / f"workspace{count}"
        root.mkdir()
        (root / "model.onnx").write_bytes(f"fp32 {seed} ".encode() * size)
        (root / "model_int8.onnx").write_bytes(f"int8 {seed} ".encode() * (size // 4))
        (root / "config.json").write_bytes(b"{}")
        (root / "tokenizer.json").write_bytes(b'{"model":{}}')
        operators = [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}]
        return Draft(
            name,
            root,
            (
                DraftArtifact("onnx-android", "float32", "model.onnx", fields={"operators": operators}),
                DraftArtifact("onnx-int8", "int8", "model_int8.onnx", parent="model.onnx"),
            ),
            (DraftFile("config", "config.json"), DraftFile("tokenizer", "tokenizer.json")),
            {"task": "token-classification"},
        )

    return make


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def other(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "other")
