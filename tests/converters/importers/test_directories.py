"""`reg import`: repositories as people publish them, and directories that OpenMed's converter really wrote, whole and
tampered with.

`fixtures/openmed-v1/bert` is an evaluated android export of a tiny random model, whose claim `certified: true` rests
on an empty suite. `distilbert-over-bert` are the files that a second export, of another model and without the ORT
converter, wrote over it.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.graphs import put
from support.registries.drafts import manifest_of
from support.sampling import sampled

from onnxreg.converters.importers.adopt import adopt
from onnxreg.converters.importers.intake import Difference
from onnxreg.converters.importers.survey import compare_weights
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats.hub_layout import pipeline_tag
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME

FIXTURES = Path(__file__).parents[1].parent / "fixtures/openmed-v1"
CONFIG = "model.required_operators_and_types.config"
Spoil = Callable[[Path], None]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A copy of the evaluated export, to be tampered with."""
    return Path(shutil.copytree(FIXTURES / "bert", tmp_path / "export"))


def change(directory: Path, edit: dict[str, Any], file: str = FILENAME) -> None:
    """Replace the values at these keys of a document; None removes one, and the index `+` appends one."""
    value = json.loads((directory / file).read_text())
    for path, replacement in edit.items():
        target = value
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        for part in parents:
            target = target[part]
        if last == "+":
            target.append(replacement)
        elif replacement is None:
            del target[last]
        else:
            target[last] = replacement
    (directory / file).write_text(json.dumps(value))


Adopted = tuple[Manifest, Draft, dict[str, Difference]]


@pytest.fixture
def adopted(export: Path, workspace: Path) -> Callable[[], Adopted]:
    """Adopt the export as it is now: the manifest, the draft and the differences by path."""

    def run() -> Adopted:
        draft, differences = adopt(export, workspace, name="acme/bert")
        return manifest_of(draft), draft, {item.path: item for item in differences}

    return run


