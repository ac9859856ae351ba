"""`reg import`: directories that OpenMed's converter really wrote, whole and tampered with.

`fixtures/openmed-v1/bert` is an evaluated android export of a tiny random model, whose claim `certified: true` rests
on an empty suite. `distilbert-over-bert` are the files that a second export, of another model and without the ORT
converter, wrote over it.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.registries.drafts import manifest_of
from support.sampling import sampled

from onnxreg.converters.importers.adopt import adopt_directory, adopt_files
from onnxreg.converters.importers.survey import Difference, compare_weights
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.vocabulary import FILENAME

FIXTURES = Path(__file__).parents[1].parent / "fixtures/openmed-v1"
CONFIG = "model.required_operators_and_types.config"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A copy of the evaluated export, to be tampered with."""
    return Path(shutil.copytree(FIXTURES / "bert", tmp_path / "export"))


def change(directory: Path, edit: dict[str, Any], file: str = FILENAME) -> None:
    value = json.loads((directory / file).read_text())
    for path, replacement in edit.items():
        target = value
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        for part in parents:
            target = target[part]
        if replacement is None:
            del target[last]
        else:
            target[last] = replacement
    (directory / file).write_text(json.dumps(value))


def refusal(directory: Path, workspace: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        adopt_directory(directory, workspace, name="acme/bert")
    assert list(workspace.iterdir()) == []
    assert str(directory.parent) not in caught.value.message + caught.value.hint
    return caught.value


def test_every_artifact_is_read_again(export: Path, workspace: Path) -> None:
    manifest = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0])
    assert [(a.format, a.path, a.precision) for a in manifest.artifacts] == [
        ("onnx-android", "model.onnx", "float32"),
        ("onnx-android", "model_fp16.onnx", "float16"),
        ("onnx-int8", "model_int8.onnx", "int8"),
        ("ort-android", "model.ort", "float32"),
    ]
    base = manifest.artifacts[0].digest
    assert base == Digest.of((export / "model.onnx").read_bytes())
    assert [artifact.parent for artifact in manifest.artifacts] == [None, base, base, base]
    for artifact in manifest.artifacts:
        assert [spec.name for spec in artifact.metadata.inputs] == [
            "input_ids",
            "attention_mask",
            "token_type_ids",
        ]
        assert artifact.metadata.outputs[0].axes == ("batch", "sequence", "labels")
        assert artifact.metadata.profile == "android"
        assert artifact.metadata.opset == 18
        assert len(artifact.metadata.warnings) == len(artifact.metadata.unsupported_ops) >= 3
    int8, ort = manifest.artifacts[2:]
    assert int8.quantization is not None
    assert int8.quantization.requested["weight_type"] == "qint8"
    assert int8.quantization.measured.weights_quantized == 7
    assert "com.microsoft:BiasGelu" in ort.metadata.operators
    assert [(entry.role, entry.path) for entry in ort.files] == [("operator-config", CONFIG)]
    assert ort.reproducible is False


def test_manifest_level_fields(export: Path, workspace: Path) -> None:
    manifest = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0])
    assert (manifest.task, manifest.family) == ("token-classification", "bert")
    assert manifest.labels == ("O", "B-PERSON", "I-PERSON", "B-DATE", "I-DATE")
    assert (manifest.minimum_opset, manifest.max_sequence_length) == (18, 32)
    assert manifest.tokenizer is not None
    assert manifest.tokenizer.files == ("tokenizer.json", "tokenizer_config.json")
    assert manifest.source is not None and manifest.source.id == "acme/bert"
    assert manifest.recipe is not None and manifest.recipe.profile == "openmed-v1"
    assert [step.name for step in manifest.recipe.steps] == ["import"]


