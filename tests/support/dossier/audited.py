"""A registry for auditors: signed lines and versions, a policy with a plan, promotions, and a log longer than a segment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry.signing import PrivateKey
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import Draft
from support.registries import owner
from support.registries.gated import NAME, draft, refusal
from support.registries.home import Home
from support.trust.world import plain_pem

SEALED_MOVES = 70
"""More than the lines of an index file."""
PLAN = b"""
[[rule]]
channel = "stable"
certified = ["onnx-int8"]
breaking = false
[[rule]]
channel = "beta"
licenses = ["Apache-2.0"]
"""
RECIPE = {
    "profile": "android",
    "profile_version": 1,
    "steps": [{"name": "fp32", "pass": "OnnxConversion", "version": 1, "params": {"opset": 18}}],
    "tools": {"onnx": "1.23.2", "torch~/odd": "2.13.0"},
}
TENSORS = {
    side: [
        {
            "name": side,
            "dtype": "int64",
            "axes": ["batch", "tokens"],
            "shape": [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 2}],
        }
    ]
    for side in ("inputs", "outputs")
}


def release(root: Path, seed: str, value: float = 0.002, **fields: Any) -> Draft:
    """A version with tensors, a recipe and measured recall."""
    made = draft(root, seed, task="token-classification", recipe=RECIPE, **fields)
    model, int8 = made.artifacts
    checks = [
        {"name": "quant_recall_delta", "metric": "recall", "value": value, "verdict": "pass", "limit": 0.005},
        {
            "name": "character_recall/NAME",
            "metric": "character_recall",
            "value": 1 - value,
            "verdict": "info",
        },
    ]
    facts = {"metadata": TENSORS, "opset_imports": {"ai.onnx": 18, "com.microsoft": 1}}
    return replace(
        made, artifacts=(replace(model, fields=facts), replace(int8, fields={**facts, "checks": checks}))
    )


def make_audited(root: Path, key: PrivateKey, other: PrivateKey) -> Home:
    """1.0.0, 1.1.0 and 1.2.0 were promoted; 1.3.0, with another licence, only to beta."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REG_SIGNING_KEY", plain_pem(key))
        registry = Home(root / "home", actor="ada@<lab>")
        owner.set_policy(registry, read_policy(PLAN, "policy"), reason="plan of 2026")
        for number, version in enumerate(("1.0.0", "1.1.0", "1.2.0", "1.3.0")):
            licence = {} if number < 3 else {"license": "Apache-2.0", "labels": ["NAME", "DATE"]}
            registry.add(release(root / version, version[2], 0.002 + number / 1000, **licence), version)
            owner.sign(registry, f"{NAME}:{version}", key)
            if number < 3:
                owner.promote(registry, f"{NAME}:{version}", "stable", reason="<b>monthly</b>")
        owner.sign(registry, f"{NAME}:1.2.0", other)
        owner.promote(registry, f"{NAME}:1.3.0", "beta")
        owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"), key)
        registry.yank(f"{NAME}:1.0.0", "refused in the field")
        for number in range(SEALED_MOVES):
            registry.tag(f"{NAME}:1.{number % 2 + 1}.0", "nightly")
    return registry
