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

NAME = "acme/crops"
DOCUMENT = {**small.DOCUMENT, "variants": {"head": [], "backbone": ["int8"]}}
ALLOWED = ("--allow-code", "net.py:build")


def write_document(root: Path, backbone: dict[str, Any] = small.MADE_BACKBONE) -> None:
    value = {key: value for key, value in {**DOCUMENT, "backbone": backbone}.items() if key != "ood"}
    (root / "family.yaml").write_text(json.dumps(value))


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


def test_the_backbone_is_resolved_and_answers_as_the_module(reg, home, tmp_path):
    resolved = reg("--registry", home, "resolve", NAME, "--format", "onnx", "--json").json
    assert resolved["artifact"]["path"] == "backbone-fp32.onnx"
    words = ("pull", NAME, home, "--member", "backbone", "--format", "onnx", "--output", "pulled")
    assert reg("--registry", "app", *words).status == 0
    images = small.images(5, 7)
    session = onnxruntime.InferenceSession("pulled/backbone-fp32.onnx")
    scores, embedding = session.run(["scores", "features"], {"input": images})
    with torch.no_grad():
        expected = small.write_factory(tmp_path)(torch.from_numpy(images))
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    np.testing.assert_allclose(embedding, expected["features"], atol=1e-5)


def test_the_recipe_binds_the_code_by_its_digest(home, source):
    recipe = Registry(home).get(NAME).manifest.recipe
    assert recipe is not None and recipe.code is not None
    assert (recipe.code.name, recipe.code.digest) == (
        "net:build",
        Digest.of((source / "net.py").read_bytes()),
    )
    recorded = recipe.to_json()["parameters"]["family"]["backbone"]
    made = {"factory": "net:build", "arguments": {"width": small.WIDTH}, "input": [3, small.SIDE, small.SIDE]}
    outputs = {"logits": "scores", "embedding": "features"}
    assert recorded == {"file": "backbone", "classes": small.SPECIES, **made, **outputs}


@pytest.mark.parametrize("allowed", ["", "--allow-code other.py", "--allow-code net.py:other"])
def test_code_that_is_not_allowed_does_not_run(reg, source, home, tmp_path, allowed):
    root = small.copy(source, tmp_path / "source")
    export = ("--registry", "new", "export", "--recipe", root / "family.yaml")
    for words in (export, ("--registry", home, "rebuild", NAME, "--source", root)):
        refused = reg(*words, *allowed.split())
        assert refused.ended(2, "is code", "hint: read it, then pass --allow-code net.py:build")
    assert not (root / "ran").exists() and not Path("new").exists()


@pytest.mark.parametrize("named", [".", "family.yaml"])
def test_it_comes_out_again_elsewhere(reg, home, source, tmp_path, named):
    root = small.copy(source, tmp_path / "elsewhere")
    done = reg("--registry", home, "rebuild", NAME, "--source", root / named, *ALLOWED, "--json")
    assert (done.status, {file["state"] for file in done.json["files"]}) == (0, {"same"}), done.err


def other_weights(root: Path) -> None:
    weights = torch.load(root / "best.ckpt", weights_only=True)
    weights["state_dict"]["model.fc.bias"] += 1
    torch.save(weights, root / "best.ckpt")


WIDER = {**small.MADE_BACKBONE, "arguments": {"width": small.WIDTH, "as_tuple": True}}
OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (
        lambda root: (root / "net.py").write_text(small.NET + "# more\n"),
        "was made by net:build of sha256:",
    ),
    "weights": (other_weights, "are not those that acme/crops was made from"),
    "arguments": (
        lambda root: write_document(root, WIDER),
        "is not what acme/crops was made from: backbone.arguments",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_source_is_refused_before_anything_runs(reg, home, source, tmp_path, what):
    change, message = OTHERS[what]
    root = small.copy(source, tmp_path / "source")
    change(root)
    assert reg("--registry", home, "rebuild", NAME, "--source", root, *ALLOWED).ended(2, message)
    assert not (root / "ran").exists()
    write_document(root, {"checkpoint": "swin", "input": [3, 16, 16]})
    assert reg("export", "--recipe", root / "family.yaml").ended(2, "input goes with a factory only")
