"""An export that is killed, interrupted, or runs out of disk: nothing half-written, nothing lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MakeCheckpoint = Callable[..., Path]
EXPORT = ("export", "--profile", "android", "--name", "acme/tiny")


def scratch(home: Path) -> list[Path]:
    return [path for path in (home / "local" / "tmp").glob("*") if path.is_dir()]


def start_and_signal(
    environment: dict[str, str], directory: Path, checkpoint: Path, sent: signal.Signals
) -> "subprocess.Popen[str]":
    """Send a signal as soon as the export has written its first graph."""
    command = [sys.executable, "-m", "onnxreg.cli", *EXPORT, str(checkpoint), "--output", "out"]
    process = subprocess.Popen(command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if list((directory / "home" / "local" / "tmp").glob("*/model.onnx")):
            process.send_signal(sent)
            break
        time.sleep(0.002)
    return process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_in_the_middle(
    reg: Callable,
    environment: dict[str, str],
    make_checkpoint: MakeCheckpoint,
    tmp_path: Path,
    sent: signal.Signals,
    code: int,
) -> None:
    checkpoint = make_checkpoint()
    reg(*EXPORT, make_checkpoint(seed=9))
    process = start_and_signal(environment, tmp_path, checkpoint, sent)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()
    if sent is signal.SIGINT:
        assert scratch(tmp_path / "home") == []
    reg("verify")
    assert "0.1.1" not in reg("ls", "acme/tiny").stdout
    reg(*EXPORT, checkpoint)
    assert scratch(tmp_path / "home") == []
    assert "0.1.1" in reg("ls", "acme/tiny").stdout


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB: less than the tiny model's artifacts need."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.name != "posix"
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounting a small file system needs privileges that are not here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(reg: Callable, make_checkpoint: MakeCheckpoint, small_disk: Path) -> None:
    reg("--registry", small_disk / "home", "add", _small(small_disk.parent), "--name", "acme/kept")
    failed = reg("--registry", small_disk / "home", *EXPORT, make_checkpoint(), code=9)
    assert "No space left" in failed.stderr
    assert "free some space" in failed.stderr
    assert scratch(small_disk / "home") == []
    reg("--registry", small_disk / "home", "verify")
    assert reg("--registry", small_disk / "home", "ls").stdout.count("acme/") == 1


def _small(directory: Path) -> Path:
    import onnx.parser

    graph = '<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
    path = directory / "neg.onnx"
    path.write_bytes(onnx.parser.parse_model(graph).SerializeToString())
    return path
