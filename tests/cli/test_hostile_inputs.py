"""Documents, checkpoints, graphs, rows, suites and reports that mean harm or are broken: a clear refusal, no traceback,
and no code that ran.

Each attack writes one file. What would run makes `ran`, a file or a directory; what only names code and can do without
it is read all the same.
"""

import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import in_process
from support.command_line import Reg
from support.docs.nets import write_llama
from support.sampling import sampled

from onnxreg.converters.passes import model_builder
from onnxreg.registry import Registry

NET = "import torch\n\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))\n"
VISION = {"task": "image-classification", "options": {"input": [1, 2, 2]}, "steps": [{"name": "a", "pass": "OnnxConversion"}]}  # fmt: skip
GRAPH = """<ir_version: 8, opset_import: ["" : 18]>
net (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> { y = MatMul(x, w) }"""
ROWS = {"task": "onnx", "options": {"data": "rows.npz"}, "steps": [{"name": "a", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 18}}]}  # fmt: skip


class Bomb:
    """Makes a directory when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def check(done: Any, status: int, said: str) -> None:
    assert (done.status, done.out) == (status, ""), done.err
    assert "Traceback" not in done.err
    assert said in done.error["message"], done.err
    assert not Path("ran").exists()


def saved(value: Any, **how: Any) -> bytes:
    import torch

    target = io.BytesIO()
    torch.save(value, target, **how)
    return target.getvalue()


def weights(**changes: Any) -> dict[str, Any]:
    import torch

    found = {"1.weight": torch.zeros(2, 4), "1.bias": torch.zeros(2), **changes}
    return {name: value for name, value in found.items() if value is not None}


def archive(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return target.getvalue()


def script() -> bytes:
    import torch

    target = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 2), torch.zeros(1, 4)), target)  # type: ignore[no-untyped-call]
    return target.getvalue()


def tensor(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.zeros(*shape, dtype=getattr(torch, dtype))


ONLY_TENSORS = "is not a checkpoint of tensors alone"
TORCH: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pickle among the tensors": (lambda: saved(weights(**{"1.bias": Bomb()})), ONLY_TENSORS),
    "a pickle at the top": (lambda: saved(Bomb()), ONLY_TENSORS),
    "a pickle beside the state": (lambda: saved({"state_dict": weights(), "epoch": Bomb()}), ONLY_TENSORS),
    "a pickle of the old form": (lambda: saved(Bomb(), _use_new_zipfile_serialization=False), ONLY_TENSORS),
    "a bare pickle": (lambda: pickle.dumps(Bomb()), ONLY_TENSORS),
    "a pickle that calls eval": (lambda: b"c__builtin__\neval\n(S'__import__(\"os\").mkdir(\"ran\")'\ntR.", ONLY_TENSORS),
    "an archive that only says so": (lambda: archive(**{"x/data.pkl": pickle.dumps(Bomb()), "x/version": b"3"}), ONLY_TENSORS),
    "a script": (script, ONLY_TENSORS),
    "an empty file": (lambda: b"", ONLY_TENSORS),
    "a page": (lambda: b"<html>404</html>", "is a web page"),
    "cut short": (lambda: saved(weights())[:-200], ONLY_TENSORS),
    "nothing in it": (lambda: saved({}), "tensors by name"),
    "numbers by name": (lambda: saved({"1.weight": 5}), "tensors by name"),
    "a tensor too many": (lambda: saved(weights(**{"2.bias": tensor(2)})), "the module has no place for 2.bias"),
    "a tensor too few": (lambda: saved(weights(**{"1.bias": None})), "has no values for 1.bias"),
    "another shape": (lambda: saved(weights(**{"1.bias": tensor(3)})), "has other shapes than the module for 1.bias"),
    "complex numbers": (lambda: saved(weights(**{"1.bias": tensor(2, dtype="complex64")})), "other kinds of numbers than the module for 1.bias"),
    "a sparse tensor": (lambda: saved(weights(**{"1.weight": tensor(2, 4).to_sparse()})), "other kinds of numbers than the module for 1.weight"),
}  # fmt: skip


@pytest.fixture
def vision(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "vision.json").write_text(json.dumps(VISION))
    return tmp_path


def export_weights(reg: Reg, path: str) -> Any:
    words = ("net.py:build", "--recipe", "vision.json", "--checkpoint", path, "--name", "acme/x", "--json")
    return reg("--registry", "r", "export", *words)


@pytest.mark.parametrize("suffix", sampled(["pth", "ckpt"], 2))
@pytest.mark.parametrize("case", TORCH)
def test_a_hostile_checkpoint_of_torch_is_refused(reg, vision, case, suffix):
    data, said = TORCH[case]
    (vision / f"best.{suffix}").write_bytes(data())
    check(export_weights(reg, f"best.{suffix}"), 2, said)


def tensors(header: Any, data: bytes = bytes(40), size: int | None = None) -> bytes:
    """A safetensors file of a header, which may say what is not so."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