def test_a_claimed_certification_becomes_unknown(export: Path, workspace: Path) -> None:
    draft, differences = adopt_directory(export, workspace, name="acme/bert")
    manifest = manifest_of(draft)
    assert json.loads((export / FILENAME).read_text())["certified"] is True
    assert {artifact.certification.state for artifact in manifest.artifacts} == {"unknown"}
    for key in ("certified", "quant_recall_delta", "certification", "quantization", "recall_delta_path"):
        assert key not in manifest.to_json()
    int8 = manifest.artifacts[2]
    assert "no digest" in int8.certification.reasons[0]
    assert int8.to_json()["claimed"]["certified"] is True
    assert "certified" not in int8.to_json()["metadata"]
    assert manifest.artifacts[0].certification.reasons == ("not evaluated",)
    config = json.loads((workspace / "config.json").read_text())
    assert not {"certified", "quant_recall_delta", "_onnx_quantization"} & config.keys()
    assert Difference("certified", True, None) in differences
    assert ("claimed-report", "recall_delta.json") in [(entry.role, entry.path) for entry in manifest.files]


@pytest.mark.parametrize(
    ("file", "claims"),
    [
        (FILENAME, {"certified": False, "quant_recall_delta": 0.0769}),
        (FILENAME, {"artifacts.2.metadata.certified": False}),
        (FILENAME, {"quantization.certified": False}),
        (FILENAME, {"quant_recall_delta": 0.0769}),
        ("recall_delta.json", {"certified": False}),
        ("config.json", {"certified": False}),
    ],
)
def test_a_claimed_refusal_stays_one(
    export: Path, workspace: Path, file: str, claims: dict[str, object]
) -> None:
    """Without evidence a claim is believed against an artifact, and never for it, wherever it is made."""
    change(export, claims, file)
    manifest = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0])
    states = {artifact.path: artifact.certification.state for artifact in manifest.artifacts}
    assert states.pop("model_int8.onnx") == "refused"
    assert set(states.values()) == {"unknown"}
    (reason,) = manifest.artifacts[2].certification.reasons
    assert "as claimed by the source" in reason
    assert manifest.artifacts[2].certification.evidence is None


def dangling(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.input).input[0] = "nothing"


def opset(version: int) -> Callable[[onnx.ModelProto], None]:
    def set_version(model: onnx.ModelProto) -> None:
        for item in model.opset_import:
            if item.domain == "":
                item.version = version

    return set_version


