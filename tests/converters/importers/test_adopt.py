"""`reg add`: model files of any origin, with the companions beside them."""

import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from support.registries.drafts import manifest_of

from onnxreg.converters.importers.adopt import adopt_files
from onnxreg.converters.runtime import run
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
CONFIG = "model.required_operators_and_types.config"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a real export, since what is adopted may be hard-linked."""
    return Path(shutil.copytree(BERT, tmp_path_factory.mktemp("export") / "bert"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user, with one classifier of two classes."""
    path = tmp_path / "mine"
    path.mkdir()
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[batch, 2] x) => (float[batch, 2] logits) <float[2, 2] w = {1.0, 0.0, 0.0, 1.0}>
        { logits = MatMul(x, w) }"""
    )
    onnx.save(model, path / "model.onnx")
    return path


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_one_model_alone(folder: Path, workspace: Path) -> None:
    manifest = manifest_of(adopt_files([folder / "model.onnx"], workspace, name="acme/tiny"))
    (artifact,) = manifest.artifacts
    assert (artifact.format, artifact.precision, artifact.path) == ("onnx", "float32", "model.onnx")
    assert artifact.metadata.operators == ("MatMul",)
    assert artifact.certification.state == "unknown"
    assert manifest.files == ()
    assert manifest.labels is None


def test_everything_of_a_real_export(bert: Path, workspace: Path) -> None:
    files = [path for path in bert.iterdir() if path.name != "openmed-onnx.json"]
    manifest = manifest_of(adopt_files(files, workspace, name="acme/bert"))
    by_path = {artifact.path: artifact for artifact in manifest.artifacts}
    assert {path: (a.format, a.precision) for path, a in by_path.items()} == {
        "model.onnx": ("onnx", "float32"),
        "model_fp16.onnx": ("onnx", "float16"),
        "model_int8.onnx": ("onnx-int8", "int8"),
        "model.ort": ("ort", "float32"),
    }
    assert [(entry.role, entry.path) for entry in by_path["model.ort"].files] == [("operator-config", CONFIG)]
    assert by_path["model.ort"].ort_format == 6
    quantization = by_path["model_int8.onnx"].quantization
    assert quantization is not None and quantization.measured.weights_quantized == 7
    assert {entry.path: entry.role for entry in manifest.files} == {
        "config.json": "config",
        "id2label.json": "labels",
        "recall_delta.json": "report",
        "tokenizer.json": "tokenizer",
        "tokenizer_config.json": "tokenizer",
    }
    assert manifest.labels == ("O", "B-PERSON", "I-PERSON", "B-DATE", "I-DATE")
    assert (manifest.task, manifest.family) == ("token-classification", "bert")
    assert manifest.max_sequence_length == 32


def test_no_path_of_this_machine_is_published(bert: Path, workspace: Path) -> None:
    files = [path for path in bert.iterdir() if path.name != "openmed-onnx.json"]
    draft = adopt_files(files, workspace, name="acme/bert")
    for path in draft.paths():
        assert b"/home/jane" not in (workspace / path).read_bytes(), path
    recipe = manifest_of(draft).recipe
    assert recipe is not None
    assert recipe.steps[0].result["scrubbed"] == [
        "config.json:_name_or_path",
        f"{CONFIG}:comments",
        "recall_delta.json:source_model_id",
    ]
    assert json.loads((workspace / "config.json").read_text())["_name_or_path"] == "acme/bert"
    assert b"/home/jane" in (bert / "config.json").read_bytes()


def test_the_order_of_the_files_is_kept_for_artifacts_only(
    folder: Path, workspace: Path, tmp_path: Path
) -> None:
    labels = write_json(folder / "id2label.json", {"0": "no", "1": "yes"})
    first = manifest_of(adopt_files([folder / "model.onnx", labels], workspace, name="a"))
    again = tmp_path / "again"
    again.mkdir()
    assert (
        manifest_of(adopt_files([labels, folder / "model.onnx"], again, name="a")).encode() == first.encode()
    )


def test_bytes_are_taken_as_they_are(folder: Path, workspace: Path) -> None:
    adopt_files([folder / "model.onnx"], workspace, name="a")
    assert (workspace / "model.onnx").read_bytes() == (folder / "model.onnx").read_bytes()


@pytest.mark.parametrize("named", [False, True])
def test_external_data_comes_along(folder: Path, workspace: Path, named: bool) -> None:
    model = onnx.load(folder / "model.onnx")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"))
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    files = [folder / "model.onnx", *([folder / "w.bin"] if named else [])]
    manifest = manifest_of(adopt_files(files, workspace, name="a"))
    assert [(entry.role, entry.path) for entry in manifest.artifacts[0].files] == [("external-data", "w.bin")]
    assert manifest.files == ()


def test_a_workspace_that_is_not_empty_never_writes_through_a_link(folder: Path, workspace: Path) -> None:
    other = folder / "other.onnx"
    other.write_bytes(b"somebody's bytes")
    (workspace / "model.onnx").hardlink_to(other)
    with pytest.raises(HostError, match=r"model\.onnx cannot be placed in the workspace: File exists"):
        adopt_files([folder / "model.onnx"], workspace, name="a")
    assert other.read_bytes() == b"somebody's bytes"


def test_two_models_of_one_name_are_refused(folder: Path, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    with pytest.raises(InputError, match=r"two files are called model\.onnx"):
        adopt_files([folder / "model.onnx", other / "model.onnx"], workspace, name="a")


def test_a_file_given_twice_counts_once(folder: Path, workspace: Path) -> None:
    draft = adopt_files([folder / "model.onnx", folder / "model.onnx"], workspace, name="a")
    assert len(draft.artifacts) == 1


def test_names_that_a_manifest_cannot_hold_are_refused(folder: Path, workspace: Path) -> None:
    for name in ("nul.onnx", "a:b.onnx", "Model.onnx"):
        shutil.copy(folder / "model.onnx", folder / name)
    with pytest.raises(InputError, match=r"nul\.onnx is a name that a manifest cannot hold"):
        adopt_files([folder / "nul.onnx"], workspace, name="a")
    with pytest.raises(InputError, match=r"a:b\.onnx is a name that a manifest cannot hold"):
        adopt_files([folder / "a:b.onnx"], workspace, name="a")
    with pytest.raises(InputError, match="is a name that a manifest cannot hold: paths collide"):
        adopt_files([folder / "model.onnx", folder / "Model.onnx"], workspace, name="a")


def test_labels_that_do_not_match_the_logits(folder: Path, workspace: Path) -> None:
    labels = write_json(folder / "id2label.json", {"0": "a", "1": "b", "2": "c"})
    with pytest.raises(InputError, match=r"model\.onnx has 2 classes, but the labels beside it are 3"):
        adopt_files([folder / "model.onnx", labels], workspace, name="a")


def test_labels_of_a_config_alone(folder: Path, workspace: Path) -> None:
    config = {"architectures": ["XForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    draft = adopt_files(
        [folder / "model.onnx", write_json(folder / "config.json", config)], workspace, name="a"
    )
    manifest = manifest_of(draft)
    assert (manifest.labels, manifest.task) == (("no", "yes"), "text-classification")
    assert (manifest.config_path, manifest.label_map_path) == ("config.json", None)


def test_default_labels_of_another_task_are_none(folder: Path, workspace: Path) -> None:
    config = {"architectures": ["XForCausalLM"], "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}
    draft = adopt_files(
        [folder / "model.onnx", write_json(folder / "config.json", config)], workspace, name="a"
    )
    assert manifest_of(draft).labels is None


@pytest.mark.parametrize("value", [{}, [], {"0": 1}, {"1": "a"}, {"0": "a", "2": "b"}, {"00": "a"}, "x"])
def test_malformed_label_maps(folder: Path, workspace: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"id2label\.json is not a label map"):
        adopt_files([folder / "model.onnx", write_json(folder / "id2label.json", value)], workspace, name="a")


def test_two_label_maps_that_disagree(folder: Path, workspace: Path) -> None:
    config = {"architectures": ["XForTokenClassification"], "id2label": {"0": "O", "1": "B-X"}}
    files = [
        folder / "model.onnx",
        write_json(folder / "config.json", config),
        write_json(folder / "id2label.json", {"0": "O", "1": "B-Y"}),
    ]
    with pytest.raises(InputError, match=r"id2label\.json and config\.json name different labels"):
        adopt_files(files, workspace, name="a")


def test_json_that_is_none(folder: Path, workspace: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json is not valid JSON"):
        adopt_files([folder / "model.onnx", folder / "config.json"], workspace, name="a")


def test_integers_beyond_64_bits_survive_scrubbing(folder: Path, workspace: Path) -> None:
    huge = 1000000000000000019884624838656
    path = write_json(
        folder / "tokenizer_config.json", {"model_max_length": huge, "name_or_path": "/home/jane/model"}
    )
    adopt_files([folder / "model.onnx", path], workspace, name="acme/a")
    text = json.loads((workspace / "tokenizer_config.json").read_text())
    assert text == {"model_max_length": huge, "name_or_path": "acme/a"}


class Runs:
    """An object whose pickle makes a directory when it is loaded."""

    def __reduce__(self) -> object:
        return os.mkdir, ("ran",)


def npy(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


OBJECTS = np.array([Runs()], object)
RECORDS = np.array([(1, Runs())], [("a", "<f4"), ("b", object)])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((f"protocol{n}.dat", pickle.dumps(Runs(), n)) for n in range(6)),
        *((f"junk{n}.dat", pickle.dumps(Runs(), n) + b"\xffjunk") for n in range(6)),
        ("old.dat", b"cos\nmkdir\n(S'ran'\ntR."),
        ("inst.dat", b"(S'ran'\nios\nmkdir\n."),
        ("class.dat", b"cthis\ns\n."),
        ("data.dat", pickle.dumps([1, 2], 2) + b"more"),
        ("objects.npy", npy(OBJECTS)),
        ("header.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': eval(1) "),
        ("objects.npz", zipped(**{"x.npy": npy(OBJECTS)})),
        ("second.npz", zipped(**{"a.npy": npy(np.zeros(3)), "x": npy(OBJECTS, (2, 0))})),
        ("records.npz", zipped(**{"x.npy": npy(RECORDS, (3, 0))})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pickles_are_found_by_their_bytes(folder: Path, workspace: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{re.escape(name)} is a pickle"):
        adopt_files([folder / "model.onnx", folder / name], workspace, name="acme/tiny")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("text.dat", b"common words\nof a language\n(and more)\nRest.\n"),
        ("import.dat", b"(i) first item\nsecond item\n"),
        ("base.dat", b"(base words\n."),
        ("point.dat", b"."),
        ("numbers.dat", b"I1\n."),
        ("empty.dat", b""),
        ("arrays.npz", zipped(**{"x.npy": npy(np.zeros(3)), "names.npy": npy(np.array(["O", "a"]))})),
        ("array.npy", npy(np.zeros((2, 2), "<f2"), (2, 0))),
        ("record.npy", npy(np.array([(1.0,)], [("O", "<f4")]))),
        ("weights.safetensors", (8).to_bytes(8, "little") + b"{}      "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_bytes_are_no_pickle(folder: Path, workspace: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    manifest = manifest_of(adopt_files([folder / "model.onnx", folder / name], workspace, name="acme/tiny"))
    assert [file.path for file in manifest.files] == [name]


def test_a_pointer_in_place_of_weights_is_named(folder: Path, workspace: Path) -> None:
    (folder / "model.ort").write_bytes(POINTER)
    with pytest.raises(InputError, match=r"model\.ort is a Git LFS pointer"):
        adopt_files([folder / "model.ort"], workspace, name="acme/tiny")
    model = onnx.load(folder / "model.onnx")
    weight = numpy_helper.from_array(np.zeros((2, 200), np.float32), "w")
    model.graph.initializer[0].CopyFrom(weight)
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(model, folder / "model.onnx", **options)
    (folder / "weights.bin").write_bytes(POINTER)
    with pytest.raises(InputError, match=r"weights\.bin is a Git LFS pointer"):
        adopt_files([folder / "model.onnx"], workspace, name="acme/tiny")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400000\n"
PAGE = b"\xef\xbb\xbf\n <!DOCTYPE html><html><title>Sign in</title></html>"


@pytest.mark.parametrize("data", [POINTER, PAGE], ids=["pointer", "page"])
@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "config.json", "id2label.json", "vocab.txt", "spiece.model", "data.bin", "x.jinja"],
)
def test_what_stands_for_a_file_is_not_the_file(
    folder: Path, workspace: Path, name: str, data: bytes
) -> None:
    (folder / name).write_bytes(data)
    if name == "x.jinja" and data == PAGE:
        adopt_files([folder / "model.onnx", folder / name], workspace, name="acme/tiny")
        return
    with pytest.raises(InputError, match=re.escape(name)):
        adopt_files([folder / "model.onnx", folder / name], workspace, name="acme/tiny")


@pytest.mark.parametrize("name", ["model.pkl", "labels.bin", "net.joblib", "head.PT"])
def test_pickles_are_refused(folder: Path, workspace: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(InputError, match=rf"{name} is a pickle"):
        adopt_files([folder / "model.onnx", folder / name], workspace, name="a")


def test_a_checkpoint_of_torch_is_refused_whatever_it_is_called(folder: Path, workspace: Path) -> None:
    import zipfile

    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    with pytest.raises(InputError, match=r"pytorch_model\.bin is a pickle"):
        adopt_files([folder / "model.onnx", folder / "pytorch_model.bin"], workspace, name="a")


def test_a_manifest_is_no_companion(bert: Path, workspace: Path) -> None:
    with pytest.raises(InputError, match="is a manifest") as caught:
        adopt_files([bert / "model.onnx", bert / "openmed-onnx.json"], workspace, name="a")
    assert "reg import" in caught.value.hint


def test_no_model_among_the_files(bert: Path, workspace: Path) -> None:
    with pytest.raises(InputError, match=r"no \.onnx or \.ort file"):
        adopt_files([bert / "config.json"], workspace, name="a")


def test_a_missing_file_is_named(folder: Path, workspace: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file .*gone\.onnx"):
        adopt_files([folder / "gone.onnx"], workspace, name="a")
    assert list(workspace.iterdir()) == []
    with pytest.raises(NotFoundError, match=r"there is no file .*gone\.json"):
        adopt_files([folder / "model.onnx", folder / "gone.json"], workspace, name="a")


def test_a_stated_format_and_precision(folder: Path, workspace: Path) -> None:
    draft = adopt_files([folder / "model.onnx"], workspace, name="a", format="webgpu", precision="float32")
    artifact = manifest_of(draft).artifacts[0]
    assert (artifact.format, artifact.precision) == ("webgpu", "float32")
    assert draft.fields["recipe"]["steps"][0]["params"] == {"format": "webgpu", "precision": "float32"}


@pytest.mark.parametrize(
    ("file", "format", "precision", "message"),
    [
        ("model.onnx", "onnx-int8", None, r"model\.onnx is not onnx-int8"),
        ("model.onnx", "ort-android", None, r"model\.onnx is not ort-android"),
        ("model.ort", "onnx", None, r"model\.ort is not onnx"),
        ("model.onnx", None, "int8", r"model\.onnx has float32 weights, not int8"),
        ("model_int8.onnx", None, "float32", r"model_int8\.onnx has int8 weights, not float32"),
    ],
)
def test_wrong_statements_are_refused(
    bert: Path, workspace: Path, file: str, format: str | None, precision: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        adopt_files([bert / file], workspace, name="a", format=format, precision=precision)


def test_android_formats_are_checked_against_their_contract(
    bert: Path, folder: Path, workspace: Path
) -> None:
    draft = adopt_files([bert / "model.onnx"], workspace, name="a", format="onnx-android")
    assert manifest_of(draft).artifacts[0].metadata.unsupported_ops == ("GreaterOrEqual", "Flatten", "IsNaN")
    with pytest.raises(InputError, match=r"model\.onnx: inputs are x, expected input_ids"):
        adopt_files([folder / "model.onnx"], folder / "workspace", name="a", format="onnx-android")


def golden_vectors(model: Path, logits: float = 3.0) -> Path:
    """Vectors of `folder`'s model, which gives back what it gets."""
    inputs = {"x": {"dtype": "float32", "shape": [1, 2], "data": [3.0, 4.0]}}
    outputs = {"logits": {"dtype": "float32", "shape": [1, 2], "data": [logits, 4.0], "atol": 0.001}}
    value = {"format": "onnxreg-golden", "format_version": 1}
    cases = [{"name": "one", "inputs": inputs, "outputs": outputs}]
    return write_json(model.with_name(f"{model.name}.golden.json"), {**value, "cases": cases})


