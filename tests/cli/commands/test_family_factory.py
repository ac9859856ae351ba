"""A family whose backbone a factory makes: exported and made again only if the code is allowed, and bound by its digest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from support.families import small

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest

Reg = Callable[..., Any]
NAME = "acme/crops"
DOCUMENT = {key: value for key, value in small.DOCUMENT.items() if key != "ood"} | {
    "backbone": small.MADE_BACKBONE,
    "variants": {"head": [], "backbone": ["int8"]},
}
ALLOWED = ("--allow-code", "net.py:build")


def write_document(root: Path, **backbone: Any) -> Path:
    value = {**DOCUMENT, "backbone": {**small.MADE_BACKBONE, **backbone}}
    (root / "family.yaml").write_text(json.dumps(value))
    return root / "family.yaml"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a family, with its document; its code has not run."""
    root = tmp_path_factory.mktemp("made") / "source"
    root.mkdir()
    small.write(root)
    small.write_factory(root)
    write_document(root)
    return root


@pytest.fixture(scope="module")
def home(source: Path) -> Path:
    """A registry with the family."""
    root = small.copy(source, source.parent / "exported")
    words = ["--quiet", "--registry", str(source.parent / "home"), "export", *ALLOWED]
    assert main([*words, "--recipe", str(root / "family.yaml")]) == 0
    assert (root / "ran").exists()
    return source.parent / "home"


def test_the_backbone_is_resolved_and_answers_as_the_module(
    reg: Reg, home: Path, source: Path, tmp_path: Path
) -> None:
    resolved = reg("--registry", home, "resolve", NAME, "--format", "onnx", "--json")
    assert resolved.status == 0, resolved.err
    words = ("pull", NAME, home, "--member", "backbone", "--format", "onnx", "--output", tmp_path / "pulled")
    done = reg("--registry", tmp_path / "app", *words, "--json")
    assert done.status == 0, done.err
    assert resolved.json["artifact"]["path"] == "backbone-fp32.onnx"
    session = onnxruntime.InferenceSession(tmp_path / "pulled" / "backbone-fp32.onnx")
    images = small.images(5, 7)
    scores, embedding = session.run(["scores", "features"], {"input": images})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with torch.no_grad():
        expected = small.write_factory(elsewhere)(torch.from_numpy(images))
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    np.testing.assert_allclose(embedding, expected["features"], atol=1e-5)


def test_the_recipe_binds_the_code_by_its_digest(home: Path, source: Path) -> None:
    recipe = Registry(home).get(NAME).manifest.recipe
    assert recipe is not None and recipe.code is not None
    assert recipe.code.name == "net:build"
    assert recipe.code.digest == Digest.of((source / "net.py").read_bytes())
    recorded = recipe.to_json()["parameters"]["family"]["backbone"]
    assert recorded == {
        "file": "backbone",
        "classes": small.SPECIES,
        "factory": "net:build",
        "arguments": {"width": small.WIDTH},
        "input": [3, small.SIDE, small.SIDE],
        "logits": "scores",
        "embedding": "features",
    }


@pytest.mark.parametrize("allowed", [(), ("--allow-code", "other.py"), ("--allow-code", "net.py:other")])
def test_code_that_is_not_allowed_does_not_run(
    reg: Reg, source: Path, home: Path, tmp_path: Path, allowed: tuple[str, ...]
) -> None:
    root = small.copy(source, tmp_path / "source")
    document = root / "family.yaml"
    new, known = ("--registry", tmp_path / "new"), ("--registry", home)
    for refused in (
        reg(*new, "export", "--recipe", document, *allowed, "--json"),
        reg(*known, "rebuild", NAME, "--source", root, *allowed, "--json"),
    ):
        assert refused.status == 2
        assert "is code" in refused.error["message"]
        assert refused.error["hint"] == "read it, then pass --allow-code net.py:build"
    assert not (root / "ran").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("named", [".", "family.yaml"])
def test_it_comes_out_again_elsewhere(reg: Reg, home: Path, source: Path, tmp_path: Path, named: str) -> None:
    root = small.copy(source, tmp_path / "elsewhere")
    done = reg("--registry", home, "rebuild", NAME, "--source", root / named, *ALLOWED, "--json")
    assert done.status == 0, done.err
    assert done.json["matches"]
    assert {file["state"] for file in done.json["files"]} == {"same"}


def other_code(root: Path) -> None:
    (root / "net.py").write_text(small.NET + "# more\n")


def other_weights(root: Path) -> None:
    weights = torch.load(root / "best.ckpt", weights_only=True)
    weights["state_dict"]["model.fc.bias"] += 1
    torch.save(weights, root / "best.ckpt")


def other_arguments(root: Path) -> None:
    write_document(root, arguments={"width": small.WIDTH, "as_tuple": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_code, "was made by net:build of sha256:"),
        (other_weights, "are not those that acme/crops was made from"),
        (other_arguments, "is not what acme/crops was made from: backbone.arguments"),
    ],
)
def test_another_source_is_refused_before_anything_runs(
    reg: Reg, home: Path, source: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    root = small.copy(source, tmp_path / "source")
    change(root)
    refused = reg("--registry", home, "rebuild", NAME, "--source", root, *ALLOWED, "--json")
    assert refused.status == 2
    assert message in refused.error["message"]
    assert not (root / "ran").exists()


def test_a_backbone_of_transformers_takes_no_keys_of_a_factory(
    reg: Reg, source: Path, tmp_path: Path
) -> None:
    root = small.copy(source, tmp_path / "source")
    value = {**DOCUMENT, "backbone": {"checkpoint": "swin", "input": [3, 16, 16]}}
    (root / "family.yaml").write_text(json.dumps(value))
    refused = reg("export", "--recipe", root / "family.yaml", "--json")
    assert refused.status == 2
    assert "input goes with a factory only" in refused.error["message"]
