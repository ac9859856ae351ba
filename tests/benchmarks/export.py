"""The android export against OpenMed's own converter: the same checkpoint, the same kinds of output."""

import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed

BUDGET_SECONDS = 60


def benchmark(checkpoint: Path, cache: Path, count: int = 7) -> list[Row]:
    """fp32, fp16, INT8, ORT format, tokenizer and manifest on both sides; no evaluation suite.

    The seconds of one pair vary more than the aim is away, so it has a budget of its own.

    Each program has an environment of its own: transformers imports whatever else is installed.
    """
    reg, peer = installed(cache, "reg") / "reg", installed(cache, "openmed") / "python"
    with tempfile.TemporaryDirectory() as directory:
        home, output = Path(directory) / "home", Path(directory) / "openmed"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "OPENMED_OFFLINE": "1"}

        def again() -> Run:
            words = ["export", checkpoint, "--profile", "android", "--name", "acme/pii"]
            return run([reg, "--registry", home, *words], env)

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return again()

        def theirs() -> Run:
            shutil.rmtree(output, ignore_errors=True)
            words = ["--model", checkpoint, "--output", output, "--profile", "android"]
            return run([peer, "-m", "openmed.onnx.convert", *words], env)

        measured = pairs(ours, theirs, count, budget=BUDGET_SECONDS)
        found = [
            *rows("android export", "openmed", measured, "<= 0.65"),
            processor("android export", "openmed", measured),
        ]
        again()
        cached = [(again(), first) for first, _ in measured]
        what, first = "the same android export once more", "the first one"
        return [*found, *rows(what, first, cached, "<= 0.02"), processor(what, first, cached)]
