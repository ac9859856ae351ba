"""Drafts made of a few bytes."""

from pathlib import Path

from onnxreg.registry.store.streams import measure
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.manifest import Manifest


def write_draft(root: Path, name: str, seed: str, size: int) -> Draft:
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


def manifest_of(draft: Draft) -> Manifest:
    """The manifest as a registry would make it."""
    return draft.manifest(measure(draft.root, draft.paths()))
