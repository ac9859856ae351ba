"""`reg add`: model files of any origin, with the companions beside them."""

import io
import json
import os
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from support.registries.drafts import manifest_of

from onnxreg.converters.importers.adopt import adopt_files
from onnxreg.converters.runtime import golden
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


def test_an_operator_config_keeps_bytes_that_are_not_text(
    bert: Path, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / CONFIG).write_bytes(b"# /home/jane\nai.onnx;18;Add # \xff\xfe\n")
    adopt_files([bert / "model.ort", tmp_path / CONFIG], workspace, name="acme/bert")
    assert (workspace / CONFIG).read_bytes() == b"ai.onnx;18;Add # \xff\xfe\n"


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


def test_labels_of_a_config_alone(folder: Path, workspace: Path) -> None:
    config = {"architectures": ["XForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    draft = adopt_files(
        [folder / "model.onnx", write_json(folder / "config.json", config)], workspace, name="a"
    )
    manifest = manifest_of(draft)
    assert (manifest.labels, manifest.task) == (("no", "yes"), "text-classification")
    assert (manifest.config_path, manifest.label_map_path) == ("config.json", None)


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


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400000\n"
PAGE = b"\xef\xbb\xbf\n <!DOCTYPE html><html><title>Sign in</title></html>"


CLASSIFIER = {"architectures": ["XForTokenClassification"], "id2label": {"0": "O", "1": "B-X"}}
Files = dict[str, Any]
REFUSED: dict[str, tuple[Files, dict[str, Any], str]] = {
    "labels of other logits": ({"id2label.json": {"0": "a", "1": "b", "2": "c"}}, {}, "model.onnx has 2 classes, but the labels"),
    "no labels": ({"id2label.json": {}}, {}, "id2label.json is not a label map"),
    "a list of labels": ({"id2label.json": []}, {}, "id2label.json is not a label map"),
    "labels without 0": ({"id2label.json": {"1": "a"}}, {}, "id2label.json is not a label map"),
    "labels with a gap": ({"id2label.json": {"0": "a", "2": "b"}}, {}, "id2label.json is not a label map"),
    "two label maps": ({"config.json": CLASSIFIER, "id2label.json": {"0": "O", "1": "B-Y"}}, {}, "name different labels"),
    "no JSON": ({"config.json": b"{"}, {}, "config.json is not valid JSON"),
    "a pointer": ({"other.ort": POINTER}, {}, "other.ort is a Git LFS pointer"),
    "a pickle by its name": ({"net.PT": b""}, {}, "net.PT is a pickle"),
    "a checkpoint of torch": ({"pytorch_model.bin": zipped(**{"archive/data.pkl": b""})}, {}, "pytorch_model.bin is a pickle"),
    "a manifest": ({"openmed-onnx.json": {}}, {}, "is a manifest"),
    "a missing file": ({"gone.json": None}, {}, "there is no file"),
    "a name of Windows": ({"nul.txt": b"x"}, {}, "nul.txt is a name that a manifest cannot hold"),
    "names alike": ({"Model.ONNX": b"x"}, {}, "the suffix of"),
    "two of one name": ({"deep/model.onnx": b"x"}, {}, "cut short"),
    "another format": ({}, {"format": "onnx-int8"}, "model.onnx is not onnx-int8"),
    "another container": ({}, {"format": "ort-android"}, "model.onnx is not ort-android"),
    "another precision": ({}, {"precision": "int8"}, "model.onnx has float32 weights, not int8"),
    "no golden vectors": ({"model.onnx.golden.json": {"format": "x"}}, {}, "no golden vectors"),
    "a config of no .ort file": ({"model.ops.config": b"x"}, {}, "cannot tell which .ort file"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_do_not_fit_are_refused(folder: Path, workspace: Path, what: str) -> None:
    files, options, message = REFUSED[what]
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        elif content is not None:
            write_json(folder / name, content)
    given = [folder / "model.onnx", *(folder / name for name in files)]
    with pytest.raises((InputError, NotFoundError), match=re.escape(message)):
        adopt_files(given, workspace, name="a", **options)


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


def test_a_stated_format_and_precision(folder: Path, workspace: Path) -> None:
    draft = adopt_files([folder / "model.onnx"], workspace, name="a", format="webgpu", precision="float32")
    artifact = manifest_of(draft).artifacts[0]
    assert (artifact.format, artifact.precision) == ("webgpu", "float32")
    assert draft.fields["recipe"]["steps"][0]["params"] == {"format": "webgpu", "precision": "float32"}


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
    assert all(each.passed for each in golden.self_test(workspace / "model.onnx", vectors, "vectors"))


def test_golden_vectors_of_no_model_are_a_companion(folder: Path, workspace: Path) -> None:
    other = golden_vectors(folder / "other.onnx")
    draft = adopt_files([folder / "model.onnx", other], workspace, name="mine/x")
    assert [file.role for file in draft.companions] == ["other"]


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
