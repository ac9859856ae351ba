"""`reg rebuild` of a family: the document and its files give the same bytes, and others are refused before anything runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.families import small
from support.registries.family_drafts import write_family

from onnxreg.registry import Registry

Reg = Callable[..., Any]
NAME = "acme/other"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small family, with its document."""
    root = tmp_path_factory.mktemp("family") / "source"
    root.mkdir()
    small.write(root)
    write_document(root)
    return root


def write_document(root: Path, **changes: Any) -> None:
    value = {**small.DOCUMENT, "variants": {"head": ["int8"], "backbone": []}, **changes}
    (root / "family.json").write_text(json.dumps(value))


@pytest.fixture(scope="module")
def home(source: Path) -> Path:
    """A registry with the family, under another name than its document says."""
    from onnxreg.cli.main import main

    words = ["--quiet", "--registry", str(source.parent / "home"), "export", "--name", NAME]
    assert main([*words, "--recipe", str(source / "family.json")]) == 0
    return source.parent / "home"


def test_a_family_comes_out_again_elsewhere(reg: Reg, home: Path, source: Path, tmp_path: Path) -> None:
    elsewhere = small.copy(source, tmp_path / "elsewhere")
    done = reg("--registry", home, "rebuild", NAME, "--source", elsewhere / "family.json", "--json")
    assert done.status == 0, done.err
    assert done.json["matches"]
    assert {file["state"] for file in done.json["files"]} == {"same"}
    assert "ood.onnx" in {file["path"] for file in done.json["files"]}


def test_the_manifest_tells_digests_and_no_paths(home: Path, tmp_path: Path) -> None:
    recipe = Registry(home).get(NAME).manifest.recipe
    assert recipe is not None
    recorded = recipe.to_json()["parameters"]["family"]
    rows = [recorded["evaluation"], *(recorded["ood"][key] for key in ("fit", "calibrate", "outliers"))]
    assert all(each.startswith("sha256:") for each in rows)
    assert "checkpoint" not in recorded["backbone"]
    assert "folder" not in recorded["heads"]
    assert recorded["limits"]["size"]["head"] == {"float32": None, "float16": None, "int8": None}


def other_limit(root: Path) -> None:
    write_document(root, limits={"latency_p95": None, "parity": {"int8": 0.2}})


def other_rows(root: Path) -> None:
    np.savez(root / "calibrate.npz", input=small.images(100, 99))


def other_head(root: Path) -> None:
    small.save_head(root / "heads" / "bean.safetensors", small.CLASSES["bean"], 99)


def other_document(root: Path) -> None:
    (root / "family.json").write_text('{"recipe": 1, "steps": []}')


OTHERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "another limit": (
        other_limit,
        "family.json is not what acme/other was made from: limits.parity.int8 is 0.2, recorded is 0.1",
    ),
    "other rows": (other_rows, "family.json is not what acme/other was made from: ood.calibrate is sha256:"),
    "another head": (
        other_head,
        "the checkpoints of family.json are not those that acme/other was made from",
    ),
    "a recipe of passes": (other_document, "family.json describes no family"),
    "a head that is gone": (
        lambda root: shutil.rmtree(root / "heads"),
        "there is no folder of heads at heads",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_input_is_refused_before_anything_runs(
    reg: Reg, home: Path, source: Path, tmp_path: Path, what: str
) -> None:
    change, message = OTHERS[what]
    root = small.copy(source, tmp_path / "source")
    change(root)
    refused = reg("--registry", home, "rebuild", NAME, "--source", root / "family.json", "--json")
    assert refused.status in (2, 3)
    assert message in refused.error["message"]


def test_a_rebuild_names_the_missing_arguments(reg: Reg, home: Path, tmp_path: Path) -> None:
    refused = reg("--registry", home, "rebuild", NAME, "--json")
    assert (refused.status, refused.error["hint"]) == (2, "name it: --source family.yaml")
    (tmp_path / "rows.npz").touch()
    refused = reg("--registry", home, "rebuild", NAME, "--data", f"fit={tmp_path / 'rows.npz'}", "--json")
    assert refused.status == 2
    assert "its document names all rows" in refused.error["message"]


def test_a_family_without_its_document_cannot_be_made_again(reg: Reg, tmp_path: Path) -> None:
    Registry(tmp_path / "home").add(write_family(tmp_path / "one", 2), "1.0.0")
    refused = reg(
        "--registry", tmp_path / "home", "rebuild", "acme/crops", "--source", "family.yaml", "--json"
    )
    assert refused.status == 3
    assert "it does not record the document of its family" in refused.error["message"]
    assert "export that document again" in refused.error["hint"]
