"""`reg import` of repositories as people publish them: each layout, from one real export."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.registries.drafts import manifest_of

from onnxreg.converters.importers.adopt import adopt_directory
from onnxreg.converters.importers.confine import resolve_links
from onnxreg.converters.source.location import is_snapshot
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Manifest

BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
COMPANIONS = ("config.json", "tokenizer.json", "tokenizer_config.json", "id2label.json")
CARD = "---\nlicense: apache-2.0\nbase_model: acme/base\npipeline_tag: token-classification\n---\n# A card\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Companions at the root, the graphs in `onnx/`, as Transformers.js has them; the INT8 graph has two names."""
    root = tmp_path / "repository"
    (root / "onnx").mkdir(parents=True)
    for name in COMPANIONS:
        shutil.copy(BERT / name, root / name)
    for name, copies in (
        ("model.onnx", ["model.onnx"]),
        ("model_fp16.onnx", ["model_fp16.onnx"]),
        ("model_int8.onnx", ["model_int8.onnx", "model_quantized.onnx"]),
    ):
        for copy in copies:
            shutil.copy(BERT / name, root / "onnx" / copy)
    (root / "README.md").write_text(CARD)
    (root / "model.safetensors").write_bytes(b"weights of another framework")
    (root / ".gitattributes").write_text("*.onnx filter=lfs\n")
    return root


def imported(directory: Path, tmp_path: Path) -> Manifest:
    workspace = tmp_path / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir()
    draft, differences = adopt_directory(directory, workspace, name="acme/bert")
    assert differences == []
    return manifest_of(draft)


def test_many_graphs_become_one_version(repository: Path, tmp_path: Path) -> None:
    manifest = imported(repository, tmp_path)
    artifacts = {item.path: (item.format, item.precision, item.parent) for item in manifest.artifacts}
    base = manifest.artifacts[0].digest
    assert artifacts == {
        "onnx/model.onnx": ("onnx", "float32", None),
        "onnx/model_fp16.onnx": ("onnx", "float16", base),
        "onnx/model_int8.onnx": ("onnx-int8", "int8", base),
    }
    assert {item.certification.state for item in manifest.artifacts} == {"unknown"}
    assert {entry.path for entry in manifest.files} == set(COMPANIONS)
    assert (manifest.license, manifest.source_model_id) == ("apache-2.0", "acme/base")
    assert (manifest.task, manifest.family) == ("token-classification", "bert")
    assert manifest.recipe is not None
    (step,) = manifest.recipe.to_json()["steps"]
    assert step["result"]["left_out"] == ["README.md", "model.safetensors", "onnx/model_quantized.onnx"]


def test_a_file_of_another_model_has_no_parent(repository: Path, tmp_path: Path) -> None:
    model = onnx.load(repository / "onnx" / "model_fp16.onnx")
    (weight, *_) = [item for item in model.graph.initializer if len(item.dims) == 2]
    weight.raw_data = bytes(len(weight.raw_data))
    onnx.save(model, repository / "onnx" / "model_fp16.onnx")
    parents = {item.path: item.parent for item in imported(repository, tmp_path).artifacts}
    assert parents["onnx/model_fp16.onnx"] is None
    assert parents["onnx/model_int8.onnx"] is not None


def test_the_layout_of_optimum(repository: Path, tmp_path: Path) -> None:
    """Its external data keeps its path."""
    for file in (repository / "onnx").iterdir():
        file.rename(repository / file.name)
    (repository / "onnx").rmdir()
    (repository / "id2label.json").unlink()
    (repository / "ort_config.json").write_text('{"opset": 18}')
    model = onnx.load(repository / "model.onnx")
    onnx.save(model, repository / "model.onnx", save_as_external_data=True, location="model.onnx_data")
    manifest = imported(repository, tmp_path)
    assert [item.path for item in manifest.artifacts] == ["model.onnx", "model_fp16.onnx", "model_int8.onnx"]
    assert "ort_config.json" in {entry.path for entry in manifest.files}
    files = [(entry.role, entry.path) for entry in manifest.artifacts[0].files]
    assert files == [("external-data", "model.onnx_data")]


def test_the_layout_of_sentence_transformers(repository: Path, tmp_path: Path) -> None:
    more = {
        "1_Pooling/config.json": "{}",
        "2_Dense/config.json": "{}",
        "2_Dense/model.safetensors": "weights",
    }
    for path, text in more.items():
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text(text)
    (repository / "modules.json").write_text("[]")
    (repository / "onnx" / "model_int8.onnx").rename(repository / "onnx" / "model_qint8_arm64.onnx")
    manifest = imported(repository, tmp_path)
    roles = {entry.path: entry.role for entry in manifest.files}
    assert roles["config.json"] == "config" and roles.items() >= dict.fromkeys(more, "other").items()
    assert manifest.config_path == "config.json"
    assert "onnx/model_qint8_arm64.onnx" in {item.path for item in manifest.artifacts}


def test_graphs_that_work_together_are_stages(repository: Path, tmp_path: Path) -> None:
    for file in list((repository / "onnx").iterdir()):
        shutil.copy(file, file.with_name(file.name.replace("model", "decoder_model_merged", 1)))
        file.rename(file.with_name(file.name.replace("model", "encoder_model", 1)))
    model = onnx.load(repository / "onnx" / "decoder_model_merged.onnx")
    model.producer_name = "another"
    onnx.save(model, repository / "onnx" / "decoder_model_merged.onnx")
    for name in ("fp16", "int8", "quantized"):
        (repository / "onnx" / f"decoder_model_merged_{name}.onnx").unlink()
    manifest = imported(repository, tmp_path)
    assert set(manifest.stages.values()) == {"encoder_model", "decoder_model_merged"}
    assert manifest.stages["onnx/encoder_model_fp16.onnx"] == "encoder_model"


def test_the_cache_of_the_hub_has_links(repository: Path, tmp_path: Path) -> None:
    root = tmp_path / "models--acme--bert"
    snapshot, blobs = root / "snapshots" / "0123abcd", root / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(path for path in repository.rglob("*") if path.is_file())):
        shutil.copy(file, blobs / f"blob{number}")
        link = snapshot / file.relative_to(repository)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / f"blob{number}")
    assert (is_snapshot(snapshot), is_snapshot(repository)) == (True, False)
    (tmp_path / "files").mkdir()
    directory = resolve_links(snapshot, tmp_path / "files")
    assert imported(directory, tmp_path) == imported(repository, tmp_path)


def leading_out(root: Path) -> None:
    (root.parent / "secret.json").write_text("{}")
    (root / "settings.json").symlink_to(root.parent / "secret.json")


def other_labels(root: Path) -> None:
    config = json.loads((root / "config.json").read_text())
    (root / "id2label.json").unlink()
    (root / "config.json").write_text(json.dumps(config | {"id2label": {"0": "A"}}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(leading_out, r"settings\.json is a link that leads out of repository"), (other_labels, "labels")],
)
def test_repositories_that_are_refused(repository: Path, tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(repository)
    with pytest.raises(InputError, match=message):
        imported(repository, tmp_path)


@pytest.mark.parametrize(
    "card", ["", "---\n- 1\n---\n", "---\na: [\n---\n", "---\nlicense: 3\nbase_model: [a, b]\n---\n", "\xff"]
)
def test_a_card_that_says_nothing(repository: Path, tmp_path: Path, card: str) -> None:
    (repository / "README.md").write_bytes(card.encode("latin-1"))
    manifest = imported(repository, tmp_path)
    assert (manifest.license, manifest.source_model_id) == (None, None)
    assert manifest.task == "token-classification"
