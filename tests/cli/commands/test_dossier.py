"""`reg dossier`."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.gated import NAME

from onnxreg.registry import Registry

STABLE = f"{NAME}:stable"


@pytest.fixture
def registry(gated: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(gated.store.root))
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


def test_a_dossier_is_written_and_written_again(reg, registry, tmp_path):
    done = reg("dossier", STABLE, "--output", "dossier")
    assert done.out.startswith("written to dossier: ") and "0 from the owner" in done.out
    assert json.loads(Path("dossier/dossier.json").read_bytes())["subject"]["version"] == "1.0.0"
    value = reg("dossier", STABLE, "--output", "dossier", "--json").json
    assert value.keys() == {"ref", "manifest", "profile", "output", "files", "fields"}
    assert set(value["files"]) == {path.name for path in Path("dossier").iterdir()}
    assert reg("dossier", NAME, "--profile", "eu-annex-iv", "--output", "near").status == 0
    there = shutil.copytree(registry.store.root, tmp_path / "there")
    words = ("dossier", NAME, "--profile", "eu-annex-iv", "--remote", there, "--output", "far")
    assert reg("--registry", "none", *words).status == 0
    assert Path("far/dossier.json").read_bytes() == Path("near/dossier.json").read_bytes()


def test_nothing_else_is_overwritten(reg, registry):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert reg("dossier", STABLE, "--output", "mine").ended(
        2, "mine holds notes.txt, which no earlier dossier wrote"
    )
    Path("mine/notes.txt").rename("mine/owner.yaml")
    assert reg("dossier", STABLE, "--output", "mine").status == 2


@pytest.mark.parametrize(("module", "purpose"), [("jinja2", "the page of a dossier"), ("yaml", "plain.yaml")])
def test_a_missing_library_is_named_with_its_extra(reg, registry, monkeypatch, module, purpose):
    monkeypatch.setitem(sys.modules, module, None)
    assert reg("dossier", NAME, "--output", "dossier").ended(9, purpose, "[dossier]")
    assert not Path("dossier").exists()
