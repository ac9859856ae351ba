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

from onnxreg.registry import Registry
from onnxreg.registry.support.environment import cache_directory

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[batch,64] x) => (float[batch,8] logits) <float[64,32] w1, float[32,8] w2>
{ h = MatMul(x, w1) r = Relu(h) logits = MatMul(r, w2) }
"""
TASK = "task: onnx\nsteps:\n"
INT8 = TASK + "  - {name: int8, pass: OnnxDynamicQuantization}\n"


def mlp() -> onnx.ModelProto:
    model, draw = onnx.parser.parse_model(MLP), np.random.default_rng(0)
    del model.graph.initializer[:]
    for name, shape in {"w1": (64, 32), "w2": (32, 8)}.items():
        model.graph.initializer.append(
            numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name)
        )
    return model


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The working directory, with a graph and the recipe of its INT8."""
    onnx.save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "int8.yaml").write_text(INT8)
    return tmp_path


def export(reg: Reg, source: str, recipe: str = "int8.yaml", *more: str) -> Any:
    return reg("--registry", "r", "export", source, "--recipe", recipe, "--name", "acme/x", *more)


@pytest.fixture
def unchanged(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a command left nothing: no version, no scratch, no temporary file, every file beside as it was."""
    (here / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here / "temp"))

    def files() -> dict[str, bytes]:
        found = [
            path for path in here.rglob("*") if path.is_file() and "r" not in path.relative_to(here).parts
        ]
        return {str(path): path.read_bytes() for path in found}

    def look() -> bool:
        kept = [
            path for part in ("blobs", "index", "local/tmp", "gc") for path in (here / "r" / part).rglob("*")
        ]
        return not [path for path in kept if path.is_file()] and files() == before.setdefault(
            "files", files()
        )

    before: dict[str, dict[str, bytes]] = {}
    return look


def truncated(model: onnx.ModelProto, path: Path) -> None:
    path.write_bytes(model.SerializeToString()[:-500])


def outside(location: str) -> Callable[[onnx.ModelProto, Path], None]:
    def write(model: onnx.ModelProto, path: Path) -> None:
        tensor = model.graph.initializer[0]
        (path.parent.parent / "outside.bin").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        path.write_bytes(model.SerializeToString())

    return write


def custom(model: onnx.ModelProto, path: Path) -> None:
    model.graph.node[1].op_type, model.graph.node[1].domain = "Swish", "acme.ops"
    model.opset_import.add(domain="acme.ops", version=1)
    onnx.save(model, path)


def sequence(model: onnx.ModelProto, path: Path) -> None:
    (logits,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("SequenceConstruct", ["logits"], ["parts"]))
    logits.CopyFrom(onnx.helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, ["batch", 8]))
    onnx.save(model, path)


def invalid(model: onnx.ModelProto, path: Path) -> None:
    model.graph.node[1].input[0] = "nowhere"
    path.write_bytes(model.SerializeToString())


def nothing(model: onnx.ModelProto, path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("write", "status", "said"),
    {
        "truncated": (truncated, 2, "bad.onnx"),
        "above its folder": (outside("../outside.bin"), 2, "'../outside.bin', which is not a file beside it"),
        "absolute": (outside("/etc/passwd"), 2, "'/etc/passwd', which is not a file beside it"),
        "missing": (outside("weights.bin"), 2, "weights.bin, which is missing"),
        "custom operator": (custom, 2, "acme.ops:Swish"),
        "sequence": (sequence, 7, "the output parts is not a tensor"),
        "invalid": (invalid, 2, "bad.onnx is not valid ONNX"),
        "empty": (nothing, 2, "bad.onnx"),
    }.values(),
)
def test_a_graph_that_cannot_be_used(
    reg: Reg,
    here: Path,
    unchanged: Callable[[], bool],
    write: Callable[[onnx.ModelProto, Path], None],
    status: int,
    said: str,
) -> None:
    write(mlp(), here / "bad.onnx")
    assert unchanged()
    done = export(reg, "bad.onnx")
    assert (done.status, said in done.err) == (status, True), done.err
    assert "Traceback" not in done.err
    assert unchanged()


@pytest.mark.parametrize(
    "write",
    [
        *(outside("../outside.bin"), outside("/etc/passwd"), outside("weights.bin")),
        *(truncated, invalid, nothing),
    ],
)
def test_a_graph_that_cannot_be_added(
    reg: Reg, here: Path, unchanged: Callable[[], bool], write: Callable[[onnx.ModelProto, Path], None]
) -> None:
    write(mlp(), here / "bad.onnx")
    assert unchanged()
    done = reg("--registry", "r", "add", "bad.onnx", "--name", "acme/x")
    assert (done.status, "bad.onnx" in done.err) == (2, True), done.err
    assert unchanged()


@pytest.mark.parametrize(
    ("recipe", "status", "said"),
    {
        "unknown key": (INT8 + "stpes: []\n", 2, "stpes"),
        "cycle": (
            TASK
            + "  - {name: a, pass: OnnxFloatToFloat16, input: b}\n  - {name: b, pass: OrtFormat, input: a}\n",
            2,
            "a <- b <- a",
        ),
        "missing parent": (
            TASK + "  - {name: int8, pass: OnnxDynamicQuantization, input: fp16}\n",
            2,
            "there is no step called fp16",
        ),
        "unknown pass": (
            TASK + "  - {name: int8, pass: OnnxQuantize}\n",
            2,
            "step int8: no pass is called 'OnnxQuantize'",
        ),
        "unknown parameter": (
            TASK + "  - {name: int8, pass: OnnxDynamicQuantization, params: {bits: 4}}\n",
            2,
            "bits",
        ),
        "key twice": (INT8 + "task: onnx\n", 2, "task"),
        "nothing to do": (TASK + "  - {name: a, pass: OnnxIODataTypeConverter}\n", 2, "logits"),
        "limit": (
            INT8 + "checks:\n  - {metric: max_abs_diff, max: 0.0001}\n",
            7,
            "int8.onnx does not meet its recipe",
        ),
        "requirement": (
            "task: onnx\nsteps:\n  - {name: f, pass: DynamicToFixedShape, params: {dim_param: [n], dim_value: [1]}}\n",
            2,
            "n",
        ),
        "task": (
            "task: onyx\nsteps:\n  - {name: int8, pass: OnnxDynamicQuantization}\n",
            2,
            "no task is called 'onyx'",
        ),
        "option": (INT8 + "options: {dta: x}\n", 2, "an option of task onnx is not valid at dta"),
        "sample": (INT8 + "options: {data: rows.npz}\n", 2, "rows.npz"),
    }.values(),
)
def test_a_recipe_that_cannot_be_run(
    reg: Reg, here: Path, unchanged: Callable[[], bool], recipe: str, status: int, said: str
) -> None:
    (here / "bad.yaml").write_text(recipe)
    assert unchanged()
    done = export(reg, "m.onnx", "bad.yaml")
    assert (done.status, said in done.err) == (status, True), done.err
    assert unchanged()


def test_a_source_that_is_not_there(reg: Reg, here: Path) -> None:
    assert export(reg, "n.onnx").status == 3
    done = reg("--registry", "r", "export", "--recipe", "int8.yaml", "--name", "acme/x")
    assert (done.status, "there is nothing to export" in done.err) == (2, True)
    done = reg("--registry", "r", "export", "m.onnx", "--recipe", "int8.yaml")
    assert (done.status, "--name" in done.err) == (2, True)


OLIVE: dict[str, list[dict[str, Any]]] = {
    "OnnxConversion": [
        {"type": "OnnxConversion", "config": {"target_opset": 17, "save_as_external_data": False}}
    ],
    "OnnxOpVersionConversion": [{"type": "OnnxOpVersionConversion", "target_opset": 21}],
    "OnnxFloatToFloat16": [{"type": "OnnxFloatToFloat16", "config": {"op_block_list": ["Relu"]}}],
    "OnnxIODataTypeConverter": [{"type": "OnnxFloatToFloat16"}, {"type": "OnnxIODataTypeConverter"}],
    "OrtMixedPrecision": [{"type": "OrtMixedPrecision", "atol": 1e-6}],
    "DynamicToFixedShape": [{"type": "DynamicToFixedShape", "dim_param": ["batch"], "dim_value": [1]}],
    "ModelBuilder": [{"type": "ModelBuilder", "config": {"precision": "int4"}}],
    "OnnxDynamicQuantization": [
        {"type": "OnnxDynamicQuantization", "precision": "int8", "op_types_to_exclude": []}
    ],
    "OnnxBlockWiseRtnQuantization": [
        {"type": "OnnxBlockWiseRtnQuantization", "block_size": 32, "axis": 0, "nodes_to_include": []}
    ],
    "OrtTransformersOptimization": [{"type": "OrtTransformersOptimization", "config": {"opt_level": 1}}],
}


@pytest.fixture(scope="module")
def llama(make_checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("llama")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=96, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **sizes)
    LlamaForCausalLM(config).save_pretrained(directory)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.more if name == "ModelBuilder" else ()) for name in OLIVE]
)
def test_each_pass_runs_out_of_a_document_of_olive(
    reg: Reg, here: Path, bert: Path, llama: Path, name: str
) -> None:
    model: dict[str, Any] = {"type": "OnnxModel", "model_path": "m.onnx"}
    if name == "OnnxConversion":
        model = {"type": "HfModel", "config": {"model_path": str(bert), "task": "token-classification"}}
    elif name == "ModelBuilder":
        model = {"type": "HfModel", "config": {"model_path": str(llama)}}
    passes = {f"step{index}": step for index, step in enumerate(OLIVE[name])}
    document = {"input_model": model, "passes": passes, "engine": {"output_dir": str(here / "secret")}}
    (here / "olive.json").write_text(json.dumps(document))
    done = reg("--registry", "r", "export", "--recipe", "olive.json", "--name", "acme/x", "--json")
    assert done.status == 0, done.err
    recipe = done.json["manifest"]["recipe"]
    steps = [step["pass"] for step in recipe["steps"] if step["pass"] != "golden-vectors"]
    assert steps == [step["type"] for step in OLIVE[name]]
    assert [artifact["path"] for artifact in done.json["manifest"]["artifacts"]] == ["model.onnx"]
    told = recipe["parameters"]["recipe"]["translation"]
    assert {"field": "engine", "value": None, "became": "not used"} in told
    assert str(here) not in json.dumps(done.json["manifest"])


@pytest.mark.more
def test_a_decoder_carries_what_generates(reg: Reg, here: Path, llama: Path) -> None:
    (here / "llm.yaml").write_text(
        "task: text-generation\nsteps:\n  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"
        "outputs:\n  - {step: int4, path: cpu/model.onnx}\n"
    )
    done = export(reg, str(llama), "llm.yaml", "--json")
    assert done.status == 0, done.err
    (artifact,) = done.json["manifest"]["artifacts"]
    roles = {file["path"]: file["role"] for file in artifact["files"]}
    assert roles["cpu/model.onnx.data"] == "external-data"
    assert roles["cpu/tokenizer.json"] == "tokenizer"
    assert "cpu/genai_config.json" in roles
    assert artifact["kv_cache"] == {"bytes_per_token": 2 * 4 * 16 * 4, "max_tokens": 64}
    tools = done.json["manifest"]["recipe"]["tools"]
    assert "onnxruntime-genai" in tools
    assert export(reg, str(llama), "llm.yaml").out.startswith("nothing new: this is acme/x:0.1.0")
    assert export(reg, "m.onnx", "llm.yaml").status == 2
    (llama / "config.json").rename(here / "config.json")
    assert "no config.json" in export(reg, str(llama), "llm.yaml").err
    (here / "config.json").rename(llama / "config.json")


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, whatever would run a step fails."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the plan was run")

    monkeypatch.setattr("onnxreg.converters.engine.run_plan.execute", fail)


def test_the_same_request_is_answered_without_any_work(
    reg: Reg, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export(reg, "m.onnx", "int8.yaml", "--json")
    assert first.status == 0
    with monkeypatch.context() as patch:
        no_work(patch)
        again = export(reg, "m.onnx", "int8.yaml", "--json")
    assert again.json == {**first.json, "new": False}
    assert (
        export(reg, "m.onnx").out
        == "nothing new: this is acme/x:0.1.0\nmanifest " + first.json["digest"] + "\n"
    )


def test_a_step_that_was_skipped_is_made_once_its_package_is_back(
    reg: Reg, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation that is broken has the same version as one that is not."""
    (here / "ort.yaml").write_text(
        INT8
        + "  - {name: ort, pass: OrtFormat, input: int8, optional: true}\noutputs: [{step: int8}, {step: ort}]\n"
    )
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "flatbuffers", None)
        first = export(reg, "m.onnx", "ort.yaml", "--json")
    assert first.json["manifest"]["recipe"]["steps"][1]["skipped"] == "missing dependency: flatbuffers"
    healed = export(reg, "m.onnx", "ort.yaml", "--json")
    assert [each["format"] for each in healed.json["manifest"]["artifacts"]] == ["onnx-int8", "ort"]
    with monkeypatch.context() as patch:
        no_work(patch)
        assert export(reg, "m.onnx", "ort.yaml", "--json").json["digest"] == healed.json["digest"]


