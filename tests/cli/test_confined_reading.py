"""`reg add` and `reg import` read model files in a process of their own, which is bounded and can be interrupted."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save
from support.sampling import sampled

from onnxreg.converters.importers import confine
from onnxreg.converters.importers.confine import Child, resident
from onnxreg.schema.core.errors import InputError

BERT = Path(__file__).parent.parent / "fixtures/openmed-v1/bert"
SIZE = (BERT / "model.onnx").stat().st_size
ADD = ("--registry", "r", "add", "model.onnx", "--name", "acme/m")
IMPORT = ("--registry", "r", "import", "export", "--name", "acme/m")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    shutil.copy(BERT / "model.onnx", tmp_path)
    shutil.copytree(BERT, tmp_path / "export")


@pytest.mark.parametrize(
    ("words", "figure", "value", "said"),
    [
        (ADD, "BASE_MEMORY_BYTES", 2**20, "takes more than 0.0 GiB of memory"),
        (IMPORT, "BASE_MEMORY_BYTES", 2**20, "takes more than 0.0 GiB of memory"),
        (ADD, "BASE_SECONDS", 0.0, "takes more than 0 seconds"),
        # less than nothing for each byte: the limits count those of the file, and the message names it
        (ADD, "MEMORY_PER_BYTE", -(2**30), f"model.onnx: reading it takes more than {2 - SIZE:.1f} GiB"),
        (ADD, "BYTES_PER_SECOND", -1, f"model.onnx: reading it takes more than {60 - SIZE:.0f} seconds"),
    ],
)
def test_a_file_that_takes_too_much(reg, monkeypatch, words, figure, value, said):
    monkeypatch.setattr(confine, figure, value)
    assert reg(*words).ended(2, said) and not Path("r").exists()


SPOILED: dict[str, Callable[[Path], object]] = {
    "id2label.json": lambda path: path.write_text('{"0": "A"}'),
    "recall_delta.json": Path.unlink,
    "tokenizer.json": Path.unlink,
    "openmed-onnx.json": lambda path: path.write_text("{}"),
    "model_fp16.onnx": lambda path: path.write_bytes(b"x"),
}


@pytest.mark.parametrize("file", sampled(SPOILED, 3))
def test_an_error_of_an_import_names_its_own_file(reg, file):
    SPOILED[file](Path("export", file))
    message = reg(*IMPORT, "--json").error["message"]
    names = {path.name for path in BERT.iterdir()} - {"config.json", "openmed-onnx.json"}
    assert file in message and not [name for name in names - {file} if name in message]


def test_a_reader_that_dies_is_an_error_and_one_with_a_bug_a_bug(tmp_path):
    """Nothing of it is left."""
    with Child() as child:
        pid = child._process.pid
        assert resident(pid) > 0
        child._process.send_signal(signal.SIGSEGV)
        with pytest.raises(InputError, match=r"the process that read it ended \(signal 11\)"):
            child.adopt(source=[tmp_path / "model.onnx"], workspace=tmp_path, name="m")
    assert resident(pid) == 0
    with Child() as child, pytest.raises(RuntimeError, match=r"(?s)Traceback.*TypeError: .*name"):
        child.adopt(source=[], workspace=tmp_path)


def test_a_reader_that_stalls_in_a_message_has_no_more_time(tmp_path, monkeypatch):
    stalling = tmp_path / "python"
    stalling.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nos.write(int(sys.argv[-1]), b'\\0\\0\\4\\0{{')\ntime.sleep(60)\n"
    )
    stalling.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stalling))
    monkeypatch.setattr(confine, "BASE_SECONDS", 2.0)
    with Child() as child, pytest.raises(InputError, match="takes more than 2 seconds"):
        child.adopt(source=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.onnx", "other.onnx cannot be read: Input/output error"),
        pytest.param(f"{'x' * 300}.onnx", "reading failed: File name too long", marks=pytest.mark.more),
    ],
)
def test_a_disk_that_fails_is_no_fault_of_the_file(reg, tmp_path, name, message):
    Path("other.onnx").symlink_to("/proc/self/mem")
    done = reg("--registry", "r", "add", name, "model.onnx", "--name", "acme/m")
    assert done.ended(9, message) and str(tmp_path) not in done.err and "/proc" not in done.err


def test_ctrl_c_ends_the_command_and_its_reader(tmp_path):
    values = [f"v{index}" for index in range(60_000)]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(values)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in (values[0], values[-1])]
    save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])), tmp_path / "model.onnx")
    words = [sys.executable, "-m", "onnxreg.cli", *ADD]
    command = subprocess.Popen(words, stderr=subprocess.PIPE, cwd=tmp_path)
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while not children.read_text() and command.poll() is None:
        os.sched_yield()
    (reader,) = map(int, children.read_text().split())
    command.send_signal(signal.SIGINT)
    _, said = command.communicate()
    assert command.returncode == 130, said
    assert b"interrupted" in said and b"Traceback" not in said and resident(reader) == 0


@pytest.mark.parametrize("suffix", sampled([".onnx", ".ort", ".json"], 2))
@pytest.mark.parametrize("kind", sampled(["pipe", "device"], 2))
def test_a_pipe_or_a_device_is_no_file(reg, suffix, kind):
    path = Path(f"hostile{suffix}")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert reg(*ADD, path).ended(2, f"{path} is not a regular file")
    if suffix == ".ort":
        path.replace("export/model.ort")
        assert reg(*IMPORT).ended(2, "model.ort")


@pytest.mark.more
def test_a_refusal_that_the_source_claims_is_never_preferred(reg):
    path = Path("export/openmed-onnx.json")
    text = path.read_text()
    assert '"certified": true' in text
    path.write_text(text.replace('"certified": true', '"certified": false'))
    assert reg(*IMPORT).status == 0
    assert reg("--registry", "r", "show", "acme/m", "--full").ended(0, "as claimed by the source")
    answer = reg("--registry", "r", "resolve", "acme/m", "--json").json
    assert answer["artifact"]["path"] != "model_int8.onnx"
