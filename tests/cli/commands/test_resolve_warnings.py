"""`reg resolve`, `run` and `lock` say if an answer is an older release or a refused file, and give a search's winner."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.registries.gated import NAME, draft

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft

Reg = Callable[..., Any]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """1.0.0 has an int8 file that is refused, and 2.0.0 none."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    registry = Registry(tmp_path / "home", create=True)
    registry.add(draft(tmp_path / "a", "a", "refused"), "1.0.0")
    newer = draft(tmp_path / "b", "b")
    registry.add(replace(newer, artifacts=newer.artifacts[:1]), "2.0.0")
    return registry


@pytest.mark.usefixtures("registry")
def test_an_older_or_refused_answer_is_said(reg: Reg, tmp_path: Path) -> None:
    done = reg("resolve", NAME, "--precision", "int8", "--json")
    assert done.status == 0 and done.json["version"] == "1.0.0"
    older, refused = done.err.splitlines()
    assert "2.0.0" in older and "refused" in refused
    text = reg("resolve", NAME, "--precision", "int8")
    assert text.out.startswith(f"{NAME}:1.0.0") and len(text.err.splitlines()) == 2
    locked = reg("lock", NAME, "--precision", "int8", "--output", tmp_path / "models.lock")
    assert (locked.status, "2.0.0" in locked.err, "refused" in locked.err) == (0, True, True)


@pytest.mark.usefixtures("registry")
def test_the_newest_release_and_a_named_version_need_no_warning(reg: Reg) -> None:
    assert reg("resolve", NAME).err == ""
    named = reg("resolve", f"{NAME}:1.0.0", "--precision", "int8").err.splitlines()
    assert len(named) == 1 and "refused" in named[0]


def searched(tmp_path: Path) -> Draft:
    """A version whose search found the file of the format that ranks last, larger than the others."""
    made = draft(tmp_path / "c", "c")
    (made.root / "model_small.onnx").write_bytes(b"small" * 1000)
    winner = replace(made.artifacts[1], path="model_small.onnx", format="onnx", precision="mixed")
    recipe = {"profile": "own", "profile_version": 1, "tools": {}, "steps": []}
    recipe |= {"parameters": {"search": {"output": winner.path}}}
    return replace(made, artifacts=(*made.artifacts, winner), fields={**made.fields, "recipe": recipe})


def test_the_winner_of_a_search_is_what_resolve_gives(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    registry.add(searched(tmp_path), "3.0.0")
    assert reg("resolve", NAME, "--json").json["artifact"]["path"] == "model_small.onnx"
    named = reg("resolve", NAME, "--format", "onnx-int8", "--format", "onnx", "--json").json
    assert named["artifact"]["path"] == "model_int8.onnx"
    assert reg("verify").status == 0


def test_a_version_of_which_a_part_is_refused_is_listed_as_that(reg: Reg, registry: Registry) -> None:
    assert registry is not None
    (row,) = [line for line in reg("ls", NAME).out.splitlines() if line.startswith("1.0.0")]
    assert "1 of 2 refused" in row
    assert reg("ls", NAME, "--json").json["versions"][1]["state"] == "refused"
