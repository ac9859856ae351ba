"""A family on the command line: shown by kinds of heads, pulled by member, compared by member."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.families import small
from support.registries.family_drafts import NAME, write_family

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import DraftArtifact

Reg = Callable[..., Any]


@pytest.fixture
def crops(tmp_path: Path) -> Path:
    """A registry with two versions of a family, one head apart."""
    registry = Registry(tmp_path / "crops")
    registry.add(write_family(tmp_path / "one", 3), "1.0.0")
    registry.add(write_family(tmp_path / "two", 3, {"species001": "b"}), "1.1.0")
    return tmp_path / "crops"


def test_show_counts_members_and_joins_heads(reg: Reg, crops: Path) -> None:
    shown = reg("--registry", crops, "show", NAME)
    assert "members  1 backbone, 3 head, 1 metadata" in shown.out
    assert shown.out.count("3 heads") == 3
    assert "species001" not in shown.out


def test_show_lists_the_checks_of_heads_that_are_in_doubt(reg: Reg, tmp_path: Path) -> None:
    def check(artifact: DraftArtifact) -> DraftArtifact:
        verdict = "unknown" if artifact.path == "heads/species001.onnx" else "pass"
        found = {"name": "load", "metric": "loads", "value": 1.0, "verdict": verdict}
        return replace(artifact, fields={**artifact.fields, "checks": [found]})

    draft = write_family(tmp_path / "one", 2)
    registry = Registry(tmp_path / "home")
    registry.add(replace(draft, artifacts=tuple(map(check, draft.artifacts))), "1.0.0")
    shown = reg("--registry", tmp_path / "home", "show", NAME, "--full").out
    assert "heads/species001.onnx" in shown
    assert "heads/species000.onnx" not in shown
    assert "heads: 5 checks pass, 1 checks unknown" in shown


def test_one_member_is_pulled(reg: Reg, crops: Path, tmp_path: Path) -> None:
    words = ("pull", NAME, crops, "--member", "head:species001", "--format", "onnx-int8", "--json")
    pulled = reg("--registry", tmp_path / "app", *words)
    assert pulled.status == 0
    assert pulled.json["held"] == ["heads/species001-int8.onnx"]
    assert "1 of 3" in reg("--registry", tmp_path / "app", "show", NAME).out


def test_a_member_that_is_not_there_is_named(reg: Reg, crops: Path, tmp_path: Path) -> None:
    words = ("pull", NAME, crops, "--member", "head:species01", "--json")
    refused = reg("--registry", tmp_path / "app", *words)
    assert refused.status == 3
    assert "has no member head:species01" in refused.error["message"]
    assert "head:species001" in refused.error["hint"]


@pytest.mark.parametrize("member", ["backbone", "head:species001"])
def test_a_member_is_resolved(reg: Reg, crops: Path, member: str) -> None:
    words = ("--registry", crops, "resolve", NAME, "--format", "onnx-int8", "--json")
    found = reg(*words, "--member", member)
    assert found.status == 0
    assert found.json["version"] == "1.1.0"
    assert found.json["artifact"]["member"] == member
    assert found.json["artifact"]["path"].endswith("-int8.onnx")
    assert ("species001" in found.json["artifact"]["path"]) == (member != "backbone")


def test_a_member_that_no_version_has_is_not_resolved(reg: Reg, crops: Path) -> None:
    found = reg("--registry", crops, "resolve", NAME, "--member", "head:missing")
    assert found.status == 3
    assert "is backbone, wanted head:missing" in found.err


def test_a_lock_says_itself_which_artifacts(reg: Reg, tmp_path: Path) -> None:
    refused = reg("--registry", tmp_path / "app", "pull", "--locked", "--member", "backbone", "--json")
    assert refused.status == 2


def test_a_diff_names_the_head_that_changed(reg: Reg, crops: Path) -> None:
    found = reg("--registry", crops, "diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--json").json
    changed = [change for change in found["changes"] if change["kind"] == "artifact-bytes-changed"]
    assert changed and all("species001" in change["artifact"] for change in changed)


def test_a_family_says_itself_what_to_export(reg: Reg, tmp_path: Path) -> None:
    document = tmp_path / "family.yaml"
    document.write_text("{family: 1, name: a/b, backbone: {checkpoint: none}, heads: {folder: heads}}")
    for words in (("./checkpoint", "--recipe", document), ("--recipe", document, "--no-int8")):
        refused = reg("export", *words, "--json")
        assert refused.status == 2
        assert "does not go with a family" in refused.error["message"]
    missing = reg("--registry", tmp_path / "home", "export", "--recipe", document, "--json")
    assert missing.status == 3
    assert missing.error["message"] == "backbone: there is no checkpoint directory none"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of a small family, without its document."""
    (tmp_path / "source").mkdir()
    small.write(tmp_path / "source")
    return tmp_path / "source"


def write_document(source: Path, **limits: Any) -> Path:
    value = {**small.DOCUMENT, "variants": {"head": ["int8"], "backbone": []}}
    value["limits"] = {**value["limits"], **limits}
    (source / "family.json").write_text(json.dumps(value))
    return source / "family.json"


def test_a_family_is_exported_and_timed(reg: Reg, source: Path, tmp_path: Path) -> None:
    words = ("export", "--recipe", write_document(source), "--name", "acme/other", "--json")
    done = reg("--registry", tmp_path / "home", *words)
    assert done.status == 0, done.err
    assert done.json["ref"] == "acme/other:0.1.0"
    (latency,) = done.json["latency"]
    assert latency["graphs"] == ["backbone-fp32.onnx", "heads/apple-fp32.onnx", "ood.onnx"]
    assert 0 < latency["p50_ms"] <= latency["p95_ms"]
    assert "p50_ms" not in json.dumps(done.json["manifest"])
    events = len(Registry(tmp_path / "home").log("acme/other"))
    again = reg("--registry", tmp_path / "home", *words[:-1])
    assert again.out.startswith(f"nothing new: this is acme/other:0.1.0\nmanifest {done.json['digest']}\n")
    (line,) = (line for line in again.out.splitlines() if line.startswith("latency: p50 "))
    assert line.endswith(f": {' + '.join(latency['graphs'])} (one row, 1 thread)")
    shown = reg("--registry", tmp_path / "home", "show", "acme/other", "--benchmark", "--json")
    (on_record,) = shown.json["benchmarks"]
    assert on_record["artifacts"][0]["path"] == "backbone-fp32.onnx"
    assert {check["metric"] for check in on_record["artifacts"][0]["checks"]} == {"median_ms", "p95_ms"}
    assert len(Registry(tmp_path / "home").log("acme/other")) == events


def test_a_limit_that_does_not_hold_publishes_nothing(reg: Reg, source: Path, tmp_path: Path) -> None:
    document = write_document(source, size={"head": {"int8": "100B"}})
    refused = reg("--registry", tmp_path / "home", "export", "--recipe", document, "--json")
    assert refused.status == 8
    assert "head:apple (int8): size: bytes is" in refused.error["message"]
    assert not (tmp_path / "home").exists()
