"""`reg` called in this process, small registries to call it on, and tables of requests that it refuses."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

NAME = "acme/pii"
SUITE = Digest.of(b"suite")


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The error object of `--json`."""
        found: dict[str, str] = json.loads(self.err)["error"]
        return found

    def ended(self, status: int, *fragments: object) -> bool:
        """True if it ended with this status, printed each fragment, and no traceback."""
        said = self.out + self.err
        return (
            self.status == status and "Traceback" not in said and all(str(part) in said for part in fragments)
        )


Reg = Callable[..., Outcome]


def table(text: str) -> list[Any]:
    """Rows `STATUS | WORDS | FRAGMENT` as parameters: the status, the words after `reg`, and what must be printed."""
    rows = (line.split(" | ", 2) for line in text.strip().splitlines())
    return [
        pytest.param(int(status), shlex.split(words), fragment, id=words) for status, words, fragment in rows
    ]


def make_draft(
    root: Path, name: str = NAME, seed: str = "a", labels: tuple[str, ...] = ("O", "B-NAME")
) -> Draft:
    """Two artifacts, one of them refused, and two companions; `seed` decides the bytes of the weights."""
    root.mkdir(parents=True)
    (root / "model.onnx").write_bytes(f"fp32 {seed} ".encode() * 5000)
    (root / "model_int8.onnx").write_bytes(f"int8 {seed} ".encode() * 1250)
    (root / "config.json").write_bytes(b"{}")
    (root / "recall_delta.json").write_bytes(b'{"delta":0.02}')
    recall = {"name": "character_recall/NAME", "metric": "character_recall", "value": 0.93, "verdict": "info"}
    delta = {"name": "quant_recall_delta", "metric": "quant_recall_delta", "value": 0.02, "limit": 0.005}
    warnings = ["Einsum is not safe", "opset 18 needs ORT 1.14"]
    metadata = {"opset": 18, "unsupported_ops": ["Einsum"], "warnings": warnings}
    operators = [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}]
    reasons = ("recall of NAME falls by 0.02",)
    verdict = Verdict("refused", "G4/point", reasons, SUITE, "recall_delta.json")
    checks = [recall, {**delta, "samples": 120, "verdict": "fail"}]
    full = DraftArtifact(
        "onnx-android", "float32", "model.onnx", fields={"operators": operators, "metadata": metadata}
    )
    small = DraftArtifact(
        "onnx-int8", "int8", "model_int8.onnx", (), "model.onnx", verdict, fields={"checks": checks}
    )
    skipped = {"name": "ort", "pass": "OrtFormat", "version": 1, "params": {}}
    steps = [{**skipped, "skipped": "onnxruntime is not installed"}]
    fields = {
        "task": "token-classification",
        "labels": list(labels),
        "source": {"id": "acme/pii-base", "revision": "main", "digest": str(Digest.of(b"source"))},
        "recipe": {"profile": "android", "profile_version": 1, "steps": steps, "tools": {"onnx": "1.23.2"}},
    }
    companions = (DraftFile("config", "config.json"), DraftFile("report", "recall_delta.json"))
    return Draft(name, root, (full, small), companions, fields)


def make_template(root: Path) -> Path:
    """A registry with two versions of `acme/pii` and one of `tiny`; the channel `stable` is the first."""
    registry = Registry(root / "home", actor="ada")
    registry.add(make_draft(root / "w1"), "0.1.0", "first")
    registry.add(make_draft(root / "w2", seed="b", labels=("O", "B-NAME", "I-NAME")), "0.2.0")
    registry.add(make_draft(root / "w3", name="tiny"))
    registry.tag(f"{NAME}:0.1.0", "stable")
    return registry.store.root


def fleet_draft(root: Path, opset: int, certified: bool = False) -> Draft:
    """`model.onnx` and `model.ort` of an opset, an int8 graph of opset 17, and 120 bytes of companions."""
    root.mkdir(parents=True)
    sizes = {"model.onnx": 4000, "model.ort": 3000, "int8.onnx": 1000, "labels.json": 100, "report.json": 20}
    for path, size in sizes.items():
        (root / path).write_bytes(f"{path} {opset}".encode().ljust(size, b"."))
    matmul, gelu = (
        {"domain": "ai.onnx", "name": name, "opset": since, "inputs": {"0": ["float"]}}
        for name, since in (("MatMul", 13), ("Gelu", 20))
    )
    recall = {
        "name": "character_recall/PHONE",
        "metric": "character_recall",
        "value": 0.96,
        "verdict": "info",
    }
    both: dict[str, Any] = {"metadata": {"opset": opset}, "operators": [matmul, gelu]}
    small = {"metadata": {"opset": 17}, "operators": [matmul], "checks": [recall]}
    verdict = Verdict("certified", "G4/point", (), SUITE, "report.json") if certified else Verdict("unknown")
    artifacts = (
        DraftArtifact("onnx", "float32", "model.onnx", fields={**both, "ir_version": 10}),
        DraftArtifact("ort", "float32", "model.ort", fields={**both, "ort_format": 6}),
        DraftArtifact("onnx-int8", "int8", "int8.onnx", (), "model.onnx", verdict, fields=small),
    )
    companions = (DraftFile("labels", "labels.json"), DraftFile("report", "report.json"))
    source = {"id": "acme/base", "digest": str(Digest.of(b"source"))}
    return Draft("acme/fleet", root, artifacts, companions, {"source": source})


def make_fleet(root: Path) -> Registry:
    """A model of two versions for devices to ask: 1.0.0 of opset 18 with a certified int8, 1.1.0 of opset 21."""
    registry = Registry(root / "fleet")
    registry.add(fleet_draft(root / "f1", 18, certified=True), "1.0.0")
    registry.add(fleet_draft(root / "f2", 21), "1.1.0")
    registry.tag("acme/fleet:1.0.0", "stable")
    return registry
