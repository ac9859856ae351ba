"""A registry as a small company may have one: several models, decisions on record, evidence for and against."""

from pathlib import Path
from typing import Any

from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from support.registries import owner

SUITE = Digest.of(b"a suite of sentences")
BASE = Digest.of(b"a base model")
SPANS = {"DATE": 1840, "EMAIL": 612, "ID": 455, "LOCATION": 1203, "NAME": 2981, "PHONE": 731}
GOOD = dict(zip(SPANS, (0.9931, 0.9984, 0.9725, 0.9688, 0.9912, 0.9876), strict=True))
WORSE = {**GOOD, "PHONE": 0.9312, "ID": 0.9451}
BETTER = {**GOOD, "PHONE": 0.9903, "NAME": 0.9938}
TENSORS = {
    "inputs": [
        {"name": name, "dtype": "int64", "axes": ["batch", "tokens"], "shape": [
            {"kind": "dynamic", "name": "batch"}, {"kind": "dynamic", "name": "tokens"}]}
        for name in ("input_ids", "attention_mask")
    ],
    "outputs": [
        {"name": "logits", "dtype": "float32", "axes": ["batch", "tokens", "labels"], "shape": [
            {"kind": "dynamic", "name": "batch"}, {"kind": "dynamic", "name": "tokens"}, {"kind": "static", "value": 13}]}
    ],
}  # fmt: skip
ACTOR = "ada@acme.example"
RECIPE = {
    "profile": "android",
    "profile_version": 3,
    "tools": {"onnx": "1.21.0", "onnxruntime": "1.23.2", "torch": "2.13.0"},
    "steps": [
        {"name": "float32", "pass": "export", "version": 2, "params": {"opset": 18}, "result": {"nodes": 412}},
        {"name": "int8", "pass": "quantize-dynamic", "version": 4, "params": {"per_channel": True}, "input": "float32"},
        {"name": "ort", "pass": "ort-format", "version": 1, "params": {}, "input": "int8", "skipped": "onnxruntime is too old"},
    ],
}  # fmt: skip


def draft(root: Path, name: str, seed: str, recall: dict[str, float] | None = None, **fields: Any) -> Draft:
    """A version with a float32 and an int8 artifact; `recall` by label makes the int8 one certified, or refused."""
    root.mkdir(parents=True)
    (root / "model.onnx").write_bytes(f"float32 {name} {seed} ".encode() * 40_000)
    (root / "model_int8.onnx").write_bytes(f"int8 {name} {seed} ".encode() * 11_000)
    (root / "config.json").write_bytes(b'{"model_type": "bert"}')
    (root / "tokenizer.json").write_bytes(b'{"model": {}}' * 900)
    verdict = Verdict("unknown", reasons=("not evaluated",))
    checks: list[dict[str, Any]] = []
    if recall is not None:
        failed = [label for label, value in recall.items() if value < GOOD[label] - 0.01]
        reasons = tuple(
            f"{label}: recall falls by {GOOD[label] - recall[label]:.4f}, more than 0.0100"
            for label in failed
        )
        verdict = Verdict("refused" if failed else "certified", "G4/point", reasons, SUITE)
        checks = [
            {"name": f"character_recall/{label}", "metric": "character_recall", "value": value, "samples": SPANS[label],
             "verdict": "fail" if label in failed else "pass", "dataset": str(SUITE)}
            for label, value in recall.items()
        ]  # fmt: skip
    metadata = {"opset": 18, "execution_providers": ["CPUExecutionProvider"], **TENSORS}
    parity = {
        "name": "parity",
        "metric": "argmax_agreement",
        "value": 0.9997,
        "limit": 0.999,
        "samples": 8192,
        "verdict": "pass",
    }
    return Draft(
        name,
        root,
        (
            DraftArtifact("onnx-android", "float32", "model.onnx", fields={"metadata": metadata, "checks": [parity]}),
            DraftArtifact(
                "onnx-int8", "int8", "model_int8.onnx", parent="model.onnx", verdict=verdict,
                fields={"metadata": metadata, "checks": checks},
            ),
        ),
        (DraftFile("config", "config.json"), DraftFile("tokenizer", "tokenizer.json")),
        {
            "task": "token-classification", "family": "bert", "license": "Apache-2.0",
            "source": {"id": f"{name}-base", "digest": str(BASE)},
            "labels": ["O", *(f"{side}-{label}" for label in SPANS for side in "BI")],
            "max_sequence_length": 512, "recipe": RECIPE, **fields,
        },
    )  # fmt: skip


def fill(root: Path, scratch: Path) -> Registry:
    """`acme/pii` in six versions: certified, refused and yanked, pinned, a pre-release; and a few more models."""
    registry = Registry(root, actor=ACTOR)
    for version, recall in {
        "1.0.0": GOOD,
        "1.1.0": WORSE,
        "1.2.0": GOOD,
        "1.3.0": BETTER,
        "2.0.0-rc.1": None,
    }.items():
        fields = {"license": "MIT"} if version.startswith("2") else {}
        registry.add(
            draft(scratch / version, "acme/pii", version, recall, **fields),
            version,
            f"retrained for {version}",
        )
        if version == "1.0.0":
            registry.tag("acme/pii:1.0.0", "stable", "first release")
        if version == "1.1.0":
            registry.tag("acme/pii:1.1.0", "beta")
    other = Registry(root, actor="grace@acme.example")
    other.tag("acme/pii:1.2.0", "beta", "phones of the pilot group")
    other.yank("acme/pii:1.1.0", "PHONE recall fell by five points: do not ship")
    other.tag("acme/pii:1.2.0", "stable", "two weeks in beta without a report")
    other.tag("acme/pii:1.3.0", "beta")
    owner.pin(other, "acme/pii:1.0.0", "the version in the app of 2025")
    for name, recall in {
        "acme/deid-notes": BETTER,
        "acme/langid": None,
        "hospital/triage": WORSE,
        "tiny": None,
    }.items():
        registry.add(draft(scratch / name.replace("/", "-"), name, "a", recall), "0.1.0")
    other.tag("acme/deid-notes:0.1.0", "stable")
    other.yank("tiny:0.1.0", "trained on the wrong split")
    return registry