def test_a_graph_of_bfloat16_is_exported_proven_and_run(reg: Reg, here: Path) -> None:
    cast = "  - {name: io, pass: OnnxIODataTypeConverter, params: {name_pattern: .*, source_dtype: 1, target_dtype: 16}}\n"
    (here / "bf16.yaml").write_text(TASK + cast)
    done = export(reg, "m.onnx", "bf16.yaml", "--json")
    assert done.status == 0, done.err
    (artifact,) = done.json["manifest"]["artifacts"]
    assert {
        each["dtype"] for each in (*artifact["metadata"]["inputs"], *artifact["metadata"]["outputs"])
    } == {"bfloat16"}
    assert reg("--registry", "r", "run", "acme/x", "--self-test").status == 0


def test_a_size_is_on_record_to_the_byte(reg: Reg, here: Path) -> None:
    model = mlp()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1_000_003, np.uint8), "more"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", TensorProto.UINT8, [1_000_003]))
    onnx.save(model, here / "big.onnx")
    (here / "size.yaml").write_text(INT8 + "checks: [{metric: bytes, max: 9999999}]\n")
    (artifact,) = export(reg, "big.onnx", "size.yaml", "--json").json["manifest"]["artifacts"]
    (check,) = (each for each in artifact["checks"] if each["metric"] == "bytes")
    assert (check["value"], check["limit"]) == (artifact["size"], 9999999)
    assert artifact["size"] > 1_000_003
    (here / "size.yaml").write_text(INT8 + "checks: [{metric: bytes, max: 1000003}]\n")
    assert f"bytes is {artifact['size']}, the limit is 1000003" in export(reg, "big.onnx", "size.yaml").err