WEIGHT, BIAS = entry("F32", [2, 4], 0, 32), entry("F32", [2], 32, 40)
SAFETENSORS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pickle": (lambda: saved(Bomb()), ONLY_TENSORS),
    "a bare pickle": (lambda: pickle.dumps(Bomb()), ONLY_TENSORS),
    "a page": (lambda: b"<html>404</html>", "is a web page"),
    "cut short": (lambda: tensors({"1.weight": WEIGHT, "1.bias": BIAS})[:-4], ONLY_TENSORS),
    "bytes behind the end": (lambda: tensors({"1.weight": WEIGHT, "1.bias": BIAS}, bytes(44)), ONLY_TENSORS),
    "a header without an end": (lambda: tensors({"1.weight": WEIGHT}, size=2**60), ONLY_TENSORS),
    "a header that is no JSON": (lambda: tensors(b"{'1.weight'"), ONLY_TENSORS),
    "a header of many brackets": (lambda: tensors(b"[" * 100_000), ONLY_TENSORS),
    "two tensors in one place": (lambda: tensors({"1.weight": WEIGHT, "1.bias": entry("F32", [2], 0, 8)}), ONLY_TENSORS),
    "a place behind the end": (lambda: tensors({"1.weight": WEIGHT, "1.bias": entry("F32", [2], 2**50, 2**50 + 8)}), ONLY_TENSORS),
    "a shape that overflows": (lambda: tensors({"1.weight": entry("F32", [2**62, 2**62], 0, 32), "1.bias": BIAS}), ONLY_TENSORS),
    "a type that there is not": (lambda: tensors({"1.weight": entry("X9", [2, 4], 0, 32), "1.bias": BIAS}), ONLY_TENSORS),
    "no tensors": (lambda: tensors({}, b""), "tensors by name"),
    "a tensor too few": (lambda: tensors({"1.weight": WEIGHT}, bytes(32)), "has no values for 1.bias"),
    "another shape": (lambda: tensors({"1.weight": entry("F32", [4, 2], 0, 32), "1.bias": BIAS}), "has other shapes than the module for 1.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAFETENSORS)
def test_a_hostile_checkpoint_of_safetensors_is_refused(reg, vision, case):
    data, said = SAFETENSORS[case]
    (vision / "best.safetensors").write_bytes(data())
    check(export_weights(reg, "best.safetensors"), 2, said)


def arrays(**members: Any) -> bytes:
    target = io.BytesIO()
    np.savez(target, allow_pickle=True, **members)
    return target.getvalue()


def array_file(header: str, data: bytes = b"") -> bytes:
    """An `.npy` member of a header, which may say what is not so."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def header(shape: str, kind: str = "<f4") -> str:
    return f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}"


def flagged(data: bytes, at: int, value: int) -> bytes:
    """A ZIP archive with a field of all its headers changed, such as the flags or the method."""
    found = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        start = found.find(signature)
        struct.pack_into("<H", found, start + offset, value)
    return bytes(found)


PLAIN = "is not an .npz file of plain arrays"
X = np.ones((4, 2), np.float32)
NPZ: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pickle in an array": (lambda: arrays(x=np.array([Bomb()], object)), PLAIN),
    "a pickle beside the rows": (lambda: arrays(x=X, y=np.array([Bomb()] * 4, object)), PLAIN),
    "a bare pickle": (lambda: pickle.dumps(Bomb()), PLAIN),
    "an empty file": (lambda: b"", PLAIN),
    "a pickle as a member": (lambda: archive(**{"x.npy": pickle.dumps(Bomb())}), PLAIN),
    "a page": (lambda: b"<html>404</html>", "is a web page"),
    "cut short": (lambda: arrays(x=X)[:-30], PLAIN),
    "a header that calls": (lambda: archive(**{"x.npy": array_file("__import__('os').mkdir('ran')")}), PLAIN),
    "a header of many brackets": (lambda: archive(**{"x.npy": array_file("(" * 5000)}), PLAIN),
    "a shape larger than any memory": (lambda: archive(**{"x.npy": array_file(header("(1099511627776, 1048576)"))}), "more than there is memory for"),
    "a negative shape": (lambda: archive(**{"x.npy": array_file(header("(-4, 2)"))}), PLAIN),
    "an object type in the header": (lambda: archive(**{"x.npy": array_file(header("(1,)", "|O"), pickle.dumps(Bomb()))}), PLAIN),
    "an encrypted member": (lambda: flagged(arrays(x=X), 6, 1), PLAIN),
    "a method of compression that there is not": (lambda: flagged(arrays(x=X), 8, 77), PLAIN),
    "no arrays": (lambda: arrays(), "do not have the same number of rows"),
    "a number and no rows": (lambda: arrays(x=np.float32(1)), "do not have the same number of rows"),
    "arrays of other lengths": (lambda: arrays(x=X, y=X[:3]), "do not have the same number of rows"),
    "no rows": (lambda: arrays(x=X[:0]), "holds no rows"),
    "other names": (lambda: arrays(y=X), "the graph takes x; given were y"),
    "a name that is a path": (lambda: archive(**{"../../x.npy": array_file(header("(1, 2)"), bytes(8))}), "the graph takes x"),
    "text in the rows": (lambda: arrays(x=np.array([["a", "b"]])), "x"),
    "another width": (lambda: arrays(x=np.ones((4, 3), np.float32)), "x"),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_hostile_rows_are_refused(reg, tmp_path, case):
    data, said = NPZ[case]
    onnx.save(onnx.parser.parse_model(GRAPH), tmp_path / "net.onnx")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "rows.npz").write_bytes(data())
    done = reg("--registry", "r", "export", "net.onnx", "--recipe", "rows.json", "--name", "acme/x", "--json")
    check(done, done.status, said)
    assert done.status in (2, 7)


SECRET = "Dr Okonkwo"
SPAN = {"start": 8, "end": 18, "label": "NAME", "text": "Mr Smith"}


SUITES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pickle": (lambda: pickle.dumps(Bomb()), "line 1"),
    "another text than at the offsets": (lambda: json.dumps({"text": f"seen by {SECRET}", "gold_spans": [SPAN]}).encode(), "`text` is not the text at"),
}  # fmt: skip


@pytest.mark.parametrize("case", SUITES)
def test_a_hostile_evaluation_suite_is_refused(reg, bert, tmp_path, case):
    """What a suite says of people is in no message."""
    data, said = SUITES[case]
    (tmp_path / "suite.jsonl").write_bytes(data())
    words = (bert, "--profile", "android", "--name", "acme/x", "--eval-suite", "suite.jsonl", "--json")
    done = reg("--registry", "r", "export", *words)
    check(done, 2, said)
    assert SECRET not in done.err


def report(home: Path, **changes: Any) -> bytes:
    """An evaluation of the INT8 file, with keys changed; None leaves one out."""
    artifacts = {item.path: item.digest for item in Registry(home).get("acme/pii:0.2.0").manifest.artifacts}
    value = {
        "format": "onnxreg-evaluation",
        "format_version": 1,
        "artifact": str(artifacts["model_int8.onnx"]),
        "suite": f"sha256:{'5' * 64}",
        "state": "certified",
        "checks": [],
        **changes,
    }
    return json.dumps({key: item for key, item in value.items() if item is not None}).encode()


LOSS = {"name": "quant_recall_delta", "metric": "character_recall", "value": 0.1}
REPORTS: dict[str, tuple[Mapping[str, Any] | bytes, str]] = {
    "a pickle": (pickle.dumps(Bomb()), "report.json"),
    "no JSON": (b"{'format': 1}", "report.json"),
    "no UTF-8": (b'{"format": "\xff"}', "report.json"),
    "a key that stands twice": (b'{"state": "refused", "state": "certified"}', "state"),
    "many brackets": (b'{"state": ' + b"[" * 100_000, "report.json"),
    "a state that there is not": ({"state": "blessed"}, "state"),
    "a format of the future": ({"format_version": 2}, "format_version"),
    "no artifact": ({"artifact": None}, "artifact"),
    "an artifact that is no digest": ({"artifact": "../../etc/passwd"}, "artifact"),
    "an artifact of another version": ({"artifact": f"sha256:{'0' * 64}"}, "which is not an artifact of"),
    "another parent": ({"parent": f"sha256:{'0' * 64}"}, "which is not what model_int8.onnx was made from"),
    "no suite": ({"suite": None}, "suite"),
    "checks that are no list": ({"checks": {}}, "checks"),
    "a value that is text": ({"checks": [{**LOSS, "value": "0"}]}, "checks"),
    "an interval backwards": ({"checks": [{**LOSS, "interval": [0.2, 0.0]}]}, "checks"),
    "reasons without an end": ({"reasons": ["x" * 5000]}, "reasons"),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(REPORTS, 2))
def test_a_hostile_report_is_refused(reg, home, tmp_path, case):
    """Nothing of it is put on record."""
    content, said = REPORTS[case]
    data = content if isinstance(content, bytes) else report(home, **content)
    (tmp_path / "report.json").write_bytes(data)
    before = Registry(home).log("acme/pii")
    check(reg("--registry", home, "attest", "acme/pii:0.2.0", "--report", "report.json", "--json"), 2, said)
    assert Registry(home).log("acme/pii") == before


def test_an_honest_certificate_is_taken(reg, home, tmp_path):
    """What the attacks change is all that is wrong with them."""
    (tmp_path / "report.json").write_bytes(report(home))
    done = reg("--registry", home, "attest", "acme/pii:0.2.0", "--report", "report.json")
    assert done.status == 0, done.err


def test_honest_weights_and_rows_are_taken(reg, vision):
    (vision / "best.pth").write_bytes(saved({"epoch": 3, "state_dict": weights()}))
    (vision / "best.safetensors").write_bytes(tensors({"1.weight": WEIGHT, "1.bias": BIAS}))
    for path in ("best.pth", "best.safetensors"):
        done = export_weights(reg, path)
        assert done.status == 0, done.err
    onnx.save(onnx.parser.parse_model(GRAPH), vision / "net.onnx")
    (vision / "rows.json").write_text(json.dumps(ROWS))
    (vision / "rows.npz").write_bytes(arrays(x=X))
    done = reg("--registry", "r", "export", "net.onnx", "--recipe", "rows.json", "--name", "acme/y")
    assert done.status == 0, done.err


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO that nobody writes to: whoever opens it waits for ever."""
    os.mkfifo(tmp_path / "fifo.json")
    return tmp_path / "fifo.json"


ENDLESS = ["fifo.json", "/dev/zero"]


@pytest.mark.parametrize("file", ENDLESS)
@pytest.mark.parametrize(
    "words",
    [
        "export . --recipe FILE --name a/b",
        "export . --task text-classification --name a/b --eval-suite FILE",
        "export --batch FILE",
        "resolve a/b --device ./FILE",
        "resolve a/b --device ./device.json",
        "pull --locked FILE",
        "policy set FILE",
        "attest a/b:1.0.0 --report FILE",
        "archive verify FILE",
    ],
)
def test_a_named_file_without_an_end_is_refused_unread(reg, fifo, words, file):
    named = {"ort": "1.23", "build": "minimal", "operators_file": str(Path(fifo.parent, file))}
    (fifo.parent / "device.json").write_text(json.dumps(named))
    done = reg(*words.replace("./FILE", str(Path(fifo.parent, file))).replace("FILE", file).split())
    assert done.status == 2, done.err
    assert "Traceback" not in done.err
    assert Path(file).name in done.err


# Documents that name code

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


def check_clean(done: Any, status: int, said: str) -> None:
    """Nothing ran, and a refusal leaves nothing behind."""
    assert done.ended(status, said) and not Path("ran").exists()
    if status:
        parts = ("temp", "r/blobs", "r/index", "r/local/tmp")
        assert not [path for part in parts for path in Path(part).rglob("*") if path.is_file()]


@pytest.mark.parametrize("case", OLIVE)
def test_scripts_of_a_document_of_olive_are_not_run(reg, place, case):
    document, status, said = OLIVE[case]
    (place / "olive.json").write_text(json.dumps(document))
    check_clean(reg("--registry", "r", "export", "--recipe", "olive.json", "--name", "acme/x"), status, said)


YAML = {
    "a call": f"!!python/object/apply:builtins.eval [\"{CALL}\"]",
    "a new object": "!!python/object/new:os.system ['touch ran']",
    "an alias": "[&a [x, x], *a, *a]",
    "many brackets": "[" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("kind", sampled(["--recipe", "--batch"], 2))
@pytest.mark.parametrize("case", YAML)
def test_hostile_yaml_is_refused(reg, place, case, kind):
    (place / "file.yaml").write_text(YAML[case])
    name = ("--name", "acme/x") if kind == "--recipe" else ()
    check_clean(reg("--registry", "r", "export", kind, "file.yaml", *name), 2, "file.yaml")


TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch ran') }}{{ ''.__class__.__mro__ }}"
SELF = {
    "AutoConfig": "evil.Config",
    "AutoModel": "evil.Model",
    "AutoModelForTokenClassification": "evil.Model",
}
_TOKEN, _TEXT = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
UNNUMBERED = {
    "type": "TemplateProcessing",
    "single": [_TOKEN, _TEXT],
    "pair": [_TOKEN, _TEXT],
    "special_tokens": {},
}
"""A template of tokens that makes tokenizers panic."""
CHECKPOINTS: dict[str, tuple[dict[str, dict[str, Any]], int, str]] = {
    "code of its own": ({"config.json": {"auto_map": SELF}}, 2, "pass --trust-remote-code"),
    "code of another repository": ({"config.json": {"auto_map": {"AutoConfig": "evil/x--evil.Config"}}}, 2, "--trust-remote-code"),
    "code of its tokenizer": ({"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["evil.T", None]}}}, 2, "--trust-remote-code"),
    "code deep inside": ({"config.json": {"text_config": {"a": [{"auto_map": SELF}]}}}, 2, "--trust-remote-code"),
    "trust in itself": ({"config.json": {"auto_map": SELF, "trust_remote_code": True}}, 2, "--trust-remote-code"),
    "an adapter of another model": ({"adapter_config.json": {"base_model_name_or_path": "evil", "peft_type": "LORA"}}, 2, "adapter"),
    "a kernel of the hub": ({"config.json": {"attn_implementation": "evil/kernel", "_attn_implementation": "evil/kernel"}}, 9, "kernels"),
    "a length that is no number": ({"tokenizer_config.json": {"model_max_length": {}}}, 2, "the tokenizer of the checkpoint could not be loaded"),
    "a token without a number": ({"tokenizer.json": {"post_processor": UNNUMBERED}}, 2, "the tokenizer of the checkpoint could not be loaded"),
    "a template": ({"tokenizer_config.json": {"chat_template": TEMPLATE}}, 0, ""),
    "templates by name": ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": TEMPLATE}]}}, 0, ""),
    "a class of its tokenizer": ({"tokenizer_config.json": {"tokenizer_class": "evil.Tokenizer"}}, 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(CHECKPOINTS, 2))
def test_code_of_a_checkpoint_is_not_run(reg, bert, place, case):
    changes, status, said = CHECKPOINTS[case]
    source = Path(shutil.copytree(bert, "checkpoint"))
    for file, change in changes.items():
        before = json.loads((source / file).read_text()) if (source / file).exists() else {}
        (source / file).write_text(json.dumps({**before, **change}))
    shutil.copy("evil.py", source)
    done = reg("--registry", "r", "export", source, "--task", "token-classification", "--name", "acme/x")
    if status == 0 and done.status == 2:
        status, said = 2, "could not be"
    check_clean(done, status, said)


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
def test_a_pickle_in_place_of_weights_is_not_read(reg, place, bert, words):
    done = reg("--registry", "r", "export", armed(bert), *words.split(), "--name", "acme/x")
    check_clean(done, 2, "more than tensors")


DECODER = "task: text-generation\nsteps: [{name: int4, pass: ModelBuilder, params: {precision: int4}}]\n"


@pytest.mark.parametrize("kind", ["code", pytest.param("pickle", marks=pytest.mark.more)])
def test_code_of_a_decoder_is_not_run(reg, place, make_checkpoint, monkeypatch, kind):
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
    check_clean(done, *((7, "onnxruntime-genai could not build the model") if kind == "pickle" else (0, "")))


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


def kept_at(location: str) -> Callable[[onnx.ModelProto], None]:
    def change(graph: onnx.ModelProto) -> None:
        weights = graph.graph.initializer[0]
        weights.ClearField("float_data")
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)

    return change


SESSION = json.dumps(
    {"session_options": {"session.custom_ops_library": "./evil.so", "custom_ops_library": "./evil.so"}}
)
GRAPHS: dict[str, tuple[Callable[[onnx.ModelProto], None], int | None]] = {
    "an operator of a library": (custom, None),
    "settings of a session": (with_metadata("ort_config", SESSION), 0),
    "a library by name": (with_metadata("custom_ops_library", "./evil.so"), 0),
    "a Python operator": (with_metadata("python_op", "evil:build"), 0),
    "weights of the system": (kept_at("/etc/hostname"), 2),
    "weights by a link": (kept_at("link.bin"), 2),
    "weights that are a pipe": (kept_at("pipe"), 2),
    "weights that are a directory": (kept_at("."), 2),
    "weights by a URL": (kept_at("http://127.0.0.1:1/w.bin"), 2),
}  # fmt: skip


@pytest.mark.usefixtures("reader_in_process")
@pytest.mark.parametrize("verb", ["add", "export"])
@pytest.mark.parametrize("case", GRAPHS)
def test_libraries_of_a_graph_are_not_loaded(reg, place, library, case, verb):
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
    check_clean(done, status if status is not None else 2 if verb == "export" else 0, "")
