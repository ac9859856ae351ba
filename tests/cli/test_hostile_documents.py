"""Documents, checkpoints, graphs and packages that name code: scripts, tags of YAML, templates, shared libraries.

What would run makes the file `ran`, and never does; what only names code and can do without it is read all the same.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support import in_process
from support.command_line import Reg
from support.docs.nets import write_llama
from support.sampling import sampled

from onnxreg.converters.passes import model_builder

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> { y = MatMul(x, w) }"""
INPUT = {"type": "OnnxModel", "model_path": "net.onnx"}
PASS = {"type": "OnnxOpVersionConversion", "config": {"target_opset": 18}}
SCRIPT = "open('ran', 'w').close()\n"
CALL = "open('ran', 'w')"


def olive(**changes: Any) -> dict[str, Any]:
    return {"input_model": INPUT, "passes": {"up": PASS}, **changes}


def with_pass(kind: str, **config: Any) -> dict[str, Any]:
    return olive(passes={"a": {"type": kind, "config": config}})


OLIVE: dict[str, tuple[dict[str, Any], int, str]] = {
    "a model that a script loads": (olive(input_model={"type": "PyTorchModel", "model_path": "net", "model_loader": "load", "model_script": "evil.py"}), 2, "PyTorchModel"),
    "a checkpoint with a script": (olive(input_model={"type": "HfModel", "model_path": "net", "model_script": "evil.py"}), 2, "input_model: model_script"),
    "a graph with a script": (olive(input_model={**INPUT, "model_script": "evil.py"}), 2, "input_model: model_script"),
    "a directory of scripts": (olive(input_model={**INPUT, "config": {"script_dir": "."}}), 2, "input_model: script_dir"),
    "a loader": (olive(input_model={**INPUT, "model_loader": "evil:load"}), 2, "input_model: model_loader"),
    "a task of its own": (olive(input_model={**INPUT, "custom_task_class_module": "evil"}), 2, "input_model: custom_task_class_module"),
    "a script of a pass": (with_pass("OrtTransformersOptimization", user_script="evil.py"), 2, "user_script"),
    "a directory of a pass": (with_pass("OrtTransformersOptimization", script_dir="."), 2, "script_dir"),
    "a script of quantization": (with_pass("OnnxDynamicQuantization", user_script="evil.py"), 2, "user_script"),
    "a pass that is a function": (with_pass("evil:build"), 2, "evil:build"),
    "a pass that is a file": (with_pass("./evil.py"), 2, "./evil.py"),
    "calibration by a script": (with_pass("OnnxStaticQuantization", data_config="evil"), 2, "OnnxStaticQuantization"),
    "data by a script": (olive(data_configs=[{"name": "d", "user_script": "evil.py", "type": "Evil"}]), 0, ""),
    "an evaluator by a script": (olive(evaluators={"e": {"user_script": "evil.py", "metrics": []}}), 0, ""),
    "a Python of its own": (olive(systems={"s": {"type": "PythonEnvironment", "python_environment_path": "."}}), 0, ""),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a graph, a script, an interpreter of a stranger's, and a temporary directory of its own."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    onnx.save(onnx.parser.parse_model(GRAPH), tmp_path / "net.onnx")
    for name in ("evil.py", "sitecustomize.py"):
        (tmp_path / name).write_text(SCRIPT)
    (tmp_path / "python").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def check(done: Any, status: int, said: str) -> None:
    """Nothing ran, and a refusal leaves nothing behind."""
    assert done.ended(status, said) and not Path("ran").exists()
    if status:
        parts = ("temp", "r/blobs", "r/index", "r/local/tmp")
        assert not [path for part in parts for path in Path(part).rglob("*") if path.is_file()]


@pytest.mark.parametrize("case", OLIVE)
def test_scripts_of_a_document_of_olive_are_not_run(reg: Reg, place: Path, case: str) -> None:
    document, status, said = OLIVE[case]
    (place / "olive.json").write_text(json.dumps(document))
    check(reg("--registry", "r", "export", "--recipe", "olive.json", "--name", "acme/x"), status, said)


YAML = {
    "a call": f"!!python/object/apply:builtins.eval [\"{CALL}\"]",
    "a new object": "!!python/object/new:os.system ['touch ran']",
    "a name": "!!python/name:os.system",
    "a module": "!!python/module:evil",
    "a tuple": "!!python/tuple [1, 2]",
    "bytes": "!!binary aGVsbG8=",
    "a tag of nobody's": "!evil {a: 1}",
    "an alias": "[&a [x, x], *a, *a]",
    "a merge": "{<<: {a: 1}, task: onnx}",
    "a key twice": "{task: onnx, task: onnx}",
    "many brackets": "[" * 5000,
    "a date that there is not": "2026-99-99",
    "two documents": "a: 1\n---\nb: 2",
}  # fmt: skip


@pytest.mark.parametrize("kind", sampled(["--recipe", "--batch"], 2))
@pytest.mark.parametrize("case", YAML)
def test_hostile_yaml_is_refused(reg: Reg, place: Path, case: str, kind: str) -> None:
    (place / "file.yaml").write_text(YAML[case])
    name = ("--name", "acme/x") if kind == "--recipe" else ()
    check(reg("--registry", "r", "export", kind, "file.yaml", *name), 2, "file.yaml")


TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch ran') }}{{ ''.__class__.__mro__ }}"
SELF = {
    "AutoConfig": "evil.Config",
    "AutoModel": "evil.Model",
    "AutoModelForTokenClassification": "evil.Model",
}
CHECKPOINTS: dict[str, tuple[dict[str, dict[str, Any]], int, str]] = {
    "code of its own": ({"config.json": {"auto_map": SELF}}, 2, "pass --trust-remote-code"),
    "code of another repository": ({"config.json": {"auto_map": {"AutoConfig": "evil/x--evil.Config"}}}, 2, "--trust-remote-code"),
    "code of its tokenizer": ({"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["evil.T", None]}}}, 2, "--trust-remote-code"),
    "code deep inside": ({"config.json": {"text_config": {"a": [{"auto_map": SELF}]}}}, 2, "--trust-remote-code"),
    "trust in itself": ({"config.json": {"auto_map": SELF, "trust_remote_code": True}}, 2, "--trust-remote-code"),
    "an adapter of another model": ({"adapter_config.json": {"base_model_name_or_path": "evil", "peft_type": "LORA"}}, 2, "adapter"),
    "a kernel of the hub": ({"config.json": {"attn_implementation": "evil/kernel", "_attn_implementation": "evil/kernel"}}, 9, "kernels"),
    "a template": ({"tokenizer_config.json": {"chat_template": TEMPLATE}}, 0, ""),
    "templates by name": ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": TEMPLATE}]}}, 0, ""),
    "a class of its tokenizer": ({"tokenizer_config.json": {"tokenizer_class": "evil.Tokenizer"}}, 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_code_of_a_checkpoint_is_not_run(reg: Reg, bert: Path, place: Path, case: str) -> None:
    changes, status, said = CHECKPOINTS[case]
    source = Path(shutil.copytree(bert, "checkpoint"))
    for file, change in changes.items():
        before = json.loads((source / file).read_text()) if (source / file).exists() else {}
        (source / file).write_text(json.dumps({**before, **change}))
    shutil.copy("evil.py", source)
    done = reg("--registry", "r", "export", source, "--task", "token-classification", "--name", "acme/x")
    if status == 0 and done.status == 2:
        status, said = 2, "could not be"
    check(done, status, said)


class Bomb:
    """Makes the directory `ran` when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def armed(source: Path) -> Path:
    """A copy of a checkpoint whose weights are a pickle that does more than hold tensors."""
    import torch
    from safetensors.torch import load_file

    target = Path(shutil.copytree(source, "armed"))
    tensors: dict[str, Any] = dict(load_file(target / "model.safetensors"))
    (target / "model.safetensors").unlink()
    torch.save({**tensors, next(iter(tensors)): Bomb()}, target / "pytorch_model.bin")
    return target


@pytest.mark.parametrize("words", ["--profile android", "--task token-classification"])
def test_a_pickle_in_place_of_weights_is_not_read(reg: Reg, place: Path, bert: Path, words: str) -> None:
    done = reg("--registry", "r", "export", armed(bert), *words.split(), "--name", "acme/x")
    check(done, 2, "more than tensors")


DECODER = "task: text-generation\nsteps: [{name: int4, pass: ModelBuilder, params: {precision: int4}}]\n"


@pytest.mark.parametrize("kind", ["code", pytest.param("pickle", marks=pytest.mark.more)])
def test_code_of_a_decoder_is_not_run(
    reg: Reg, place: Path, make_checkpoint: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write_llama(place / "llama")
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, "llama")
    Path("decoder.yaml").write_text(DECODER)
    if kind == "code":
        monkeypatch.setattr(model_builder, "subprocess", in_process)
        shutil.copy("evil.py", "llama/own.py")
        config = json.loads(Path("llama/config.json").read_text())
        names = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
        Path("llama/config.json").write_text(json.dumps({**config, "auto_map": names}))
    source = armed(place / "llama") if kind == "pickle" else "llama"
    done = reg("--registry", "r", "export", source, "--recipe", "decoder.yaml", "--name", "acme/x")
    check(done, *((7, "onnxruntime-genai could not build the model") if kind == "pickle" else (0, "")))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library that makes `ran` as soon as it is loaded."""
    target = tmp_path_factory.mktemp("library") / "evil.so"
    source = target.with_suffix(".c")
    source.write_text(
        '#include <fcntl.h>\n__attribute__((constructor)) void load(void) { open("ran", O_CREAT, 0600); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    return target


def custom(graph: onnx.ModelProto) -> None:
    graph.opset_import.add(domain="evil", version=1)
    graph.graph.node[0].domain, graph.graph.node[0].op_type = "evil", "MatMul"


def with_metadata(key: str, value: str) -> Callable[[onnx.ModelProto], None]:
    return lambda graph: graph.metadata_props.add(key=key, value=value)


def external(location: str) -> Callable[[onnx.ModelProto], None]:
    def change(graph: onnx.ModelProto) -> None:
        weights = graph.graph.initializer[0]
        weights.ClearField("float_data")
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)

    return change


CONFIG = json.dumps(
    {"session_options": {"session.custom_ops_library": "./evil.so", "custom_ops_library": "./evil.so"}}
)
GRAPHS: dict[str, tuple[Callable[[onnx.ModelProto], None], int | None]] = {
    "an operator of a library": (custom, None),
    "settings of a session": (with_metadata("ort_config", CONFIG), 0),
    "a library by name": (with_metadata("custom_ops_library", "./evil.so"), 0),
    "a Python operator": (with_metadata("python_op", "evil:build"), 0),
    "weights of the system": (external("/etc/hostname"), 2),
    "weights above": (external("../secret.bin"), 2),
    "weights by a link": (external("link.bin"), 2),
    "weights that are a pipe": (external("pipe"), 2),
    "weights that are a directory": (external("."), 2),
    "weights by a URL": (external("http://127.0.0.1:1/w.bin"), 2),
    "weights without a name": (external(""), 2),
}  # fmt: skip


@pytest.mark.usefixtures("reader_in_process")
@pytest.mark.parametrize("verb", ["add", "export"])
@pytest.mark.parametrize("case", GRAPHS)
def test_libraries_of_a_graph_are_not_loaded(
    reg: Reg, place: Path, library: Path, case: str, verb: str
) -> None:
    """`reg add` only reads a graph: an operator that nobody knows is none of its business."""
    change, status = GRAPHS[case]
    folder = place / "graph"
    folder.mkdir()
    graph = onnx.parser.parse_model(GRAPH)
    change(graph)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    (place / "secret.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(place / "secret.bin")
    os.mkfifo(folder / "pipe")
    for directory in (folder, place):
        shutil.copy(library, directory)
    step = {"name": "a", "pass": PASS["type"], "params": PASS["config"]}
    Path("recipe.json").write_text(json.dumps({"task": "onnx", "steps": [step]}))
    how = ("--recipe", "recipe.json") if verb == "export" else ()
    done = reg("--registry", "r", verb, folder / "model.onnx", *how, "--name", "acme/x")
    check(done, status if status is not None else 2 if verb == "export" else 0, "")