def refusal(directory: Path, workspace: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        adopt(directory, workspace, name="acme/bert")
    assert str(directory.parent) not in caught.value.message + caught.value.hint
    return caught.value


def test_files_are_adopted_as_they_are_and_a_claimed_certification_is_not(export, workspace, adopted):
    """Formats, contracts, labels and states are frozen in `fixtures/exports/openmed.json`."""
    before = {path.name: path.read_bytes() for path in export.iterdir()}
    manifest, _, differences = adopted()
    assert {path.name: path.read_bytes() for path in export.iterdir()} == before
    base = Digest.of(before["model.onnx"])
    assert manifest.artifacts[0].digest == base
    assert [artifact.parent for artifact in manifest.artifacts] == [None, base, base, base]
    assert manifest.artifacts[3].reproducible is False
    assert json.loads(before[FILENAME])["certified"] is True
    for key in ("certified", "quant_recall_delta", "certification", "quantization", "recall_delta_path"):
        assert key not in manifest.to_json()
    int8 = manifest.artifacts[2]
    assert int8.certification.state == "unknown" and "no digest" in int8.certification.reasons[0]
    assert int8.to_json()["claimed"]["certified"] is True and "certified" not in int8.to_json()["metadata"]
    config = json.loads((workspace / "config.json").read_text())
    assert not {"certified", "quant_recall_delta", "_onnx_quantization"} & config.keys()
    assert differences["certified"] == Difference("certified", True, None)
    assert ("claimed-report", "recall_delta.json") in [(entry.role, entry.path) for entry in manifest.files]


@pytest.mark.parametrize(
    ("file", "claims"),
    [
        (FILENAME, {"certified": False, "quant_recall_delta": 0.0769}),
        pytest.param(FILENAME, {"artifacts.2.metadata.certified": False}, marks=pytest.mark.more),
        pytest.param(FILENAME, {"quantization.certified": False}, marks=pytest.mark.more),
        pytest.param(FILENAME, {"quant_recall_delta": 0.0769}, marks=pytest.mark.more),
        pytest.param("recall_delta.json", {"certified": False}, marks=pytest.mark.more),
        pytest.param("config.json", {"certified": False}, marks=pytest.mark.more),
    ],
)
def test_a_claimed_refusal_stays_one(export, adopted, file, claims):
    """Without evidence a claim is believed against an artifact, and never for it, wherever it is made."""
    change(export, claims, file)
    manifest, _, _ = adopted()
    states = {artifact.path: artifact.certification.state for artifact in manifest.artifacts}
    assert states.pop("model_int8.onnx") == "refused"
    assert set(states.values()) == {"unknown"}
    (reason,) = manifest.artifacts[2].certification.reasons
    assert "as claimed by the source" in reason
    assert manifest.artifacts[2].certification.evidence is None


DIM = "type.tensor_type.shape.dim"
UNFIT: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "a dangling input": (put("graph.node.-1.input.0", "nothing"), "is not valid"),
    "opset 17": (put("opset_import.0.version", 17), "opset 17"),
    "a static batch": (put(f"graph.input.0.{DIM}.0.dim_value", 1), "is int64[1, sequence], expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(UNFIT, 3))
@pytest.mark.parametrize("file", sampled(["model.onnx", "model_fp16.onnx", "model_int8.onnx"], 3))
def test_import_refuses_the_files_that_add_refuses(export, workspace, tmp_path, file, case):
    """One judgement for both: each of these once came in as `onnx-android`."""
    spoil, message = UNFIT[case]
    model = onnx.load(export / file)
    spoil(model)
    onnx.save(model, export / file)
    refused = refusal(export, workspace)
    assert file in refused.message and list(workspace.iterdir()) == []
    if file != "model_int8.onnx":
        assert message in refused.message
        with pytest.raises(InputError) as caught:
            adopt([export / file], tmp_path / "added", name="acme/bert", format="onnx-android")
        assert caught.value.message == refused.message


def test_differences_name_field_claim_and_fact(export, adopted):
    claims = {"family": "roberta", "max_sequence_length": 512, "artifacts.0.precision": "float16"}
    claims |= {"artifacts.0.metadata.opset": 17, "artifacts.1.metadata.outputs.0.shape.2.value": 9}
    change(export, claims | {"generated_at": "2026-01-01T00:00:00Z", "site": {"ward": 3}})
    manifest, _, differences = adopted()
    assert differences.keys() == {
        *(key for key in claims if "outputs" not in key),
        *("artifacts.1.metadata.outputs", "artifacts.3.metadata.operators", "certified", "source_model_id"),
    }
    pairs = {key: (item.claimed, item.actual) for key, item in differences.items()}
    assert (pairs["family"], pairs["artifacts.0.metadata.opset"]) == (("roberta", "bert"), (17, 18))
    claimed, actual = pairs["artifacts.3.metadata.operators"]
    assert "Erf" in claimed and "Erf" not in actual
    value = manifest.to_json()  # moments are left out, and unknown fields kept
    assert "generated_at" not in value and value["site"] == {"ward": 3}


def test_no_path_of_the_other_machine_is_published(export, workspace, adopted):
    assert b"/home/jane" in (export / FILENAME).read_bytes()
    manifest, draft, _ = adopted()
    assert b"/home/jane" not in manifest.encode()
    for path in draft.paths():
        assert b"/home/jane" not in (workspace / path).read_bytes(), path
    assert manifest.recipe.steps[0].result["scrubbed"] == [
        *(f"config.json:{key}" for key in ("_name_or_path", "_onnx_quantization", "certified", "quant_recall_delta")),
        f"{CONFIG}:comments", "openmed-onnx.json:source_model_id", "recall_delta.json:source_model_id",
    ]  # fmt: skip
    (export / FILENAME).write_bytes(manifest.encode())
    for path in workspace.iterdir():
        path.unlink()
    message = refusal(export, workspace).message
    assert re.match(r"config\.json:\S+ names a path of a machine, which", message)


def test_an_export_without_evaluation(export, adopted):
    keys = ("certified", "quant_recall_delta", "certification", "quantization", "recall_delta_path")
    change(export, dict.fromkeys((*keys, "artifacts.2.metadata")))
    (export / "recall_delta.json").unlink()
    reasons = {artifact.certification.reasons for artifact in adopted()[0].artifacts}
    assert reasons == {("not evaluated",)}


def nudge(file: str, name: str, by: float) -> Spoil:
    """Add `by` to one element of an initializer."""

    def spoil(directory: Path) -> None:
        model = onnx.load(directory / file)
        tensor = next(item for item in model.graph.initializer if item.name.endswith(name))
        value = numpy_helper.to_array(tensor).copy()
        value.flat[3] += np.asarray(by, value.dtype)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        onnx.save(model, directory / file)

    return spoil


def another_checkpoint(directory: Path) -> None:
    """One architecture, other weights: only the weights can tell."""
    for file in ("model.onnx", "model_fp16.onnx"):
        nudge(file, "position_embeddings.weight", 0.25)(directory)
    (directory / "model_int8.onnx").unlink()
    change(directory, {"artifacts.2": None})


def other_names(directory: Path) -> None:
    model = onnx.load(directory / "model_fp16.onnx")
    renamed = {tensor.name: f"renamed_{tensor.name}" for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.name = renamed[tensor.name]
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    onnx.save(model, directory / "model_fp16.onnx")


def second_export(directory: Path) -> None:
    """What the converter leaves when it is run again for another model: model.ort and the INT8 are of the first."""
    shutil.copytree(FIXTURES / "distilbert-over-bert", directory, dirs_exist_ok=True)


def second_report(directory: Path) -> None:
    second_export(directory)
    for stale in ("model.ort", CONFIG, "model_int8.onnx"):
        (directory / stale).unlink()


def without_bin(directory: Path) -> None:
    (directory / "openvino").mkdir()
    (directory / "openvino/model.xml").write_text("<net/>")
    claim = {"format": "openvino-ir", "path": "openvino/model.xml", "precision": "float32"}
    change(directory, {"artifacts.+": {**claim, "metadata": {"opset": 15}}})


def link_out(directory: Path) -> None:
    secret = directory.parent / "secret"
    secret.write_bytes(b"{}")
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.json").symlink_to(secret)


def claims(key: str, value: str) -> Spoil:
    return lambda directory: change(directory, {key: value})


def missing(file: str) -> Spoil:
    return lambda directory: (directory / file).unlink()


OUTSIDE = ["/etc/passwd", "../model.onnx", "a/../../b", "C:\\model.onnx", "", ".", "a\0b", ".."]
PATHS = ["artifacts.0.path", "config_path", "artifacts.3.metadata.op_config_path"]
OTHER_WEIGHTS = "is not a conversion of model.onnx: their weights differ in"
REFUSED: dict[str, tuple[Spoil, str]] = {
    **{f"without {file}": (missing(file), f"the manifest names the {role} {file}, which is missing") for file, role in (
        ("model_fp16.onnx", "onnx-android artifact"), ("model.ort", "ort-android artifact"), (CONFIG, "operator config"),
        ("recall_delta.json", "report"), ("config.json", "config"), ("id2label.json", "labels"),
        ("tokenizer.json", "tokenizer file"),
    )},
    **{f"{key} is {path!r}": (claims(key, path), "that cannot be in its directory") for key in PATHS for path in OUTSIDE},
    **{f"{file}: {name}": (nudge(file, name, by), OTHER_WEIGHTS) for file, name, by in (
        ("model_fp16.onnx", "word_embeddings.weight", 0.01), ("model_fp16.onnx", "classifier.bias", 0.001),
        ("model_int8.onnx", "_quantized", 3), ("model_int8.onnx", "LayerNorm.bias", 1e-4),
        ("model.onnx", "word_embeddings.weight", 0.01),
    )},
    "an artifact that is no model": (claims("artifacts.0.path", "config.json"), "is not a model file"),
    "another checkpoint": (another_checkpoint, f"model.ort {OTHER_WEIGHTS} base_model.bert.embeddings.position_embeddings"),
    "no common weight": (other_names, "no weight of model_fp16.onnx has a counterpart in model.onnx"),
    "two exports": (second_export, "recall_delta.json is about another model than openmed-onnx.json"),
    "a report of another model": (second_report, "recall_delta.json is about another model than openmed-onnx.json"),
    "openvino without weights": (without_bin, "OpenVINO weight file openvino/model.bin, which is missing"),
    "a link": (link_out, "a link that leads out of"),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(REFUSED, 3))
def test_a_directory_that_is_refused(export, workspace, case):
    spoil, message = REFUSED[case]
    spoil(export)
    error = refusal(export, workspace)
    assert message in error.message and list(workspace.iterdir()) == []
    assert case not in ("two exports", "no common weight") or "mixes files of two exports" in error.hint


def test_a_second_export_is_whole_without_the_files_of_the_first(export, adopted):
    second_report(export)
    (export / "recall_delta.json").unlink()
    change(export, {"tokenizer.files": ["tokenizer.json", "tokenizer_config.json"]})
    assert adopted()[0].family == "distilbert"


def test_files_that_are_not_named_or_are_none_of_a_tokenizer(export, adopted):
    """A second export into one directory lists the first one's manifest and report as tokenizer files."""
    (export / "README.md").write_text("mine")
    shutil.copy(export / "model.onnx", export / "spare.onnx")
    files = ["tokenizer.json", "tokenizer_config.json", "openmed-onnx.json", "recall_delta.json"]
    change(export, {"tokenizer.files": files})
    _, draft, differences = adopted()
    assert {path for path, item in differences.items() if item.claimed is None} == {"README.md", "spare.onnx"}
    assert not {"README.md", "spare.onnx"} & set(draft.paths())
    assert "tokenizer.files" in differences
    assert [file.path for file in draft.companions if file.role == "tokenizer"] == files[:2]


def test_a_directory_artifact_lists_its_files(export, workspace, adopted):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    bundle = export / "transformersjs"
    (bundle / "onnx").mkdir(parents=True)
    shutil.copy(export / "model.onnx", bundle / "onnx/model.onnx")
    for file in ("config.json", "tokenizer.json"):
        shutil.copy(export / file, bundle / file)
    small = bundle / "onnx/model_quantized.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(export / "model.onnx", small, weight_type=QuantType.QInt8, per_channel=True)
    claim = {"format": "transformersjs", "path": "transformersjs", "precision": "int8"}
    change(export, {"artifacts.+": claim, "formats.+": "transformersjs"})
    artifact = adopted()[0].artifacts[-1]
    assert (artifact.format, artifact.path) == ("transformersjs", "transformersjs/onnx/model_quantized.onnx")
    assert artifact.precision == "int8"
    assert [(entry.role, entry.path) for entry in artifact.files] == [
        ("config", "transformersjs/config.json"),
        ("model", "transformersjs/onnx/model.onnx"),
        ("tokenizer", "transformersjs/tokenizer.json"),
    ]
    assert "certified" not in json.loads((workspace / "transformersjs/config.json").read_text())


def test_openvino_and_a_segmenter_come_with_their_files_and_without_claims(export, adopted):
    without_bin(export)
    (export / "openvino/model.bin").write_bytes(bytes(64))
    (export / "seg.bin").write_bytes(b"abc")
    right = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
    entry = {"path": "seg.bin", "role": "model", "size_bytes": 3, "sha256": f"sha256:{'0' * 64}"}
    change(export, {"segmenter": {"id": "seg", "resource_files": [entry]}})
    manifest, draft, differences = adopted()
    artifact = manifest.artifacts[-1]
    assert [(entry.role, entry.path) for entry in artifact.files] == [("weights", "openvino/model.bin")]
    assert (artifact.format, artifact.precision, artifact.metadata.opset) == ("openvino-ir", "float32", None)
    pairs = {key: (item.claimed, item.actual) for key, item in differences.items()}
    assert pairs["artifacts.4.metadata"] == ("openvino-ir", None)
    assert pairs["segmenter.resource_files.0.sha256"] == (entry["sha256"], right)
    assert draft.fields["segmenter"]["resource_files"][0]["sha256"] == right
    assert ("segmenter", "seg.bin") in [(file.role, file.path) for file in draft.companions]


@pytest.mark.parametrize("axis", [0, 1])
def test_conversions_of_weights_are_told_from_other_weights(axis):
    """Scales for each channel of either axis; and in float16 an overflow is a clip."""
    parent = {"w": np.array([[1e6, -1e6, np.nan, 0.1]], np.float32)}
    clipped = {"w": np.array([[65504, -65504, np.nan, 0.1]], np.float16)}
    assert compare_weights(parent, clipped, "b", "a") == 1
    random = np.random.default_rng(1)
    rows = random.normal(size=(6, 6)) * 10.0 ** np.arange(6)[:, None]
    weight = (rows if axis == 0 else rows.T).astype(np.float32)
    scale = (np.abs(weight).max(axis=1 - axis) / 127).astype(np.float32)
    quantized = np.round(weight / np.expand_dims(scale, 1 - axis)).astype(np.int8)
    other = {"w_quantized": quantized, "w_scale": scale, "w_zero_point": np.zeros(6, np.int8)}
    assert compare_weights({"w": weight}, other, "b", "a") == 1
    quantized[2, 3] += 3
    with pytest.raises(InputError, match="b is not a conversion of a: their weights differ in w"):
        compare_weights({"w": weight}, other, "b", "a")


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
    draft, differences = adopt(directory, workspace, name="acme/bert")
    assert differences == []
    return manifest_of(draft)


@pytest.mark.parametrize(
    ("tag", "task"),
    [("sentence-similarity", "pooling"), *[(tag, tag) for tag in ("translation", "text-ranking")]],
)
def test_the_task_of_a_card_may_have_our_name_here_and_has_the_hubs_name_there(
    repository, tmp_path, tag, task
):
    (repository / "README.md").write_text(CARD.replace("token-classification", tag))
    value = json.loads((repository / "config.json").read_text())
    for name in ("id2label.json", "config.json"):
        (repository / name).unlink()
    value = {key: item for key, item in value.items() if key not in ("architectures", "id2label", "label2id")}
    (repository / "config.json").write_text(json.dumps(value))
    manifest = imported(repository, tmp_path)
    assert (manifest.task, pipeline_tag(manifest)) == (task, tag)


def test_many_graphs_become_one_version(repository, tmp_path):
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


def test_a_file_of_another_model_has_no_parent(repository, tmp_path):
    model = onnx.load(repository / "onnx" / "model_fp16.onnx")
    (weight, *_) = [item for item in model.graph.initializer if len(item.dims) == 2]
    weight.raw_data = bytes(len(weight.raw_data))
    onnx.save(model, repository / "onnx" / "model_fp16.onnx")
    parents = {item.path: item.parent for item in imported(repository, tmp_path).artifacts}
    assert parents["onnx/model_fp16.onnx"] is None
    assert parents["onnx/model_int8.onnx"] is not None


def test_the_layout_of_optimum(repository, tmp_path):
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


def test_the_layout_of_sentence_transformers(repository, tmp_path):
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


def test_graphs_that_work_together_are_stages(repository, tmp_path):
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


def test_the_cache_of_the_hub_has_links(repository, tmp_path):
    model = onnx.load(repository / "onnx" / "model.onnx")
    onnx.save(
        model, repository / "onnx" / "model.onnx", save_as_external_data=True, location="model.onnx_data"
    )
    root = tmp_path / "models--acme--bert"
    snapshot, blobs = root / "snapshots" / "0123abcd", root / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(path for path in repository.rglob("*") if path.is_file())):
        shutil.copy(file, blobs / f"blob{number}")
        link = snapshot / file.relative_to(repository)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / f"blob{number}")
    assert imported(snapshot, tmp_path) == imported(repository, tmp_path)


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
def test_repositories_that_are_refused(repository, tmp_path, spoil, message):
    spoil(repository)
    with pytest.raises(InputError, match=message):
        imported(repository, tmp_path)


@pytest.mark.parametrize(
    "card", sampled(["---\nlicense: 3\nbase_model: [a, b]\n---\n", "---\n- 1\n---\n", "\xff"], 3)
)
def test_a_card_that_says_nothing(repository, tmp_path, card):
    (repository / "README.md").write_bytes(card.encode("latin-1"))
    manifest = imported(repository, tmp_path)
    assert (manifest.license, manifest.source_model_id) == (None, None)
    assert manifest.task == "token-classification"
