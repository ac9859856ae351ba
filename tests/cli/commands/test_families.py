"""A family on the command line: shown, pulled and compared by members, exported, and made again from its document."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.docs.nets import write_mlp
from support.families import small
from support.registries.family_drafts import NAME, write_family

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import DraftArtifact

OTHER = "acme/other"


@pytest.fixture
def crops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with two versions of a family, one head apart."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "crops"))
    registry = Registry(tmp_path / "crops")
    registry.add(write_family(tmp_path / "one", 3), "1.0.0")
    registry.add(write_family(tmp_path / "two", 3, {"species001": "b"}), "1.1.0")
    return tmp_path / "crops"


def test_show_counts_members_and_diff_names_the_head_that_changed(reg, crops):
    shown = reg("show", NAME)
    assert shown.ended(0, "members  1 backbone, 3 head, 1 metadata") and shown.out.count("3 heads") == 3
    assert "species001" not in shown.out
    found = reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--json").json
    changed = [change for change in found["changes"] if change["kind"] == "artifact-bytes-changed"]
    assert changed and all("species001" in change["artifact"] for change in changed)
    shown = reg("rebuild", NAME, "--source", "family.yaml")
    assert shown.ended(3, "does not record the document of its family", "export that document again")


def test_show_lists_the_checks_of_heads_that_are_in_doubt(reg, tmp_path):
    def check(artifact: DraftArtifact) -> DraftArtifact:
        verdict = "unknown" if artifact.path == "heads/species001.onnx" else "pass"
        found = {"name": "load", "metric": "loads", "value": 1.0, "verdict": verdict}
        return replace(artifact, fields={**artifact.fields, "checks": [found]})

    draft = write_family(tmp_path / "one", 2)
    Registry(tmp_path / "home").add(replace(draft, artifacts=tuple(map(check, draft.artifacts))), "1.0.0")
    shown = reg("--registry", tmp_path / "home", "show", NAME, "--full")
    assert shown.ended(0, "heads/species001.onnx", "heads: 5 checks pass, 1 checks unknown")
    assert "heads/species000.onnx" not in shown.out


def test_one_member_is_pulled(reg, crops):
    app = ("--registry", "app")
    words = (*app, "pull", NAME, crops, "--format", "onnx-int8", "--json", "--member")
    assert reg(*words, "head:species001").json["held"] == ["heads/species001-int8.onnx"]
    assert reg(*app, "show", NAME).ended(0, "1 of 3")
    refused = reg(*words, "head:species01")
    assert refused.ended(3, "has no member head:species01", "head:species001")


@pytest.mark.parametrize("member", ["backbone", "head:species001", "head:missing"])
def test_a_member_is_resolved(reg, crops, member):
    found = reg("resolve", NAME, "--format", "onnx-int8", "--member", member, "--json")
    if member == "head:missing":
        assert found.ended(3, "is backbone, wanted head:missing")
        return
    assert (found.status, found.json["version"], found.json["artifact"]["member"]) == (0, "1.1.0", member)
    path = "swin-int8.onnx" if member == "backbone" else "heads/species001-int8.onnx"
    assert found.json["artifact"]["path"] == path


def test_a_family_says_itself_what_to_export(reg):
    Path("family.yaml").write_text(
        "{family: 1, name: a/b, backbone: {checkpoint: none}, heads: {folder: heads}}"
    )
    for words in (("./checkpoint", "--recipe", "family.yaml"), ("--recipe", "family.yaml", "--no-int8")):
        assert reg("export", *words).ended(2, "does not go with a family")
    assert reg("export", "--recipe", "family.yaml").ended(
        3, "backbone: there is no checkpoint directory none"
    )
    text = Path("family.yaml").read_text()
    Path("family.yaml").write_text(text.replace("none}", "none, input: [3, 16, 16]}"))
    assert reg("export", "--recipe", "family.yaml").ended(2, "input goes with a factory only")


# A small family whose backbone a factory makes: exported and made again, with consent to its code alone

ALLOWED = ("--allow-code", "net.py:build")


def write_document(root: Path, **changes: Any) -> Path:
    made = {"backbone": small.MADE_BACKBONE, "variants": {"head": ["int8"], "backbone": []}}
    (root / "family.json").write_text(json.dumps({**small.DOCUMENT, **made, **changes}))
    return root / "family.json"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small family, with its document; its code has not run."""
    root = tmp_path_factory.mktemp("family") / "source"
    root.mkdir()
    small.write(root)
    small.write_factory(root)
    write_document(root)
    return root


@pytest.fixture(scope="module")
def home(source: Path) -> Path:
    """A registry with the family, under another name than its document says."""
    root = small.copy(source, source.parent / "exported")
    words = ["--quiet", "--registry", str(source.parent / "home"), "export", "--name", OTHER, *ALLOWED]
    assert main([*words, "--recipe", str(root / "family.json")]) == 0
    assert (root / "ran").exists()
    return source.parent / "home"


