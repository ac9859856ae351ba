"""`reg dossier`."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME

from onnxreg.registry import Registry

Reg = Callable[..., Any]


@pytest.fixture
def registry(gated: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(gated.store.root))
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


def test_a_dossier_is_written_and_written_again(reg: Reg, registry: Registry) -> None:
    done = reg("dossier", f"{NAME}:stable", "--output", "dossier")
    assert done.status == 0
    assert done.out.startswith("written to dossier: ") and "0 from the owner" in done.out
    assert json.loads(Path("dossier/dossier.json").read_bytes())["subject"]["version"] == "1.0.0"
    value = reg("dossier", f"{NAME}:stable", "--output", "dossier", "--json").json
    assert value.keys() == {"ref", "manifest", "profile", "output", "files", "fields"}
    assert set(value["files"]) == {path.name for path in Path("dossier").iterdir()}
    assert reg("dossier", NAME, "--profile", "eu-annex-iv", "--output", "other").status == 0


def test_nothing_else_is_overwritten(reg: Reg, registry: Registry) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    refused = reg("dossier", f"{NAME}:stable", "--output", "mine")
    assert refused.status == 2 and "mine holds notes.txt, which no earlier dossier wrote" in refused.err
    Path("mine/notes.txt").rename("mine/owner.yaml")
    assert reg("dossier", f"{NAME}:stable", "--output", "mine").status == 2
    assert reg("dossier", f"{NAME}:9.9.9", "--output", "new").status == 3
    assert reg("dossier", NAME, "--profile", "eu-anex-iv", "--output", "new").status == 2
    assert not Path("new").exists()


def test_from_a_remote(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    there = shutil.copytree(registry.store.root, tmp_path / "there")
    assert (
        reg("--registry", tmp_path / "none", "dossier", NAME, "--remote", there, "--output", "far").status
        == 0
    )
    assert reg("dossier", NAME, "--output", "near").status == 0
    assert Path("far/dossier.json").read_bytes() == Path("near/dossier.json").read_bytes()


@pytest.mark.parametrize(("module", "purpose"), [("jinja2", "the page of a dossier"), ("yaml", "plain.yaml")])
def test_a_missing_library_is_named_with_its_extra(
    reg: Reg, registry: Registry, monkeypatch: pytest.MonkeyPatch, module: str, purpose: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = reg("dossier", NAME, "--output", "dossier")
    assert done.status == 9 and purpose in done.err and "[dossier]" in done.err
    assert not Path("dossier").exists()