def test_golden_vectors_belong_to_their_model(folder: Path, workspace: Path) -> None:
    model = folder / "model.onnx"
    draft = adopt_files([golden_vectors(model), model], workspace, name="mine/x")
    (artifact,) = draft.artifacts
    assert [(file.role, file.path) for file in artifact.sidecars] == [("golden", "model.onnx.golden.json")]
    assert draft.companions == ()
    vectors = (workspace / "model.onnx.golden.json").read_bytes()
    assert all(each.passed for each in run.self_test(workspace / "model.onnx", vectors, "vectors"))


def test_golden_vectors_that_are_none_are_refused(folder: Path, workspace: Path) -> None:
    path = write_json(folder / "model.onnx.golden.json", {"format": "something else"})
    with pytest.raises(InputError, match="no golden vectors"):
        adopt_files([folder / "model.onnx", path], workspace, name="mine/x")


def test_golden_vectors_of_no_model_are_a_companion(folder: Path, workspace: Path) -> None:
    other = golden_vectors(folder / "other.onnx")
    draft = adopt_files([folder / "model.onnx", other], workspace, name="mine/x")
    assert [file.role for file in draft.companions] == ["other"]


def test_an_operator_config_without_an_ort_file(bert: Path, workspace: Path) -> None:
    with pytest.raises(InputError, match=r"cannot tell which \.ort file"):
        adopt_files([bert / "model.onnx", bert / CONFIG], workspace, name="a")


