"""`reg sbom`: the bill of materials of a version, on stdout or in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry

Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(home))
    return Registry(home)


def test_the_same_on_stdout_and_in_a_file_and_from_a_remote(
    reg: Reg, registry: Registry, tmp_path: Path
) -> None:
    printed = reg("sbom", "acme/pii:0.1.0")
    assert printed.status == 0
    made = json.loads(printed.out)
    assert made["metadata"]["component"]["hashes"][0]["content"] == registry.get("acme/pii:0.1.0").digest.hex
    assert reg("sbom", "acme/pii:0.1.0", "--output", "bill.json").out == "written to bill.json\n"
    assert Path("bill.json").read_text() == printed.out
    assert reg("push", "acme/pii:0.1.0", tmp_path / "there").status == 0
    assert reg("sbom", "acme/pii:0.1.0", "--remote", tmp_path / "there", "--json").out == printed.out


def test_an_unknown_version_or_time_is_refused(reg: Reg) -> None:
    assert reg("sbom", "acme/pii:9.0.0").status == 3
    refused = reg("sbom", "acme/pii", "--timestamp", "yesterday")
    assert refused.status == 2 and "2026-01-31T12:00:00Z" in refused.err
    dated = reg("sbom", "acme/pii", "--timestamp", "2026-01-31T12:00:00Z").json
    assert dated["metadata"]["timestamp"] == "2026-01-31T12:00:00Z"
