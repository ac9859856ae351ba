"""`reg export` in a process of its own: it hangs, dies, fails or is interrupted, and nothing is left."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.terminal import read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
PROGRAM = """
import ctypes, os, pickle, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from onnxreg.cli.main import main
from onnxreg.converters import request
from onnxreg.converters.onnx.onnx_graph import MissingDataError
from onnxreg.schema.core.errors import ConversionError

class LibraryError(OSError):  # pickle cannot make it again
    def __init__(self, message, *, path):
        super().__init__(2, message, path)

def fail(error):
    raise error

def run(plan, workspace, cache, progress):
    progress.step("running fp32")
    (workspace / "half").write_bytes(b"half")
    helper = subprocess.Popen(["sleep", "600"], stdout=-3, stderr=-3)
    Path("pids").write_text(f"{os.getpid()} {helper.pid}")
    {
        "hang": lambda: ctypes.PyDLL(None).pause(),
        "crash": lambda: ctypes.string_at(0),
        "killed": lambda: os.kill(os.getpid(), 9),
        "exit": lambda: os._exit(3),
        "error": lambda: fail(MissingDataError("it broke", "mend it", ["a"])),
        "full": lambda: fail(OSError(28, "No space left on device", "x.onnx")),
        "library": lambda: fail(LibraryError("not here", path="x.json")),
        "bug": lambda: 1 / 0,
        "done": lambda: print("said by a library", flush=True),
    }[os.environ["END"]]()
    from support.command_line import make_draft
    return make_draft(workspace / "made", "acme/x"), []

request.run = run
request.ExportRequest.plan = lambda self: SimpleNamespace(name="acme/x", warnings=lambda: ())
sys.argv[1:1] = ["--registry", "r"]
assert "multiprocessing" not in sys.modules
sys.exit(main())
"""
"""`reg` with an export that needs no PyTorch, and ends as the variable `END` says."""
WORDS = ("export", "x", "--task", "pooling", "--name", "acme/x")

Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Start the program as the leader of a session, which it ends with."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), *sys.path]))
    started = list["subprocess.Popen[str]"]()

    def run(end: str, *words: str, **pipes: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROGRAM, *WORDS, *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | pipes
        process = subprocess.Popen(
            command, text=True, env={**os.environ, "END": end}, start_new_session=True, **pipes
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def running() -> list[int]:
    """The processes of the export and its helper that have not ended."""
    pids = map(int, Path("pids").read_text().split())
    states = {pid: Path(f"/proc/{pid}/stat") for pid in pids}
    return [pid for pid, stat in states.items() if stat.exists() and " Z " not in stat.read_text()]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


ENDS = {
    "hang": (7, "a step took longer than 0.005 minutes, so the work was ended while running fp32"),
    "crash": (7, "the process that did the work was ended by SIGSEGV while running fp32"),
    "killed": (9, "the process that did the work was ended by SIGKILL while running fp32"),
    "exit": (7, "the process that did the work ended with status 3 while running fp32"),
    "error": (2, "it broke"),
    "full": (9, "writing to r failed: No space left on device"),
    "library": (9, "x.json: not here"),
}


@pytest.mark.parametrize("end", [*ENDS, "hang --json"])
def test_an_export_that_does_not_end_or_dies_is_an_error(end, start):
    end, *words = end.split()
    process = start(end, "--timeout", "0.005" if end == "hang" else "0", *words)
    out, said = process.communicate(timeout=60)
    status, message = ENDS[end]
    assert (process.returncode, out) == (status, "")
    if words:
        assert json.loads(said)["error"]["message"] == message
    else:
        assert said.startswith(f"running fp32 ...\nerror: {message}\nhint: ")
    assert running() == [] and not Path("r").exists()


def test_a_limit_is_a_number(start):
    said = start("done", "--timeout", "nan").communicate(timeout=60)[1]
    assert said == "error: --timeout is not a number\n"


def test_a_bug_shows_its_traceback(start):
    process = start("bug")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "ZeroDivisionError" in said
    assert running() == [] and not Path("r").exists()


def test_an_export_is_published_by_the_process_that_watches(start):
    process = start("done", "--json")
    out, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert out.startswith("said by a library\n{") and '"ref": "acme/x:0.1.0"' in out
    assert running() == [] and list(Path("r/local/tmp").iterdir()) == []


@pytest.mark.parametrize(("sent", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
def test_a_signal_ends_the_export_and_what_it_started(sent, status, start):
    process = start("hang")
    until(lambda: Path("pids").exists() and len(running()) == 2)
    process.send_signal(getattr(signal, sent))
    said = process.communicate(timeout=60)[1]
    assert process.returncode == status and "Traceback" not in said
    until(lambda: len(running()) == (sent == "SIGKILL"))
    if sent == "SIGKILL":  # what the export started goes on to its end
        os.kill(*running(), signal.SIGTERM)
    else:
        assert not Path("r").exists()


def test_ctrl_c_on_a_terminal(start, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = pty.openpty()

    def lead() -> None:
        os.close(os.open(os.ttyname(2), os.O_RDWR))  # the terminal controls this session

    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start("hang", **pipes, preexec_fn=lead)
    os.close(theirs)
    drawn = b""
    while b"running fp32" not in drawn:
        drawn += (piece := read(ours))
        assert piece, drawn
    until(lambda: Path("pids").exists() and len(running()) == 2)
    os.write(ours, b"\x03")
    drawn = b"".join(iter(lambda: read(ours), b""))
    os.close(ours)
    assert process.wait() == 130 and b"interrupted" in drawn and b"Traceback" not in drawn
    assert running() == [] and not Path("r").exists()


ENDLESS = """<ir_version: 8, opset_import: ["" : 18]>
net (float[2] x) => (float[2] y) <int64 n = {4611686018427387904}, bool c = {1}> {
  y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] a) => (bool l, float[2] z) { l = Identity(k) z = Add(a, a) }>
}"""


def test_a_graph_that_never_ends_can_be_interrupted(reg, reader_in_process):
    """ONNX Runtime does not return to Python, which would see the signal."""
    onnx.save(onnx.parser.parse_model(ENDLESS), "endless.onnx")
    Path("x.json").write_text('{"x": [1, 2]}')
    assert reg("--registry", "r", "add", "endless.onnx", "--name", "acme/endless").status == 0
    words = ("--registry", "r", "run", "acme/endless", "--input", "x.json")
    command, pipes = [sys.executable, "-m", "onnxreg.cli", *words], {"stdout": -1, "stderr": -1}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        until(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "") and said.startswith("error: interrupted\n")