def by_blocks(path: Path, bits: int, **attributes: int) -> Path:
    """A graph of one `MatMulNBits`."""
    node = helper.make_node(
        "MatMulNBits",
        ["x", "q", "s"],
        ["y"],
        domain="com.microsoft",
        K=64,
        N=4,
        bits=bits,
        block_size=32,
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(np.zeros((4, 2, 4 * bits), np.uint8), "q"),
            numpy_helper.from_array(np.ones(8, np.float32), "s"),
        ],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports), path)
    return path


@pytest.mark.parametrize(
    ("bits", "attributes", "stated", "expected"),
    [
        (4, {}, None, ("onnx-int4", "int4")),
        (8, {}, None, ("onnx-int8", "int8-weights")),
        (8, {"accuracy_level": 1}, None, ("onnx-int8", "int8-weights")),
        (8, {"accuracy_level": 4}, None, ("onnx-int8", "int8")),
        (8, {}, "int8-weights", ("onnx-int8", "int8-weights")),
        (8, {}, "int8", ("onnx-int8", "int8")),
    ],
)
def test_weights_by_blocks_name_the_format(
    folder: Path,
    workspace: Path,
    bits: int,
    attributes: dict[str, int],
    stated: str | None,
    expected: tuple[str, str],
) -> None:
    path = by_blocks(folder / "blocks.onnx", bits, **attributes)
    draft = adopt_files([path], workspace, name="a", precision=stated)
    artifact = manifest_of(draft).artifacts[0]
    assert (artifact.format, artifact.precision) == expected
    assert "MatMulNBits" in artifact.contrib


