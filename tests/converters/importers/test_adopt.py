"""`reg add`: model files of any origin, with the companions beside them."""

import io
import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import graph
from support.registries.drafts import manifest_of

from onnxreg.converters.importers.adopt import adopt
from onnxreg.converters.runtime import golden
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError
from onnxreg.schema.manifest.draft import Draft

BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
CONFIG = "model.required_operators_and_types.config"
Add = Callable[..., Draft]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user, with one classifier of two classes, which gives back what it gets."""
    path = tmp_path / "mine"
    path.mkdir()
    sides = "float[batch, 2] x", "float[batch, 2] logits"
    onnx.save(graph("logits = MatMul(x, w)", *sides, w=np.eye(2, dtype=np.float32)), path / "model.onnx")
    return path


@pytest.fixture
def add(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Add:
    """Adopt the model with files beside it by name: bytes, values of JSON, or None if the file exists or is missing."""

    def run(files: Mapping[str, Any] = {}, model: str | None = "model.onnx", **options: Any) -> Draft:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            if content is not None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                (folder / name).write_bytes(data)
        paths = [folder / name for name in (*([model] if model else ()), *files)]
        return adopt(paths, tmp_path_factory.mktemp("workspace"), **{"name": "acme/tiny", **options})[0]

    return run


def text(draft: Draft, path: str) -> Any:
    return json.loads((draft.root / path).read_text())


def test_a_real_export_is_read_whole_and_no_path_of_its_machine_published(tmp_path, workspace):
    source = Path(shutil.copytree(BERT, tmp_path / "bert"))  # what is adopted may be hard-linked
    (source / "openmed-onnx.json").unlink()
    draft, _ = adopt(list(source.iterdir()), workspace, name="acme/bert")
    manifest = manifest_of(draft)
    by_path = {artifact.path: artifact for artifact in manifest.artifacts}
    assert {path: (a.format, a.precision) for path, a in by_path.items()} == {
        "model.onnx": ("onnx", "float32"),
        "model_fp16.onnx": ("onnx", "float16"),
        "model_int8.onnx": ("onnx-int8", "int8"),
        "model.ort": ("ort", "float32"),
    }
    assert [(entry.role, entry.path) for entry in by_path["model.ort"].files] == [("operator-config", CONFIG)]
    quantization = by_path["model_int8.onnx"].quantization
    assert quantization is not None and quantization.measured.weights_quantized == 7
    roles = {"config.json": "config", "id2label.json": "labels", "recall_delta.json": "report"}
    roles |= dict.fromkeys(("tokenizer.json", "tokenizer_config.json"), "tokenizer")
    assert {entry.path: entry.role for entry in manifest.files} == roles
    assert manifest.labels == ("O", "B-PERSON", "I-PERSON", "B-DATE", "I-DATE")
    assert (manifest.task, manifest.family) == ("token-classification", "bert")
    assert (manifest.max_sequence_length, by_path["model.ort"].ort_format) == (32, 6)
    for path in draft.paths():
        assert b"/home/jane" not in (workspace / path).read_bytes(), path
    scrubbed = ["config.json:_name_or_path", f"{CONFIG}:comments", "recall_delta.json:source_model_id"]
    assert manifest.recipe is not None and manifest.recipe.steps[0].result["scrubbed"] == scrubbed
    assert text(draft, "config.json")["_name_or_path"] == "acme/bert"
    assert b"/home/jane" in (source / "config.json").read_bytes()


def test_what_is_scrubbed_keeps_other_bytes_and_large_numbers(add, folder):
    shutil.copy(BERT / "model.ort", folder)
    draft = add({CONFIG: b"# /home/jane\nai.onnx;18;Add # \xff\xfe\n"}, "model.ort")
    assert (draft.root / CONFIG).read_bytes() == b"ai.onnx;18;Add # \xff\xfe\n"
    value = {"model_max_length": 1000000000000000019884624838656, "name_or_path": "/home/jane/model"}
    draft = add({"tokenizer_config.json": value})
    assert text(draft, "tokenizer_config.json") == value | {"name_or_path": "acme/tiny"}


def test_labels_of_a_map_or_a_config_and_the_order_of_companions_means_nothing(add):
    labels = {"0": "no", "1": "yes"}
    first = manifest_of(add({"id2label.json": labels}))
    last = manifest_of(add({"id2label.json": labels, "model.onnx": None}, None))
    assert first.encode() == last.encode()
    config = {"architectures": ["XForSequenceClassification"], "id2label": labels}
    manifest = manifest_of(add({"config.json": config}))
    assert (manifest.labels, manifest.task) == (("no", "yes"), "text-classification")
    assert (manifest.config_path, manifest.label_map_path) == ("config.json", None)


SOUND, IMAGE = {"sampling_rate": 16000}, {"size": 32}
WITH_PROCESSOR: list[tuple[str, Any, str | None]] = [
    ("Wav2Vec2ForSequenceClassification", SOUND, "audio-classification"),
    ("LlavaForConditionalGeneration", IMAGE, "image-text-to-text"),
    ("XForSequenceClassification", IMAGE, "text-classification"),
    ("XForSequenceClassification", None, "text-classification"),
    ("Wav2Vec2Model", SOUND, "audio-feature-extraction"),
    ("BertModel", None, None),
]


@pytest.mark.parametrize(("architecture", "processor", "task"), WITH_PROCESSOR)
def test_the_task_is_that_of_what_the_model_hears_or_sees(add, architecture, processor, task):
    files = {"config.json": {"architectures": [architecture]}, "tokenizer.json": {}}
    files |= {} if processor is None else {"preprocessor_config.json": processor}
    assert manifest_of(add(files)).task == task


ROBERTA = {"max_position_embeddings": 514, "pad_token_id": 1}
LENGTHS: list[tuple[Mapping[str, Any], Mapping[str, Any], int | None]] = [
    ({"max_position_embeddings": 512, "pad_token_id": 0}, {}, 512),
    (ROBERTA, {}, 512),
    (ROBERTA, {"tokenizer_config": {"model_max_length": 256}}, 256),
    (ROBERTA, {"tokenizer_config": {"model_max_length": 10**30}}, 512),
    (ROBERTA, {"sentence_bert_config": {"max_seq_length": 128}}, 128),
    (ROBERTA | {"max_sequence_length": 300}, {"tokenizer_config": {"model_max_length": 512}}, 300),
    ({}, {"tokenizer_config": {"model_max_length": 512}}, None),
]


@pytest.mark.parametrize(("config", "others", "length"), LENGTHS)
def test_the_longest_text_is_what_the_graph_and_the_tokenizer_take(add, config, others, length):
    manifest = manifest_of(
        add({"config.json": config, **{f"{name}.json": value for name, value in others.items()}})
    )
    assert manifest.max_sequence_length == length


@pytest.mark.parametrize("named", [False, True])
def test_external_data_comes_along_but_through_no_link(add, folder, named):
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    manifest = manifest_of(add({"w.bin": None} if named else {}))
    assert [(entry.role, entry.path) for entry in manifest.artifacts[0].files] == [("external-data", "w.bin")]
    assert manifest.files == ()
    (folder / "w.bin").rename(folder.parent / "secret")
    (folder / "w.bin").symlink_to(folder.parent / "secret")
    with pytest.raises(InputError, match="leads out of its folder"):
        add()


def test_a_workspace_that_is_not_empty_never_writes_through_a_link(folder, workspace):
    other = folder / "other.onnx"
    other.write_bytes(b"somebody's bytes")
    (workspace / "model.onnx").hardlink_to(other)
    with pytest.raises(HostError, match=r"model\.onnx cannot be placed in the workspace: File exists"):
        adopt([folder / "model.onnx"], workspace, name="a")
    assert other.read_bytes() == b"somebody's bytes"


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
PICKLES = {
    **{f"protocol{n}.dat": pickle.dumps(Runs(), n) for n in range(6)},
    **{f"junk{n}.dat": pickle.dumps(Runs(), n) + b"\xffjunk" for n in range(6)},
    "old.dat": b"cos\nmkdir\n(S'ran'\ntR.",
    "inst.dat": b"(S'ran'\nios\nmkdir\n.",
    "class.dat": b"cthis\ns\n.",
    "data.dat": pickle.dumps([1, 2], 2) + b"more",
    "objects.npy": npy(OBJECTS),
    "header.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': eval(1) ",
    "objects.npz": zipped(**{"x.npy": npy(OBJECTS)}),
    "second.npz": zipped(**{"a.npy": npy(np.zeros(3)), "x": npy(OBJECTS, (2, 0))}),
    "records.npz": zipped(**{"x.npy": npy(RECORDS, (3, 0))}),
    "net.PT": b"",
    "pytorch_model.bin": zipped(**{"archive/data.pkl": b""}),
}
PLAIN = {
    "text.dat": b"common words\nof a language\n(and more)\nRest.\n",
    "import.dat": b"(i) first item\nsecond item\n",
    "base.dat": b"(base words\n.",
    "point.dat": b".",
    "numbers.dat": b"I1\n.",
    "empty.dat": b"",
    "arrays.npz": zipped(**{"x.npy": npy(np.zeros(3)), "names.npy": npy(np.array(["O", "a"]))}),
    "array.npy": npy(np.zeros((2, 2), "<f2"), (2, 0)),
    "record.npy": npy(np.array([(1.0,)], [("O", "<f4")])),
    "weights.safetensors": (8).to_bytes(8, "little") + b"{}      ",
}


@pytest.mark.parametrize("name", [*PICKLES, *PLAIN])
def test_pickles_are_found_by_their_bytes_and_other_bytes_are_none(add, name):
    if name in PLAIN:
        assert [file.path for file in manifest_of(add({name: PLAIN[name]})).files] == [name]
        return
    with pytest.raises(InputError, match=rf"{re.escape(name)} is a pickle"):
        add({name: PICKLES[name]})


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400000\n"
PAGE = b"\xef\xbb\xbf\n <!DOCTYPE html><html><title>Sign in</title></html>"
CLASSIFIER = {"architectures": ["XForTokenClassification"], "id2label": {"0": "O", "1": "B-X"}}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "labels of other logits": ({"id2label.json": {"0": "a", "1": "b", "2": "c"}}, {}, "model.onnx has 2 classes, but the labels"),
    **{f"{labels} as labels": ({"id2label.json": labels}, {}, "id2label.json is not a label map")
       for labels in ({}, [], {"1": "a"}, {"0": "a", "2": "b"})},  # type: ignore[misc]
    "two label maps": ({"config.json": CLASSIFIER, "id2label.json": {"0": "O", "1": "B-Y"}}, {}, "name different labels"),
    "no JSON": ({"config.json": b"{"}, {}, "config.json is not valid JSON"),
    "a manifest": ({"openmed-onnx.json": {}}, {}, "is a manifest"),
    "a missing file": ({"gone.json": None}, {}, "there is no file"),
    "a name of Windows": ({"nul.txt": b"x"}, {}, "nul.txt is a name that a manifest cannot hold"),
    "names alike": ({"Model.ONNX": b"x"}, {}, "the suffix of"),
    "two of one name": ({"deep/model.onnx": b"x"}, {}, "cut short"),
    "another format": ({}, {"format": "onnx-int8"}, "model.onnx is not onnx-int8"),
    "another container": ({}, {"format": "ort-android"}, "model.onnx is not ort-android"),
    "another contract": ({}, {"format": "onnx-android"}, "model.onnx: inputs are x, expected input_ids"),
    "another precision": ({}, {"precision": "int8"}, "model.onnx has float32 weights, not int8"),
    "no golden vectors": ({"model.onnx.golden.json": {"format": "x"}}, {}, "no golden vectors"),
    "a config of no .ort file": ({"model.ops.config": b"x"}, {}, "cannot tell which .ort file"),
    **{f"{data[:7]!r} as {name}": ({name: data}, {}, name) for data in (POINTER, PAGE) for name in (
        "tokenizer.json", "config.json", "id2label.json", "vocab.txt", "spiece.model", "data.bin", "x.jinja", "other.ort",
    ) if (name, data) != ("x.jinja", PAGE)},
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_do_not_fit_are_refused(add, what):
    files, options, message = REFUSED[what]
    with pytest.raises((InputError, NotFoundError), match=re.escape(message)):
        add(files, **options)


def test_a_stated_format_is_kept_and_a_page_may_be_a_template(add, folder):
    draft = add({"x.jinja": PAGE}, format="webgpu", precision="float32")
    artifact = manifest_of(draft).artifacts[0]
    assert (artifact.format, artifact.precision) == ("webgpu", "float32")
    assert draft.fields["recipe"]["steps"][0]["params"] == {"format": "webgpu", "precision": "float32"}
    shutil.copy(BERT / "model.onnx", folder / "bert.onnx")
    draft = add(model="bert.onnx", format="onnx-android")
    assert manifest_of(draft).artifacts[0].metadata.unsupported_ops == ("GreaterOrEqual", "Flatten", "IsNaN")


@pytest.mark.parametrize("name", ["model.onnx", "other.onnx"])
def test_golden_vectors_belong_to_their_model_or_are_a_companion(add, name):
    side = {"dtype": "float32", "shape": [1, 2], "data": [3.0, 4.0]}
    cases = [{"name": "one", "inputs": {"x": side}, "outputs": {"logits": {**side, "atol": 0.001}}}]
    draft = add({f"{name}.golden.json": {"format": "onnxreg-golden", "format_version": 1, "cases": cases}})
    if name == "other.onnx":
        assert [file.role for file in draft.companions] == ["other"]
        return
    (artifact,) = draft.artifacts
    assert [(file.role, file.path) for file in artifact.sidecars] == [("golden", "model.onnx.golden.json")]
    assert draft.companions == ()
    vectors = (draft.root / "model.onnx.golden.json").read_bytes()
    assert all(each.passed for each in golden.self_test(draft.root / "model.onnx", vectors, "vectors"))


@pytest.mark.parametrize(
    ("bits", "level", "stated", "expected"),
    [
        (4, None, None, ("onnx-int4", "int4")),
        (8, None, None, ("onnx-int8", "int8-weights")),
        (8, 1, None, ("onnx-int8", "int8-weights")),
        (8, 4, None, ("onnx-int8", "int8")),
        (8, None, "int8-weights", ("onnx-int8", "int8-weights")),
        (8, None, "int8", ("onnx-int8", "int8")),
    ],
)
def test_weights_by_blocks_name_the_format(add, folder, bits, level, stated, expected):
    more = "" if level is None else f", accuracy_level = {level}"
    body = f"y = com.microsoft.MatMulNBits <K = 64, N = 4, bits = {bits}, block_size = 32{more}> (x, q, s)"
    weights = {"q": np.zeros((4, 2, 4 * bits), np.uint8), "s": np.ones(8, np.float32)}
    onnx.save(graph(body, "float[n, 64] x", "float[n, 4] y", **weights), folder / "blocks.onnx")
    artifact = manifest_of(add(model="blocks.onnx", precision=stated)).artifacts[0]
    assert (artifact.format, artifact.precision) == expected
    assert "MatMulNBits" in artifact.contrib


@pytest.mark.parametrize(
    ("call", "opset", "fits"),
    [
        ("Softmaxx(x)", 17, False),
        ("FastGelu(x)", 17, False),
        ("Softmax(x)", 17, True),
        ("com.lab.Softmaxx(x)", 17, True),
        ("LayerNormalization(x, s)", 14, True),
    ],
)
def test_a_graph_that_nothing_can_run_is_refused(add, folder, call, opset, fits):
    """An operator of somebody's own domain is the business of who loads its library.

    ONNX Runtime's own LayerNormalization has been in the plain domain since long before ONNX's, which came with opset 17.
    """
    sides = "float[1, 4] x, float[4] s", "float[1, 4] y"
    onnx.save(graph(f"y = {call}", *sides, opset=opset), folder / "m.onnx")
    name = re.findall(r"(\w+)\(", call)[0]
    if fits:
        (artifact,) = manifest_of(add(model="m.onnx")).artifacts
        assert [known.rpartition(":")[2] for known in artifact.metadata.operators] == [name]
        return
    with pytest.raises(InputError, match=rf"m\.onnx is not valid ONNX: No Op registered for {name}"):
        add(model="m.onnx")