def change_source(here: Path) -> None:
    model = mlp()
    model.graph.initializer[0].raw_data = np.ones((64, 32), np.float32).tobytes()
    onnx.save(model, here / "m.onnx")


def change_recipe(here: Path) -> None:
    (here / "int8.yaml").write_text(
        INT8.replace("Quantization}", "Quantization, params: {per_channel: false}}")
    )


@pytest.mark.parametrize("change", [change_source, change_recipe])
def test_another_file_is_another_request(reg: Reg, here: Path, change: Callable[[Path], None]) -> None:
    first = export(reg, "m.onnx", "int8.yaml", "--json")
    change(here)
    second = export(reg, "m.onnx", "int8.yaml", "--json")
    assert second.json["version"] == "0.1.1"
    assert second.json["digest"] != first.json["digest"]


@pytest.mark.parametrize("change", [change_source, change_recipe])
def test_a_file_that_is_edited_during_an_export_is_another_request(
    reg: Reg, here: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    real = Registry.add

    def edited_first(*given: Any) -> Any:
        change(here)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "add", edited_first)
        first = export(reg, "m.onnx", "int8.yaml", "--json")
    second = export(reg, "m.onnx", "int8.yaml", "--json")
    assert (first.json["version"], second.json["version"]) == ("0.1.0", "0.1.1")
    assert second.json["digest"] != first.json["digest"]