def static_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def dynamic_labels(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_param = "labels"


def other_axis(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "length"


def unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[-1].op_type = "Softmaxx"


UNFIT: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "a dangling input": (dangling, "is not valid"),
    "an operator that nobody knows": (unknown_operator, "is not valid ONNX"),
    "opset 17": (opset(17), "opset 17"),
    "opset 19": (opset(19), "opset 19"),
    "a static batch": (static_batch, "is int64[1, sequence], expected"),
    "a dynamic number of labels": (dynamic_labels, "float32[batch, sequence, labels], expected"),
    "another name of an axis": (other_axis, "is int64[batch, length], expected"),
}


@pytest.mark.parametrize("case", UNFIT)
@pytest.mark.parametrize("file", sampled(["model.onnx", "model_fp16.onnx", "model_int8.onnx"], 3))
def test_import_refuses_the_files_that_add_refuses(
    export: Path, workspace: Path, tmp_path: Path, file: str, case: str
) -> None:
    """One judgement for both: each of these once came in as `onnx-android`."""
    spoil, message = UNFIT[case]
    model = onnx.load(export / file)
    spoil(model)
    onnx.save(model, export / file)
    refused = refusal(export, workspace)
    assert file in refused.message
    if file != "model_int8.onnx":
        assert message in refused.message
        with pytest.raises(InputError) as caught:
            adopt_files([export / file], tmp_path / "added", name="acme/bert", format="onnx-android")
        assert caught.value.message == refused.message


def test_differences_name_field_claim_and_fact(export: Path, workspace: Path) -> None:
    change(
        export,
        {
            "family": "roberta",
            "max_sequence_length": 512,
            "artifacts.0.precision": "float16",
            "artifacts.0.metadata.opset": 17,
            "artifacts.1.metadata.outputs.0.shape.2.value": 9,
        },
    )
    found = {item.path: item for item in adopt_directory(export, workspace, name="acme/bert")[1]}
    assert set(found) == {
        "family",
        "max_sequence_length",
        "artifacts.0.precision",
        "artifacts.0.metadata.opset",
        "artifacts.1.metadata.outputs",
        "artifacts.3.metadata.operators",
        "certified",
        "source_model_id",
    }
    assert (found["family"].claimed, found["family"].actual) == ("roberta", "bert")
    assert (found["artifacts.0.metadata.opset"].claimed, found["artifacts.0.metadata.opset"].actual) == (
        17,
        18,
    )
    assert "Erf" in found["artifacts.3.metadata.operators"].claimed
    assert "Erf" not in found["artifacts.3.metadata.operators"].actual


def test_no_path_of_the_other_machine_is_published(export: Path, workspace: Path) -> None:
    draft, _ = adopt_directory(export, workspace, name="acme/bert")
    manifest = manifest_of(draft)
    assert b"/home/jane" in (export / FILENAME).read_bytes()
    assert b"/home/jane" not in manifest.encode()
    for path in draft.paths():
        assert b"/home/jane" not in (workspace / path).read_bytes(), path
    assert manifest.recipe is not None
    assert manifest.recipe.steps[0].result["scrubbed"] == [
        "config.json:_name_or_path",
        "config.json:_onnx_quantization",
        "config.json:certified",
        "config.json:quant_recall_delta",
        f"{CONFIG}:comments",
        "openmed-onnx.json:source_model_id",
        "recall_delta.json:source_model_id",
    ]


def test_the_directory_is_not_changed(export: Path, workspace: Path) -> None:
    before = {path.name: path.read_bytes() for path in export.iterdir()}
    adopt_directory(export, workspace, name="acme/bert")
    assert {path.name: path.read_bytes() for path in export.iterdir()} == before


def test_moments_are_left_out_and_unknown_fields_kept(export: Path, workspace: Path) -> None:
    change(export, {"generated_at": "2026-01-01T00:00:00Z", "site": {"ward": 3}})
    value = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0]).to_json()
    assert "generated_at" not in value
    assert value["site"] == {"ward": 3}


def test_an_export_without_evaluation(export: Path, workspace: Path) -> None:
    keys = ("certified", "quant_recall_delta", "certification", "quantization", "recall_delta_path")
    change(export, dict.fromkeys(keys))
    change(export, {"artifacts.2.metadata": None})
    (export / "recall_delta.json").unlink()
    manifest = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0])
    assert {artifact.certification.reasons for artifact in manifest.artifacts} == {("not evaluated",)}


def test_a_version_2_manifest_does_not_publish_paths_of_a_machine(
    export: Path, workspace: Path, tmp_path: Path
) -> None:
    draft, _ = adopt_directory(export, tmp_path / "first", name="acme/bert")
    (export / FILENAME).write_bytes(manifest_of(draft).encode())
    with pytest.raises(
        InputError, match=r"config\.json:\S+ names a path of a machine, which is not published"
    ):
        adopt_directory(export, workspace, name="acme/bert")


@pytest.mark.parametrize(
    ("file", "role"),
    [
        ("model_fp16.onnx", "onnx-android artifact"),
        ("model.ort", "ort-android artifact"),
        (CONFIG, "operator config"),
        ("recall_delta.json", "report"),
        ("config.json", "config"),
        ("id2label.json", "labels"),
        ("tokenizer.json", "tokenizer file"),
    ],
)
def test_a_missing_file_is_refused(export: Path, workspace: Path, file: str, role: str) -> None:
    (export / file).unlink()
    assert refusal(export, workspace).message == f"the manifest names the {role} {file}, which is missing"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../model.onnx", "a/../../b", "C:\\model.onnx", "", ".", "a\0b", ".."]
)
@pytest.mark.parametrize("field", ["artifacts.0.path", "config_path", "artifacts.3.metadata.op_config_path"])
def test_paths_outside_are_refused(export: Path, workspace: Path, field: str, path: str) -> None:
    change(export, {field: path})
    assert "that cannot be in its directory" in refusal(export, workspace).message


