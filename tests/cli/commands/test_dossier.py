"""`reg dossier`, and `reg sign --facts`."""

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
from onnxreg.registry.signing import Keystore

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
    assert value.keys() == {"ref", "manifest", "profile", "output", "files", "fields", "signers", "unchecked"}
    assert set(value["files"]) == {path.name for path in Path("dossier").iterdir()}
    assert reg("dossier", NAME, "--profile", "eu-annex-iv", "--output", "other").status == 0


def test_nothing_else_is_overwritten(reg: Reg, registry: Registry) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    refused = reg("dossier", f"{NAME}:stable", "--output", "mine")
    assert refused.status == 2 and "mine holds notes.txt, which no earlier dossier wrote" in refused.err
    assert reg("dossier", f"{NAME}:9.9.9", "--output", "new").status == 3
    assert reg("dossier", NAME, "--profile", "eu-anex-iv", "--output", "new").status == 2
    assert not Path("new").exists()


def test_the_owner_signs_the_facts(reg: Reg, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    public = Keystore().new("owner", "ed25519")
    assert reg("trust", "add", "owner", public).status == 0
    Path("owner.yaml").write_text(f"facts: 1\nname: {NAME}\nstatements: {{provider: Acme}}\n")
    unsigned = reg("dossier", f"{NAME}:1.0.0", "--facts", "owner.yaml", "--output", "dossier")
    assert unsigned.out.endswith("the owner's facts are not signed\n")
    assert reg("sign", f"{NAME}:1.0.0", "--facts", "owner.yaml", "--bundle", "x.sig").status == 2
    assert "in owner.yaml.sig with key" in reg("sign", f"{NAME}:1.0.0", "--facts", "owner.yaml").out
    signed = reg("dossier", f"{NAME}:1.0.0", "--facts", "owner.yaml", "--output", "dossier")
    assert signed.out.endswith("the owner's facts are signed by owner\n")
    Path("nobody").write_text("")
    monkeypatch.setenv("REG_TRUST", "nobody")
    unknown = reg("dossier", f"{NAME}:1.0.0", "--facts", "owner.yaml", "--output", "dossier")
    message = "the owner's facts have a signature that was not checked: unknown key "
    assert unknown.out.splitlines()[-1].startswith(message)
    value = reg("dossier", f"{NAME}:1.0.0", "--facts", "owner.yaml", "--output", "dossier", "--json").json
    assert (value["signers"], len(value["unchecked"])) == ([], 1)
    other = reg("dossier", f"{NAME}:1.1.0", "--facts", "owner.yaml", "--output", "dossier")
    assert other.status == 4 and f"reg sign {NAME}:1.1.0 --facts FILE" in other.err


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