def test_an_export_of_yanked_outputs_publishes_nothing(reg: Reg, here: Path) -> None:
    export(reg, "m.onnx")
    assert reg("--registry", "r", "yank", "acme/x:0.1.0", "--reason", "wrong labels").status == 0
    for words in ((), ("--no-cache",)):
        again = export(reg, "m.onnx", "int8.yaml", *words)
        assert again.status == 0 and again.out.startswith("nothing new") and "wrong labels" in again.out
    assert export(reg, "m.onnx", "int8.yaml", "--version", "2.0.0").out.startswith("published acme/x:2.0.0")
    assert export(reg, "m.onnx", "int8.yaml", "--version", "2.0.0").out.startswith("nothing new")


def test_another_writer_of_the_tree_does_not_decide_what_an_export_publishes(reg: Reg, here: Path) -> None:
    """He has no key, but may write every file of the registry, such as on a shared disk."""
    export(reg, "m.onnx")
    onnx.save(mlp(), here / "evil.onnx")
    assert reg("--registry", "r", "add", "evil.onnx", "--name", "acme/x").out.startswith(
        "published acme/x:0.1.1"
    )
    first, second = (str(Registry("r").get(f"acme/x:{version}").digest) for version in ("0.1.0", "0.1.1"))
    for path in Path("r/local").rglob("*"):
        if path.is_file():
            data = path.read_bytes().replace(first.encode(), second.encode())
            path.unlink()
            path.write_bytes(data)
    export(reg, "m.onnx", "int8.yaml", "--version", "2.0.0")
    assert str(Registry("r").get("acme/x:2.0.0").digest) == first