def test_two_exports_in_one_directory(export: Path, workspace: Path) -> None:
    """What the converter leaves when it is run again for another model: model.ort and the INT8 are of the first."""
    shutil.copytree(FIXTURES / "distilbert-over-bert", export, dirs_exist_ok=True)
    error = refusal(export, workspace)
    assert "mixes files of two exports" in error.hint


def test_a_report_about_another_model(export: Path, workspace: Path) -> None:
    shutil.copytree(FIXTURES / "distilbert-over-bert", export, dirs_exist_ok=True)
    for stale in ("model.ort", CONFIG, "model_int8.onnx"):
        (export / stale).unlink()
    assert (
        refusal(export, workspace).message
        == "recall_delta.json is about another model than openmed-onnx.json"
    )
    (export / "recall_delta.json").unlink()
    change(export, {"tokenizer.files": ["tokenizer.json", "tokenizer_config.json"]})
    draft, _ = adopt_directory(export, workspace, name="acme/distilbert")
    assert manifest_of(draft).family == "distilbert"


def nudge(path: Path, name: str, by: float) -> None:
    """Add `by` to one element of an initializer."""
    model = onnx.load(path)
    tensor = next(item for item in model.graph.initializer if item.name.endswith(name))
    value = numpy_helper.to_array(tensor).copy()
    value.flat[3] += np.asarray(by, value.dtype)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("file", "tensor", "by"),
    [
        ("model_fp16.onnx", "word_embeddings.weight", 0.01),
        ("model_fp16.onnx", "classifier.bias", 0.001),
        ("model_int8.onnx", "_quantized", 3),
        ("model_int8.onnx", "LayerNorm.bias", 1e-4),
        ("model.onnx", "word_embeddings.weight", 0.01),
    ],
)
def test_weights_of_another_export(export: Path, workspace: Path, file: str, tensor: str, by: float) -> None:
    nudge(export / file, tensor, by)
    error = refusal(export, workspace)
    assert "is not a conversion of model.onnx: their weights differ in" in error.message


def test_the_ort_file_of_another_checkpoint(export: Path, workspace: Path) -> None:
    """One architecture, other weights: only the weights can tell."""
    for file in ("model.onnx", "model_fp16.onnx"):
        nudge(export / file, "position_embeddings.weight", 0.25)
    (export / "model_int8.onnx").unlink()
    value = json.loads((export / FILENAME).read_text())
    del value["artifacts"][2]
    (export / FILENAME).write_text(json.dumps(value))
    error = refusal(export, workspace)
    assert error.message.startswith("model.ort is not a conversion of model.onnx: their weights differ in")
    assert error.message.endswith("position_embeddings.weight")


