"""Checkpoints, rows, suites and reports that mean harm or are broken: a clear refusal, no traceback, and no code that ran.

Each attack writes one file. What would run makes the directory `ran`.
"""

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.command_line import Reg
from support.sampling import sampled

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
def test_a_hostile_checkpoint_of_torch_is_refused(reg: Reg, vision: Path, case: str, suffix: str) -> None:
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
def test_a_hostile_checkpoint_of_safetensors_is_refused(reg: Reg, vision: Path, case: str) -> None:
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
    "no rows": (lambda: arrays(x=X[:0]), "holds no rows"),
    "other names": (lambda: arrays(y=X), "the graph takes x; given were y"),
    "a name that is a path": (lambda: archive(**{"../../x.npy": array_file(header("(1, 2)"), bytes(8))}), "the graph takes x"),
    "text in the rows": (lambda: arrays(x=np.array([["a", "b"]])), "x"),
    "another width": (lambda: arrays(x=np.ones((4, 3), np.float32)), "x"),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_hostile_rows_are_refused(reg: Reg, tmp_path: Path, case: str) -> None:
    data, said = NPZ[case]
    onnx.save(onnx.parser.parse_model(GRAPH), tmp_path / "net.onnx")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "rows.npz").write_bytes(data())
    done = reg("--registry", "r", "export", "net.onnx", "--recipe", "rows.json", "--name", "acme/x", "--json")
    check(done, done.status, said)
    assert done.status in (2, 7)


SECRET = "Dr Okonkwo"
FIXTURE = {"id": "a", "text": f"seen by {SECRET}", "gold_spans": [{"start": 8, "end": 18, "label": "NAME"}]}


def line(**changes: Any) -> bytes:
    return json.dumps({**FIXTURE, **changes}).encode()


def span(**changes: Any) -> bytes:
    return line(gold_spans=[{"start": 8, "end": 18, "label": "NAME", **changes}])


SUITES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a pickle": (lambda: pickle.dumps(Bomb()), "line 1"),
    "no JSON": (lambda: b"{'id': 1}", "line 1"),
    "no UTF-8": (lambda: b'{"text": "\xff"}', "line 1"),
    "a key that stands twice": (lambda: b'{"text": "a", "text": "b", "gold_spans": []}', "line 1"),
    "many brackets": (lambda: b'{"text": "a", "gold_spans": ' + b"[" * 100_000, "line 1"),
    "a number of many digits": (lambda: b'{"text": "a", "gold_spans": [{"start": ' + b"9" * 5000 + b"}]}", "line 1"),
    "no text": (lambda: line(text=None), "`text`"),
    "spans that are no list": (lambda: line(gold_spans={}), "`gold_spans`"),
    "an offset that is true": (lambda: span(start=True), "start"),
    "offsets backwards": (lambda: span(start=18, end=8), "offsets 18-8"),
    "offsets behind the end": (lambda: span(end=10**9), "are outside a text"),
    "another text than at the offsets": (lambda: span(text="Mr Smith"), "`text` is not the text at"),
    "a label that is none": (lambda: span(label=["NAME"]), "label"),
    "spans that overlap": (lambda: line(gold_spans=FIXTURE["gold_spans"] * 2), "overlap"),
    "an id twice": (lambda: line() + b"\n" + line(), "its id was used before, at line 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", SUITES)
def test_a_hostile_evaluation_suite_is_refused(reg: Reg, bert: Path, tmp_path: Path, case: str) -> None:
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
def test_a_hostile_report_is_refused(reg: Reg, home: Path, tmp_path: Path, case: str) -> None:
    """Nothing of it is put on record."""
    content, said = REPORTS[case]
    data = content if isinstance(content, bytes) else report(home, **content)
    (tmp_path / "report.json").write_bytes(data)
    before = Registry(home).log("acme/pii")
    check(reg("--registry", home, "attest", "acme/pii:0.2.0", "--report", "report.json", "--json"), 2, said)
    assert Registry(home).log("acme/pii") == before


def test_an_honest_certificate_is_taken(reg: Reg, home: Path, tmp_path: Path) -> None:
    """What the attacks change is all that is wrong with them."""
    (tmp_path / "report.json").write_bytes(report(home))
    done = reg("--registry", home, "attest", "acme/pii:0.2.0", "--report", "report.json")
    assert done.status == 0, done.err


def test_honest_weights_and_rows_are_taken(reg: Reg, vision: Path) -> None:
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
def test_a_named_file_without_an_end_is_refused_unread(reg: Reg, fifo: Path, words: str, file: str) -> None:
    named = {"ort": "1.23", "build": "minimal", "operators_file": str(Path(fifo.parent, file))}
    (fifo.parent / "device.json").write_text(json.dumps(named))
    done = reg(*words.replace("./FILE", str(Path(fifo.parent, file))).replace("FILE", file).split())
    assert done.status == 2, done.err
    assert "Traceback" not in done.err
    assert Path(file).name in done.err