def test_where_origin_is_belongs_to_the_user(reg: Reg, here: Path) -> None:
    """Another writer of the tree would send a push, and the token for it, to a place of his own."""
    assert reg("--registry", "r", "remote", "add", "origin", here / "mine").status == 0
    for path in [*Path("r/local").rglob("*.json"), Path("r/local/remotes.json")]:
        path.write_text(json.dumps({"remotes": {"origin": "/evil"}, "pins": {}}))
    assert reg("--registry", "r", "remote", "list", "--json").json["remotes"] == [
        {"name": "origin", "url": str(here / "mine")}
    ]


def test_no_cache_runs_and_keeps_nothing(reg: Reg, here: Path) -> None:
    for _ in range(2):
        assert "running int8 ..." in export(reg, "m.onnx", "int8.yaml", "--no-cache").err
    assert not cache_directory().exists()


def test_gc_trims_the_cache(reg: Reg, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(reg, "m.onnx")
    monkeypatch.setenv("REG_CACHE_SIZE", "10B")
    told = reg("--registry", "r", "gc", "--json").json["cache"]
    assert told["entries"] > 0
    assert told["kept"] == 0
    assert "running int8 ..." in export(reg, "m.onnx").err
    assert reg("--registry", "r", "verify").status == 0


@pytest.mark.more
def test_two_exports_at_once_publish_one_version(here: Path) -> None:
    words = ["--registry", "r", "export", "m.onnx", "--recipe", "int8.yaml", "--name", "acme/x"]
    command = [sys.executable, "-m", "onnxreg.cli", *words]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = sorted(process.communicate()[0].splitlines()[0] for process in both)
    assert said == ["nothing new: this is acme/x:0.1.0", "published acme/x:0.1.0"]
    assert [path.name for path in (cache_directory() / "steps").iterdir() if path.name.startswith(".")] == []


STATIC = TASK + "  - {name: int8, pass: OnnxStaticQuantization, data: rows.npz}\noptions: {data: rows.npz}\n"


def test_a_recipe_with_data_is_rebuilt_from_the_same_data_alone(reg: Reg, here: Path) -> None:
    for name, seed in (("rows", 1), ("others", 2)):
        rows = np.random.default_rng(seed).normal(size=(8, 64)).astype(np.float32)
        np.savez(here / f"{name}.npz", x=rows)
    (here / "static.yaml").write_text(STATIC)
    assert export(reg, "m.onnx", "static.yaml").status == 0

    def rebuild(*more: str) -> Any:
        return reg("--registry", "r", "rebuild", "acme/x", "--source", "m.onnx", *more)

    both = ("--data", "int8=rows.npz", "--data", "options.data=rows.npz")
    done = rebuild(*both)
    assert done.status == 0, done.err
    assert "acme/x:0.1.0 was rebuilt" in done.out
    for words, said in {
        (): "--data int8=PATH",
        both[:2]: "--data options.data=PATH",
        (*both[:2], "--data", "options.data=others.npz"): "options.data is not what",
        ("--data", "int8=others.npz", *both[2:]): "int8 is not what",
        (*both, "--data", "fp16=rows.npz"): "without fp16",
        ("--data", "int8"): "--data takes NAME=PATH",
        ("--data", "int8=nowhere.npz", *both[2:]): "no file exists at",
    }.items():
        refused = rebuild(*words)
        assert (refused.status, said in refused.err) == (2, True), refused.err


def test_a_document_of_olive_is_rebuilt(reg: Reg, here: Path) -> None:
    model, passes = {"type": "OnnxModel", "model_path": "m.onnx"}, {"a": {"type": "OnnxFloatToFloat16"}}
    (here / "olive.json").write_text(json.dumps({"input_model": model, "passes": passes, "output_dir": "x"}))
    assert reg("--registry", "r", "export", "--recipe", "olive.json", "--name", "acme/x").status == 0
    done = reg("--registry", "r", "rebuild", "acme/x", "--source", "m.onnx")
    assert done.status == 0, done.err


def test_outputs_are_published_as_members_of_a_pipeline(reg: Reg, here: Path) -> None:
    steps = "  - {name: full, pass: OnnxFloatToFloat16}\n  - {name: int8, pass: OnnxDynamicQuantization}\n"
    outputs = (
        "outputs:\n  - {step: full, path: full.onnx, member: encoder}\n  - {step: int8, path: small.onnx"
    )
    (here / "parts.yaml").write_text(f"{TASK}{steps}{outputs}, member: decoder}}\n")
    made = reg("export", "m.onnx", "--recipe", "parts.yaml", "--name", "acme/parts")
    assert made.status == 0, made.err
    found = reg("resolve", "acme/parts", "--member", "decoder", "--json").json
    assert (found["artifact"]["path"], found["artifact"]["member"]) == ("small.onnx", "decoder")
    assert reg("rebuild", "acme/parts", "--source", "m.onnx").status == 0
    (here / "half.yaml").write_text(f"{TASK}{steps}{outputs}}}\n")
    refused = reg("export", "m.onnx", "--recipe", "half.yaml", "--name", "acme/parts")
    assert refused.status == 2 and "some outputs have a member" in refused.err


def test_8_bit_weights_are_offered_from_the_release_on_that_runs_them(reg: Reg, here: Path) -> None:
    params = "params: {bits: 8, block_size: 32}"
    (here / "w8.yaml").write_text(TASK + f"  - {{name: w8, pass: OnnxBlockWiseRtnQuantization, {params}}}\n")
    assert export(reg, "m.onnx", "w8.yaml").status == 0
    ask = ("--registry", "r", "resolve", "acme/x", "--format", "onnx-int8", "--json", "--device")
    assert reg(*ask, "ort-android-1.23").json["artifact"]["precision"] == "int8-weights"
    done = reg(*ask, "ort-android-1.22")
    assert done.status == 3
    assert "needs MatMulNBits bits=8, ONNX Runtime 1.22 lacks it, 1.23 has it" in done.error["hint"]
