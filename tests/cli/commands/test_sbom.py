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


def test_the_newer_standard_and_the_provenance(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    assert reg("sbom", "acme/pii:0.1.0", "--format", "cyclonedx-1.7").json["specVersion"] == "1.7"
    made = reg("sbom", "acme/pii:0.1.0", "--format", "slsa-v1").json
    manifest = registry.get("acme/pii:0.1.0").manifest
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {each["digest"]["sha256"] for each in made["subject"]} == {
        e.digest.hex for e in manifest.all_files()
    }
    assert reg("sbom", "acme/pii:0.1.0", "--format", "spdx").status == 2
    dated = reg("sbom", "acme/pii", "--format", "slsa-v1", "--timestamp", "2026-01-31T12:00:00Z")
    assert dated.status == 2
    proofs = reg("sbom", "acme/pii", "--format", "slsa-v1", "--proofs")
    assert proofs.status == 2 and "SLSA provenance has no place for proofs" in proofs.err
