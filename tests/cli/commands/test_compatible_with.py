"""`--compatible-with`, and the contract in a lock file."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft

Reg = Callable[..., Any]
MakeDraft = Callable[..., Draft]
NAME = "acme/pii"


@pytest.fixture
def grown(home: Path, draft: MakeDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Two releases with the same labels, and a third with others."""
    registry = Registry(home)
    monkeypatch.setenv("REG_HOME", str(home))
    tensor = {"name": "x", "dtype": "float32", "shape": []}
    for version, labels in {"1.0.0": "AB", "1.1.0": "AB", "2.0.0": "BA"}.items():
        made = draft(tmp_path / version, seed=version)
        metadata = {"opset": 18, "inputs": [tensor], "outputs": [tensor]}
        artifacts = tuple(replace(item, fields={"metadata": metadata}) for item in made.artifacts)
        fields = {**made.fields, "labels": list(labels)}
        registry.add(replace(made, artifacts=artifacts, fields=fields), version)
    return registry


def contract(registry: Registry, version: str) -> str:
    return str(registry.resolve(f"{NAME}:{version}").artifact.contract)


def test_compatible_with_a_version(grown: Registry, reg: Reg) -> None:
    answer = reg("resolve", NAME, "--compatible-with", f"{NAME}:1.0.0", "--json").json
    assert (answer["version"], answer["artifact"]["contract"]) == ("1.1.0", contract(grown, "1.0.0"))
    answer = reg("resolve", NAME, "--compatible-with", contract(grown, "2.0.0"), "--json").json
    assert answer["version"] == "2.0.0"


def test_an_incompatible_version_is_refused(grown: Registry, reg: Reg) -> None:
    done = reg("resolve", f"{NAME}:2.0.0", "--compatible-with", f"{NAME}:1.0.0")
    assert done.status == 3 and "the app was written for another one" in done.err
    done = reg("resolve", NAME, "--compatible-with", "sha256:12")
    assert done.status == 2 and "not a digest" in done.err
    assert reg("resolve", NAME, "--compatible-with", f"{NAME}:9.0.0").status == 3


def test_a_version_without_a_recorded_contract(grown: Registry, reg: Reg) -> None:
    assert grown.find(f"{NAME}:0.2.0")
    done = reg("resolve", NAME, "--compatible-with", f"{NAME}:0.2.0")
    assert done.status == 3 and "has no recorded contract" in done.err


def test_a_lock_has_the_contract_and_says_that_it_changed(grown: Registry, reg: Reg) -> None:
    reg("lock", f"{NAME}:1.0.0")
    (entry,) = json.loads(Path("onnxreg.lock").read_bytes())["models"]
    assert entry["artifact"]["contract"] == contract(grown, "1.0.0")
    same = reg("lock", f"{NAME}:1.1.0").out
    assert "1.0.0 " in same and "-> 1.1.0 " in same and "contract" not in same
    assert "its contract is another one" in reg("lock", f"{NAME}:2.0.0").out