def test_models_without_a_common_weight(export: Path, workspace: Path) -> None:
    model = onnx.load(export / "model_fp16.onnx")
    renamed = {tensor.name: f"renamed_{tensor.name}" for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.name = renamed[tensor.name]
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    onnx.save(model, export / "model_fp16.onnx")
    assert (
        refusal(export, workspace).message == "no weight of model_fp16.onnx has a counterpart in model.onnx"
    )


def test_files_that_are_not_named_are_left_out_and_told(export: Path, workspace: Path) -> None:
    (export / "README.md").write_text("mine")
    shutil.copy(export / "model.onnx", export / "spare.onnx")
    draft, differences = adopt_directory(export, workspace, name="acme/bert")
    assert {item.path for item in differences if item.claimed is None} == {"README.md", "spare.onnx"}
    assert not {"README.md", "spare.onnx"} & set(draft.paths())


def test_tokenizer_files_that_are_none(export: Path, workspace: Path) -> None:
    """A second export into one directory lists the first one's manifest and report as tokenizer files."""
    files = ["tokenizer.json", "tokenizer_config.json", "openmed-onnx.json", "recall_delta.json"]
    change(export, {"tokenizer.files": files})
    draft, differences = adopt_directory(export, workspace, name="acme/bert")
    assert {"tokenizer.files"} <= {item.path for item in differences}
    assert [file.path for file in draft.companions if file.role == "tokenizer"] == files[:2]


def test_a_directory_artifact_lists_its_files(export: Path, workspace: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    bundle = export / "transformersjs"
    (bundle / "onnx").mkdir(parents=True)
    shutil.copy(export / "model.onnx", bundle / "onnx/model.onnx")
    for file in ("config.json", "tokenizer.json"):
        shutil.copy(export / file, bundle / file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(
            export / "model.onnx",
            bundle / "onnx/model_quantized.onnx",
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    value = json.loads((export / FILENAME).read_text())
    value["artifacts"].append({"format": "transformersjs", "path": "transformersjs", "precision": "int8"})
    value["formats"].append("transformersjs")
    (export / FILENAME).write_text(json.dumps(value))
    artifact = manifest_of(adopt_directory(export, workspace, name="acme/bert")[0]).artifacts[-1]
    assert (artifact.format, artifact.path) == ("transformersjs", "transformersjs/onnx/model_quantized.onnx")
    assert artifact.precision == "int8"
    assert [(entry.role, entry.path) for entry in artifact.files] == [
        ("config", "transformersjs/config.json"),
        ("model", "transformersjs/onnx/model.onnx"),
        ("tokenizer", "transformersjs/tokenizer.json"),
    ]
    assert "certified" not in json.loads((workspace / "transformersjs/config.json").read_text())


def test_openvino_comes_with_its_weights_and_without_claims(export: Path, workspace: Path) -> None:
    (export / "openvino").mkdir()
    (export / "openvino/model.xml").write_text("<net/>")
    value = json.loads((export / FILENAME).read_text())
    claim = {
        "format": "openvino-ir",
        "path": "openvino/model.xml",
        "precision": "float32",
        "metadata": {"opset": 15},
    }
    value["artifacts"].append(claim)
    (export / FILENAME).write_text(json.dumps(value))
    assert "OpenVINO weight file openvino/model.bin, which is missing" in refusal(export, workspace).message
    (export / "openvino/model.bin").write_bytes(bytes(64))
    draft, differences = adopt_directory(export, workspace, name="acme/bert")
    artifact = manifest_of(draft).artifacts[-1]
    assert [(entry.role, entry.path) for entry in artifact.files] == [("weights", "openvino/model.bin")]
    assert artifact.metadata.opset is None
    assert Difference("artifacts.4.metadata", "openvino-ir", None) in differences


def test_a_segmenter_is_measured_again(export: Path, workspace: Path) -> None:
    (export / "seg.bin").write_bytes(b"abc")
    right = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
    entry = {"path": "seg.bin", "role": "model", "size_bytes": 3, "sha256": f"sha256:{'0' * 64}"}
    change(export, {"segmenter": {"id": "seg", "resource_files": [entry]}})
    draft, differences = adopt_directory(export, workspace, name="acme/bert")
    assert Difference("segmenter.resource_files.0.sha256", entry["sha256"], right) in differences
    assert draft.fields["segmenter"]["resource_files"][0]["sha256"] == right
    assert ("segmenter", "seg.bin") in [(file.role, file.path) for file in draft.companions]


def test_a_half_precision_overflow_is_a_clip() -> None:
    parent = {"w": np.array([[1e6, -1e6, np.nan, 0.1]], np.float32)}
    other = {"w": np.array([[65504, -65504, np.nan, 0.1]], np.float16)}
    assert compare_weights(parent, other, "b", "a") == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_for_each_channel_of_either_axis(axis: int) -> None:
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


def test_a_link_out_of_the_directory_is_refused(export: Path, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"{}")
    (export / "tokenizer.json").unlink()
    (export / "tokenizer.json").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="leads out of the directory"):
        adopt_directory(export, workspace, name="acme/tiny")


def test_an_artifact_that_is_no_model_is_refused(export: Path, workspace: Path) -> None:
    change(export, {"artifacts.0.path": "config.json"})
    with pytest.raises(InputError, match="is not a model file"):
        adopt_directory(export, workspace, name="acme/tiny")
