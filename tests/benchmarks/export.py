"""The android export against OpenMed's own converter: the same checkpoint, the same kinds of output."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row, Run, pairs, processor, rows, run

PEER = "openmed==3.1.0"
PINS = Path(__file__).parents[2] / "constraints.txt"


def peer_python(cache: Path) -> Path:
    """The interpreter of an environment that holds OpenMed and the same torch, transformers, onnx, onnxruntime."""
    python = cache / "peers" / "openmed" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        wanted = [PEER, "torch", "transformers", "onnx", "onnxruntime", "onnxscript", "safetensors"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", PINS, *wanted], check=True)
    return python


def benchmark(checkpoint: Path, cache: Path, count: int = 3) -> list[Row]:
    """fp32, fp16, INT8, ORT format, tokenizer and manifest on both sides; no evaluation suite."""
    reg, peer = str(Path(sys.executable).with_name("reg")), peer_python(cache)
    with tempfile.TemporaryDirectory() as directory:
        home, output = Path(directory) / "home", Path(directory) / "openmed"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "OPENMED_OFFLINE": "1"}

        def again() -> Run:
            return run(
                [reg, "--registry", home, "export", checkpoint, "--profile", "android", "--name", "acme/pii"],
                env,
            )

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return again()

        def theirs() -> Run:
            shutil.rmtree(output, ignore_errors=True)
            convert = [
                "-m",
                "openmed.onnx.convert",
                "--model",
                checkpoint,
                "--output",
                output,
                "--profile",
                "android",
            ]
            return run([peer, *convert], env)

        found = rows("android export", PEER, pairs(ours, theirs, count), "< 1")
        ours()
        cached = pairs(again, ours, count)
        what, first = "the same android export once more", "the first one"
        return [*found, *rows(what, first, cached, "<= 0.02"), processor(what, first, cached)]
