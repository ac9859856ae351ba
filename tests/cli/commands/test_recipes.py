"""`reg export --recipe`: real documents through the whole program, and what bad input leaves behind."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support.command_line import Reg
from support.docs.nets import write_llama, write_mlp
from support.sampling import sampled

from onnxreg.converters.runtime.sessions import quiet
from onnxreg.registry import Registry
from onnxreg.registry.system import cache_directory

pytestmark = pytest.mark.usefixtures("reader_in_process")
TASK = "task: onnx\nsteps:\n"
INT8 = TASK + "  - {name: int8, pass: OnnxDynamicQuantization}\n"
Prepare = Callable[[onnx.ModelProto, Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The working directory, with a graph and the recipe of its INT8."""
    write_mlp(tmp_path / "m.onnx")
    (tmp_path / "int8.yaml").write_text(INT8)
    return tmp_path


def export(reg: Reg, source: str, recipe: str = "int8.yaml", *more: str) -> Any:
    return reg("--registry", "r", "export", source, "--recipe", recipe, "--name", "acme/x", *more)


@pytest.fixture
def unchanged(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a command left nothing: no version, no scratch, no temporary file, every file beside as it was."""
    (place / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "temp"))
    before: dict[str, dict[str, bytes]] = {}

    def look() -> bool:
        paths = [path for path in place.rglob("*") if path.is_file()]
        files = {str(path): path.read_bytes() for path in paths if place / "r" not in path.parents}
        kept = [
            path for part in ("blobs", "index", "local/tmp", "gc") for path in (place / "r" / part).rglob("*")
        ]
        return not any(path.is_file() for path in kept) and files == before.setdefault("files", files)

    return look


def custom(model: onnx.ModelProto, path: Path) -> None:
    model.graph.node[1].op_type, model.graph.node[1].domain = "Swish", "acme.ops"
    model.opset_import.add(domain="acme.ops", version=1)
    onnx.save(model, path)


def sequence(model: onnx.ModelProto, path: Path) -> None:
    (output,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("SequenceConstruct", ["y"], ["parts"]))
    output.CopyFrom(onnx.helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, ["batch", 8]))
    onnx.save(model, path)


def invalid(model: onnx.ModelProto, path: Path) -> None:
    model.graph.node[1].input[0] = "nowhere"
    path.write_bytes(model.SerializeToString())


GRAPHS: dict[str, tuple[Prepare, int, str]] = {
    "truncated": (lambda model, path: path.write_bytes(model.SerializeToString()[:-500]), 2, "bad.onnx"),
    "custom operator": (custom, 2, "acme.ops:Swish"),
    "sequence": (sequence, 7, "the output parts is not a tensor"),
    "invalid": (invalid, 2, "bad.onnx is not valid ONNX"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_a_graph_that_cannot_be_used(reg, place, unchanged, case):
    write, status, said = GRAPHS[case]
    write(onnx.load("m.onnx"), place / "bad.onnx")
    assert unchanged()
    assert export(reg, "bad.onnx").ended(status, said) and unchanged()
    if case not in ("custom operator", "sequence"):
        assert (
            reg("--registry", "r", "add", "bad.onnx", "--name", "acme/x").ended(2, "bad.onnx") and unchanged()
        )


SHAPE = "  - {name: f, pass: DynamicToFixedShape, params: {dim_param: [n], dim_value: [1]}}\n"
RECIPES = {
    "unknown key": (INT8 + "stpes: []\n", 2, "stpes"),
    "nothing to do": (TASK + "  - {name: a, pass: OnnxIODataTypeConverter}\n", 2, "y"),
    "limit": (
        INT8 + "checks: [{metric: max_abs_diff, max: 0.0001}]\n",
        7,
        "int8.onnx does not meet its recipe",
    ),
    "requirement": (TASK + SHAPE, 2, "n"),
    "sample": (INT8 + "options: {data: rows.npz}\n", 2, "rows.npz"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_recipe_that_cannot_be_run(reg, place, unchanged, case):
    text, status, said = RECIPES[case]
    (place / "bad.yaml").write_text(text)
    assert unchanged()
    assert export(reg, "m.onnx", "bad.yaml").ended(status, said) and unchanged()
    assert reg("--registry", "r", "export", "m.onnx", "--recipe", "int8.yaml").ended(2, "--name")


OLIVE: dict[str, list[dict[str, Any]]] = {
    "OnnxConversion": [{"type": "OnnxConversion", "config": {"target_opset": 17, "save_as_external_data": False}}],
    "OnnxFloatToFloat16": [{"type": "OnnxFloatToFloat16", "config": {"op_block_list": ["Relu"]}}],
    "OnnxIODataTypeConverter": [{"type": "OnnxFloatToFloat16"}, {"type": "OnnxIODataTypeConverter"}],
    "ModelBuilder": [{"type": "ModelBuilder", "config": {"precision": "int4"}}],
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(make_checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    write_llama(directory)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.large if name == "ModelBuilder" else ()) for name in OLIVE]
)
def test_each_pass_runs_out_of_a_document_of_olive(reg, place, bert, request, name):
    model: dict[str, Any] = {"type": "OnnxModel", "model_path": "m.onnx"}
    if name == "OnnxConversion":
        model = {"type": "HfModel", "config": {"model_path": str(bert), "task": "token-classification"}}
    elif name == "ModelBuilder":
        model = {"type": "HfModel", "config": {"model_path": str(request.getfixturevalue("llama"))}}
    passes = {f"step{index}": step for index, step in enumerate(OLIVE[name])}
    document = {"input_model": model, "passes": passes, "engine": {"output_dir": str(place / "secret")}}
    (place / "olive.json").write_text(json.dumps(document))
    done = reg("--registry", "r", "export", "--recipe", "olive.json", "--name", "acme/x", "--json")
    assert done.status == 0, done.err
    recipe = done.json["manifest"]["recipe"]
    steps = [step["pass"] for step in recipe["steps"] if step["pass"] != "golden-vectors"]
    assert steps == [step["type"] for step in OLIVE[name]]
    assert [artifact["path"] for artifact in done.json["manifest"]["artifacts"]] == ["model.onnx"]
    told = recipe["parameters"]["recipe"]["translation"]
    assert {"field": "engine", "value": None, "became": "not used"} in told
    if name == "OnnxFloatToFloat16":
        assert reg("--registry", "r", "rebuild", "acme/x", "--source", "m.onnx").status == 0


@pytest.mark.large
def test_a_decoder_carries_what_generates(reg, place, llama):
    step = "  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"
    output = "outputs:\n  - {step: int4, path: cpu/model.onnx}\n"
    (place / "llm.yaml").write_text(f"task: text-generation\nsteps:\n{step}{output}")
    done = export(reg, str(llama), "llm.yaml", "--json")
    assert done.status == 0, done.err
    (artifact,) = done.json["manifest"]["artifacts"]
    roles = {file["path"]: file["role"] for file in artifact["files"]}
    assert roles["cpu/model.onnx.data"] == "external-data" and roles["cpu/tokenizer.json"] == "tokenizer"
    assert "cpu/genai_config.json" in roles
    assert artifact["kv_cache"] == {"bytes_per_token": 2 * 4 * 16 * 4, "max_tokens": 64}
    assert "onnxruntime-genai" in done.json["manifest"]["recipe"]["tools"]
    assert export(reg, str(llama), "llm.yaml").out.startswith("nothing new: this is acme/x:0.1.0")
    assert export(reg, "m.onnx", "llm.yaml").status == 2
    (llama / "config.json").rename(place / "config.json")
    assert export(reg, str(llama), "llm.yaml").ended(2, "no config.json")
    (place / "config.json").rename(llama / "config.json")


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, whatever would run a step fails."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the plan was run")

    monkeypatch.setattr("onnxreg.converters.engine.run_plan.execute", fail)


def test_the_same_request_is_answered_without_any_work(reg, place, monkeypatch):
    first = export(reg, "m.onnx", "int8.yaml", "--json")
    assert first.status == 0
    with monkeypatch.context() as patch:
        no_work(patch)
        again = export(reg, "m.onnx", "int8.yaml", "--json")
    assert again.json == {**first.json, "new": False}
    told = f"nothing new: this is acme/x:0.1.0\nmanifest {first.json['digest']}\n"
    assert export(reg, "m.onnx").out == told


def test_a_step_that_was_skipped_is_made_once_its_package_is_back(reg, place, monkeypatch):
    """An installation that is broken has the same version as one that is not."""
    step = "  - {name: ort, pass: OrtFormat, input: int8, optional: true}\n"
    (place / "ort.yaml").write_text(f"{INT8}{step}outputs: [{{step: int8}}, {{step: ort}}]\n")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "flatbuffers", None)
        first = export(reg, "m.onnx", "ort.yaml", "--json")
    assert first.json["manifest"]["recipe"]["steps"][1]["skipped"] == "missing dependency: flatbuffers"
    healed = export(reg, "m.onnx", "ort.yaml", "--json")
    assert [each["format"] for each in healed.json["manifest"]["artifacts"]] == ["onnx-int8", "ort"]
    with monkeypatch.context() as patch:
        no_work(patch)
        assert export(reg, "m.onnx", "ort.yaml", "--json").json["digest"] == healed.json["digest"]


def test_a_graph_of_bfloat16_is_exported_proven_and_run(reg, place):
    params = "params: {name_pattern: .*, source_dtype: 1, target_dtype: 16}"
    (place / "bf16.yaml").write_text(f"{TASK}  - {{name: io, pass: OnnxIODataTypeConverter, {params}}}\n")
    done = export(reg, "m.onnx", "bf16.yaml", "--json")
    assert done.status == 0, done.err
    metadata = done.json["manifest"]["artifacts"][0]["metadata"]
    assert {each["dtype"] for each in (*metadata["inputs"], *metadata["outputs"])} == {"bfloat16"}
    assert reg("--registry", "r", "run", "acme/x", "--self-test").status == 0


def test_a_size_is_on_record_to_the_byte(reg, place):
    model = onnx.load("m.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1_000_003, np.uint8), "more"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", TensorProto.UINT8, [1_000_003]))
    onnx.save(model, place / "big.onnx")
    (place / "size.yaml").write_text(INT8 + "checks: [{metric: bytes, max: 9999999}]\n")
    (artifact,) = export(reg, "big.onnx", "size.yaml", "--json").json["manifest"]["artifacts"]
    (check,) = (each for each in artifact["checks"] if each["metric"] == "bytes")
    assert (check["value"], check["limit"]) == (artifact["size"], 9999999) and artifact["size"] > 1_000_003
    (place / "size.yaml").write_text(INT8 + "checks: [{metric: bytes, max: 1000003}]\n")
    refused = export(reg, "big.onnx", "size.yaml")
    assert refused.ended(7, f"bytes is {artifact['size']}, the limit is 1000003")


def change_source(place: Path) -> None:
    model = onnx.load(place / "m.onnx")
    model.graph.initializer[0].raw_data = np.ones((64, 32), np.float32).tobytes()
    onnx.save(model, place / "m.onnx")


def change_recipe(place: Path) -> None:
    (place / "int8.yaml").write_text(INT8.replace("}", ", params: {per_channel: false}}"))


@pytest.mark.parametrize("during", sampled([True, False], 2))
@pytest.mark.parametrize("change", [change_source, change_recipe])
def test_another_file_is_another_request(reg, place, monkeypatch, change, during):
    """Also one that is edited while it is exported."""
    real = Registry.add

    def edited_first(*given: Any) -> Any:
        change(place)
        return real(*given)

    with monkeypatch.context() as patch:
        if during:
            patch.setattr(Registry, "add", edited_first)
        first = export(reg, "m.onnx", "int8.yaml", "--json").json
    change(place)
    second = export(reg, "m.onnx", "int8.yaml", "--json").json
    assert (first["version"], second["version"]) == ("0.1.0", "0.1.1") and second["digest"] != first["digest"]


def test_an_export_of_yanked_outputs_publishes_nothing(reg, place):
    export(reg, "m.onnx")
    assert reg("--registry", "r", "yank", "acme/x:0.1.0", "--reason", "wrong labels").status == 0
    for words in ((), ("--no-cache",)):
        assert export(reg, "m.onnx", "int8.yaml", *words).ended(0, "nothing new", "wrong labels")
    for said in ("published acme/x:2.0.0", "nothing new"):
        assert export(reg, "m.onnx", "int8.yaml", "--version", "2.0.0").out.startswith(said)


def test_another_writer_of_the_tree_decides_neither_what_is_published_nor_where_origin_is(reg, place):
    """He has no key, but may write every file of the registry, such as on a shared disk."""
    export(reg, "m.onnx")
    model = onnx.load("m.onnx")
    model.producer_name = "evil"
    onnx.save(model, place / "evil.onnx")
    assert reg("--registry", "r", "add", "evil.onnx", "--name", "acme/x").ended(0, "published acme/x:0.1.1")
    first, second = (str(Registry("r").get(f"acme/x:{version}").digest) for version in ("0.1.0", "0.1.1"))
    for path in Path("r/local").rglob("*"):
        if path.is_file():
            data = path.read_bytes().replace(first.encode(), second.encode())
            path.unlink()
            path.write_bytes(data)
    export(reg, "m.onnx", "int8.yaml", "--version", "2.0.0")
    assert str(Registry("r").get("acme/x:2.0.0").digest) == first
    assert reg("--registry", "r", "remote", "add", "origin", place / "mine").status == 0
    for path in [*Path("r/local").rglob("*.json"), Path("r/local/remotes.json")]:
        path.write_text(json.dumps({"remotes": {"origin": "/evil"}, "pins": {}}))
    (remote,) = reg("--registry", "r", "remote", "list", "--json").json["remotes"]
    assert remote == {"name": "origin", "url": str(place / "mine")}


def test_the_cache_is_left_out_and_trimmed(reg, place, monkeypatch):
    for _ in range(2):
        assert "running int8 ..." in export(reg, "m.onnx", "int8.yaml", "--no-cache").err
    assert not cache_directory().exists()
    export(reg, "m.onnx")
    monkeypatch.setenv("REG_CACHE_SIZE", "10B")
    cache = reg("--registry", "r", "gc", "--json").json["cache"]
    assert cache["entries"] > 0 and cache["kept"] == 0
    assert "running int8 ..." in export(reg, "m.onnx").err


@pytest.mark.more
def test_two_exports_at_once_publish_one_version(place):
    words = ["--registry", "r", "export", "m.onnx", "--recipe", "int8.yaml", "--name", "acme/x"]
    command = [sys.executable, "-m", "onnxreg.cli", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    said = sorted(process.communicate()[0].splitlines()[0] for process in both)
    assert said == ["nothing new: this is acme/x:0.1.0", "published acme/x:0.1.0"]
    assert not [path for path in (cache_directory() / "steps").iterdir() if path.name.startswith(".")]


def test_a_recipe_with_data_is_rebuilt_from_the_same_data_alone(reg, place):
    for name, seed in (("rows", 1), ("others", 2)):
        np.savez(f"{name}.npz", x=np.random.default_rng(seed).normal(size=(8, 64)).astype(np.float32))
    step = "  - {name: int8, pass: OnnxStaticQuantization, data: rows.npz}\n"
    (place / "static.yaml").write_text(f"{TASK}{step}options: {{data: rows.npz}}\n")
    assert export(reg, "m.onnx", "static.yaml").status == 0
    rebuild = ("--registry", "r", "rebuild", "acme/x", "--source", "m.onnx")
    both = ("--data", "int8=rows.npz", "--data", "options.data=rows.npz")
    assert reg(*rebuild, *both).ended(0, "acme/x:0.1.0 was rebuilt")
    for words, said in {
        (): "--data int8=PATH",
        both[:2]: "--data options.data=PATH",
        (*both[:2], "--data", "options.data=others.npz"): "options.data is not what",
        ("--data", "int8=others.npz", *both[2:]): "int8 is not what",
        (*both, "--data", "fp16=rows.npz"): "it has int8, options.data",
        ("--data", "int8"): "write --data NAME=PATH",
        ("--data", "int8=nowhere.npz", *both[2:]): "no file exists at",
    }.items():
        assert reg(*rebuild, *words).ended(2, said)


def test_outputs_are_published_as_members_of_a_pipeline(reg, place):
    steps = "  - {name: full, pass: OnnxFloatToFloat16}\n  - {name: int8, pass: OnnxDynamicQuantization}\n"
    first, second = (
        "{step: full, path: full.onnx, member: encoder}",
        "{step: int8, path: small.onnx, member: decoder}",
    )
    (place / "parts.yaml").write_text(f"{TASK}{steps}outputs: [{first}, {second}]\n")
    (place / "half.yaml").write_text(f"{TASK}{steps}outputs: [{first}, {{step: int8}}]\n")
    assert export(reg, "m.onnx", "parts.yaml").status == 0
    found = reg("--registry", "r", "resolve", "acme/x", "--member", "decoder", "--json").json["artifact"]
    assert (found["path"], found["member"]) == ("small.onnx", "decoder")
    assert reg("--registry", "r", "rebuild", "acme/x", "--source", "m.onnx").status == 0
    assert export(reg, "m.onnx", "half.yaml").ended(2, "some outputs have a member")


# Nothing in the registry says where it was made

EVERY_PASS = """
task: onnx
options: {data: rows.npz}
steps:
  - {name: original, pass: Original}
  - {name: newer, pass: OnnxOpVersionConversion, params: {target_opset: 21}}
  - {name: safe, pass: MobileSafeRewrite}
  - {name: half, pass: OnnxFloatToFloat16}
  - {name: mixed, pass: OrtMixedPrecision}
  - {name: types, pass: OnnxIODataTypeConverter, params: {name_pattern: x, source_dtype: 1, target_dtype: 10}}
  - {name: fixed, pass: DynamicToFixedShape, params: {dim_param: [batch], dim_value: [1]}}
  - {name: int8, pass: OnnxDynamicQuantization}
  - {name: static, pass: OnnxStaticQuantization, data: rows.npz}
  - {name: int4, pass: OnnxBlockWiseRtnQuantization}
  - {name: ort, pass: OrtFormat}
"""
TOLD = "made by /home/jane/train.py, line 3"
CODE = "return self.secret_weights @ tokens"
NET = """
import torch


def build() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.ReLU())
"""


@pytest.fixture
def clean(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], int]:
    """Assert that no published file has a directory of this machine or its code; how many were looked at."""
    places = (tmp_path_factory.getbasetemp(), sys.prefix, Path(__file__).parents[3], "/home/jane", CODE)

    def look() -> int:
        paths = [
            path for part in ("blobs", "index") for path in (place / "r" / part).rglob("*") if path.is_file()
        ]
        for path in paths:
            data = path.read_bytes()
            assert not [here for here in places if str(here).encode() in data], data[:80]
        return len(paths)

    return look


def test_a_graph_with_notes_through_every_pass(reg, place, clean):
    """Notes as exporters leave them, at every place that has one."""
    model = onnx.load("m.onnx")
    for message in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer):
        message.doc_string = TOLD
    for message in (model, model.graph, *model.graph.node):
        message.metadata_props.add(key="stack_trace", value=f'File "{Path.cwd()}/net.py", line 1')
        message.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=CODE)
    (place / "m.onnx").write_bytes(model.SerializeToString().replace(b'File "', b'\xffile "'))  # not UTF-8
    np.savez("rows.npz", x=np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32))
    (place / "all.yaml").write_text(EVERY_PASS)
    assert export(reg, "m.onnx", "all.yaml").status == 0 and clean() > 10
    assert reg("--registry", "as-it-is", "add", "m.onnx", "--name", "acme/x").ended(
        0, "warning: m.onnx", "pkg.torch.onnx.stack_trace", "reg export m.onnx"
    )
    assert Path("m.onnx").read_bytes() in [
        path.read_bytes() for path in place.glob("as-it-is/blobs/**/*") if path.is_file()
    ]
    assert reg("--registry", "other", "pull", "acme/x", "r", "--output", "out").status == 0
    assert onnx.load("out/fixed.onnx").doc_string == "made by train.py, line 3"


@pytest.mark.more
def test_a_graph_with_the_source_code_that_the_dynamo_exporter_copied(reg, place, clean):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    with quiet():
        torch.onnx.export(net.eval(), (torch.ones(1, 8),), "net.onnx", dynamo=True, verbose=False)
    data = Path("net.onnx").read_bytes()
    assert b"stack_trace" in data and sys.prefix.encode() in data
    assert reg("--registry", "as-it-is", "add", "net.onnx", "--name", "acme/x").ended(
        0, "warning", "net.onnx", "pkg.torch.onnx.stack_trace", "reg export net.onnx"
    )
    assert data in [path.read_bytes() for path in place.glob("as-it-is/blobs/**/*") if path.is_file()]
    words = ("--registry", "r", "export", "net.onnx", "--quantize", "--name", "acme/x")
    assert reg(*words).status == 0 and clean() > 3
    for path in place.glob("r/blobs/**/*"):
        assert path.is_dir() or b"pkg.torch" not in path.read_bytes()


DECODER = "task: text-generation\nsteps:\n  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"


@pytest.mark.parametrize(
    "words",
    [
        "--task token-classification --quantize",
        pytest.param("--profile android", marks=pytest.mark.more),
        pytest.param("--recipe llm.yaml", marks=pytest.mark.large),
    ],
)
def test_an_exported_checkpoint_names_no_private_path(reg, bert, place, clean, words, request):
    (place / "llm.yaml").write_text(DECODER)
    source = Path(shutil.copytree(request.getfixturevalue("llama") if "llm" in words else bert, "checkpoint"))
    for name, key in {"config.json": "_name_or_path", "tokenizer_config.json": "name_or_path"}.items():
        value = {**json.loads((source / name).read_text()), "note": f"see {source.resolve()}/notes.md"}
        (source / name).write_text(json.dumps({**value, key: str(source.resolve())}))
    template = f"{{# {source.resolve()}/chat.py; {TOLD} #}}{{{{ messages }}}}"
    (source / "chat_template.jinja").write_text(template)
    done = reg("--registry", "r", "export", source, *words.split(), "--name", "acme/x")
    assert done.status == 0, done.err
    assert clean() > 5
    if "llm" in words:
        assert reg("--registry", "other", "pull", "acme/x", "r", "--output", "out").status == 0
        assert Path("out/chat_template.jinja").read_text().startswith("{# chat.py; made by train.py")


@pytest.mark.parametrize("dynamo", sampled(["auto", "true", "false"], 3))
def test_an_exported_module_names_no_private_path(reg, place, clean, dynamo):
    import torch

    (place / "net.py").write_text(NET)
    space: dict[str, Any] = {}
    exec(NET, space)  # noqa: S102
    torch.save(space["build"]().state_dict(), place / "best.pth")
    step = f"{{name: fp32, pass: OnnxConversion, params: {{use_dynamo_exporter: {dynamo}}}}}"
    (place / "net.yaml").write_text(
        f"task: image-classification\noptions: {{input: [1, 8, 8]}}\nsteps: [{step}]\n"
    )
    assert export(reg, "net.py:build", "net.yaml", "--checkpoint", "best.pth").status == 0 and clean() > 1
