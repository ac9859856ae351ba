"""A registry with five versions and a policy."""

import json
from pathlib import Path
from typing import Any

from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from support.registries import owner
from support.registries.home import Home

NAME = "acme/pii"
POLICY = b"""
[[rule]]
channel = "stable"
certified = ["onnx-int8"]
max_recall_loss = 0.005
licenses = ["Apache-2.0"]
breaking = false
"""
LAX = b'[[rule]]\nchannel = "stable"\nlicenses = ["Apache-2.0"]\n'
CHECK = {"name": "quant_recall_delta", "metric": "recall", "value": 0.002, "verdict": "pass", "limit": 0.005}


def draft(root: Path, seed: str, state: str = "certified", **fields: Any) -> Draft:
    """A version with one float32 and one int8 artifact."""
    root.mkdir(parents=True)
    (root / "model.onnx").write_bytes(b"fp32" + seed.encode() * 50)
    (root / "model_int8.onnx").write_bytes(b"int8" + seed.encode() * 10)
    (root / "config.json").write_bytes(b"{}")
    verdict = Verdict(state, "G4/point", (), Digest.of(b"suite"), synthetic=False)
    artifacts = (
        DraftArtifact("onnx", "float32", "model.onnx"),
        DraftArtifact("onnx-int8", "int8", "model_int8.onnx", verdict=verdict, fields={"checks": [CHECK]}),
    )
    source = {"id": "acme/base", "digest": str(Digest.of(b"checkpoint"))}
    about = {"license": "Apache-2.0", "source": source, "labels": ["NAME"], **fields}
    return Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),), about)


def filled(root: Path) -> Home:
    """1.0.0 and 1.1.0 meet the policy; 1.2.0 is refused; 1.3.0 breaks apps of 1.1.0, 1.4.0 those of all but 1.3.0."""
    registry = Home(root / "home")
    registry.add(draft(root / "a", "a"), "1.0.0")
    registry.add(draft(root / "b", "b"), "1.1.0")
    registry.add(draft(root / "c", "c", "refused"), "1.2.0")
    registry.add(draft(root / "d", "d", labels=["DATE"]), "1.3.0")
    registry.add(draft(root / "e", "e", labels=["DATE"]), "1.4.0")
    owner.set_policy(registry, read_policy(POLICY, "policy"))
    return registry


def refusal(registry: Registry, version: str) -> bytes:
    """A report that refuses the int8 artifact of a version."""
    return refusal_of(str(registry.get(f"{NAME}:{version}").manifest.artifacts[1].digest))


def refusal_of(artifact: str) -> bytes:
    """A report that refuses an artifact."""
    suite = str(Digest.of(b"field"))
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": artifact}
    return json.dumps({**value, "suite": suite, "state": "refused"}).encode()