def test_a_family_is_exported_and_timed(reg, home, source):
    manifest = Registry(home).get(OTHER)
    assert "p50_ms" not in manifest.data.decode() and manifest.manifest.recipe is not None
    code, recorded = manifest.manifest.recipe.code, manifest.manifest.recipe.to_json()["parameters"]["family"]
    assert code is not None and code.digest == Digest.of((source / "net.py").read_bytes())
    made = {"factory": "net:build", "arguments": {"width": small.WIDTH}, "input": [3, small.SIDE, small.SIDE]}
    outputs = {"logits": "scores", "embedding": "features"}
    assert recorded["backbone"] == {"file": "backbone", "classes": small.SPECIES, **made, **outputs}
    rows = [recorded["evaluation"], *(recorded["ood"][key] for key in ("fit", "calibrate", "outliers"))]
    assert all(each.startswith("sha256:") for each in rows), "digests and no paths"
    assert "folder" not in recorded["heads"]
    assert recorded["limits"]["size"]["head"] == {"float32": None, "float16": None, "int8": None}
    events = len(Registry(home).log(OTHER))
    root = source.parent / "exported"
    words = ("--registry", home, "export", "--recipe", root / "family.json", "--name", OTHER, *ALLOWED)
    again = reg(*words)
    assert again.out.startswith(f"nothing new: this is {OTHER}:0.1.0\nmanifest {manifest.digest}\n")
    (latency,) = reg(*words, "--json").json["latency"]
    assert latency["graphs"] == ["backbone-fp32.onnx", "heads/apple-fp32.onnx", "ood.onnx"]
    assert 0 < latency["p50_ms"] <= latency["p95_ms"]
    (line,) = (line for line in again.out.splitlines() if line.startswith("latency: p50 "))
    assert line.endswith(f": {' + '.join(latency['graphs'])} (one row, 1 thread)")
    (on_record,) = reg("--registry", home, "show", OTHER, "--benchmark", "--json").json["benchmarks"]
    assert on_record["artifacts"][0]["path"] == "backbone-fp32.onnx"
    assert {check["metric"] for check in on_record["artifacts"][0]["checks"]} == {"median_ms", "p95_ms"}
    assert len(Registry(home).log(OTHER)) == events


def test_a_limit_that_does_not_hold_publishes_nothing(reg, source, tmp_path):
    root = small.copy(source, tmp_path / "source")
    document = write_document(root, limits={**small.DOCUMENT["limits"], "size": {"head": {"int8": "100B"}}})
    refused = reg("--registry", "new", "export", "--recipe", document, *ALLOWED)
    assert refused.ended(8, "head:apple (int8): size: bytes is") and not Path("new").exists()


@pytest.mark.parametrize("allowed", ["", "--allow-code other.py", "--allow-code net.py:other"])
def test_code_that_is_not_allowed_does_not_run(reg, source, home, tmp_path, allowed):
    root = small.copy(source, tmp_path / "source")
    export = ("--registry", "new", "export", "--recipe", root / "family.json")
    for words in (export, ("--registry", home, "rebuild", OTHER, "--source", root / "family.json")):
        refused = reg(*words, *allowed.split())
        assert refused.ended(2, "is code", "hint: read it, then pass --allow-code net.py:build")
    assert not (root / "ran").exists() and not Path("new").exists()


def test_a_family_comes_out_again_elsewhere(reg, home, source, tmp_path):
    elsewhere = small.copy(source, tmp_path / "elsewhere")
    (elsewhere / "family.json").rename(elsewhere / "family.yaml")
    done = reg("--registry", home, "rebuild", OTHER, "--source", elsewhere, *ALLOWED, "--json")
    assert (done.status, done.json["matches"]) == (0, True), done.err
    assert {file["state"] for file in done.json["files"]} == {"same"}
    assert "ood.onnx" in {file["path"] for file in done.json["files"]}
    assert reg("--registry", home, "rebuild", OTHER).ended(2, "hint: name it: --source family.yaml")
    Path("rows.npz").touch()
    data = reg("--registry", home, "rebuild", OTHER, "--data", "fit=rows.npz")
    assert data.ended(2, "its document names all rows")


def other_weights(root: Path) -> None:
    weights = torch.load(root / "best.ckpt", weights_only=True)
    weights["state_dict"]["model.fc.bias"] += 1
    torch.save(weights, root / "best.ckpt")


def a_recipe(root: Path) -> None:
    write_mlp(root / "mlp.onnx")
    recipe = {"task": "onnx", "source": "mlp.onnx", "steps": [{"name": "original", "pass": "Original"}]}
    (root / "family.json").write_text(json.dumps(recipe))


MADE = f"family.json is not what {OTHER} was made from: "
LIMITS = {"latency_p95": None, "parity": {"int8": 0.2}}
WIDER = {**small.MADE_BACKBONE, "arguments": {"width": small.WIDTH, "as_tuple": True}}
OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another limit": (lambda root: write_document(root, limits=LIMITS), f"{MADE}limits.parity.int8 is 0.2, recorded is 0.1"),
    "other arguments": (lambda root: write_document(root, backbone=WIDER), f"{MADE}backbone.arguments"),
    "other rows": (lambda root: np.savez(root / "calibrate.npz", input=small.images(100, 99)), f"{MADE}ood.calibrate is sha256:"),
    "another head": (lambda root: small.save_head(root / "heads" / "bean.safetensors", small.CLASSES["bean"], 99), f"the checkpoints of family.json are not those that {OTHER} was made from"),
    "other weights": (other_weights, f"are not those that {OTHER} was made from"),
    "other code": (lambda root: (root / "net.py").write_text(small.NET + "# more\n"), "was made by net:build of sha256:"),
    "a recipe of passes": (a_recipe, "family.json describes no family"),
    "a head that is gone": (lambda root: shutil.rmtree(root / "heads"), "there is no folder of heads at heads"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_another_input_is_refused_before_anything_runs(reg, home, source, tmp_path, what):
    change, message = OTHERS[what]
    root = small.copy(source, tmp_path / "source")
    change(root)
    done = reg("--registry", home, "rebuild", OTHER, "--source", root / "family.json", *ALLOWED)
    assert done.ended(3 if "gone" in what else 2, message) and not (root / "ran").exists()