@pytest.mark.parametrize(
    ("attributes", "stated"), [({}, "int4"), ({}, "float32"), ({"accuracy_level": 4}, "int8-weights")]
)
def test_a_precision_that_8_bit_weights_contradict(
    folder: Path, workspace: Path, attributes: dict[str, int], stated: str
) -> None:
    path = by_blocks(folder / "blocks.onnx", 8, **attributes)
    with pytest.raises(InputError, match=f"weights, not {stated}"):
        adopt_files([path], workspace, name="a", precision=stated)


def test_external_data_is_never_fetched_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").symlink_to(tmp_path / "secret")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    model.graph.initializer.append(tensor)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with pytest.raises(InputError, match="leads out of its folder"):
        adopt_files([folder / "model.onnx"], workspace, name="acme/m", format=None, precision=None)


def test_no_profile_is_loaded_to_add_a_file() -> None:
    code = "import onnxreg.converters.importers.adopt, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("onnxreg.converters.")}
    assert "onnxreg.converters.importers.adopt" in loaded
    assert not {name for name in loaded if ".android." in name or ".recipes" in name}


@pytest.mark.parametrize(
    ("domain", "operator", "fits"),
    [("", "Softmaxx", False), ("", "FastGelu", False), ("", "Softmax", True), ("com.lab", "Softmaxx", True)],
)
def test_a_graph_that_nothing_can_run_is_refused(
    tmp_path: Path, workspace: Path, domain: str, operator: str, fits: bool
) -> None:
    """An operator of somebody's own domain is the business of who loads its library."""
    name = f"{domain}.{operator}" if domain else operator
    imports = '"" : 17' + (f', "{domain}" : 1' if domain else "")
    graph = f"g (float[1, 4] x) => (float[1, 4] y) {{ y = {name}(x) }}"
    onnx.save(parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {graph}"), tmp_path / "m.onnx")
    if fits:
        adopt_files([tmp_path / "m.onnx"], workspace, name="acme/m")
    else:
        with pytest.raises(InputError, match=rf"m\.onnx is not valid ONNX: No Op registered for {operator}"):
            adopt_files([tmp_path / "m.onnx"], workspace, name="acme/m")


def test_an_operator_of_onnx_runtime_alone_is_accepted(tmp_path: Path, workspace: Path) -> None:
    """Its own LayerNormalization has been in the plain domain since long before ONNX's, which came with opset 17."""
    graph = "g (float[1, 4] x, float[4] s) => (float[1, 4] y) { y = LayerNormalization(x, s) }"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 14]> {graph}'), tmp_path / "m.onnx")
    (artifact,) = manifest_of(adopt_files([tmp_path / "m.onnx"], workspace, name="acme/m")).artifacts
    assert artifact.metadata.operators == ("LayerNormalization",)
