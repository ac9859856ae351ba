"""The cost of verdicts: a search over eight candidates against a plain export."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Row, Run, row, rows, run

SUITES = ("heldout.jsonl", "confirm.jsonl")
EIGHT = (
    *("int8-int8-embeddings", "weights4-int8-embeddings", "weights8-128-int8-embeddings"),
    *("weights8-64-int8-embeddings", "weights8-32-int8-embeddings", "weights8-32-fp16-embeddings"),
    *("fp16", "int8"),
)


def benchmark(trained: Path) -> list[Row]:
    """The model of the demo, suites of 600 texts. One pair: a search takes a minute, and prepares nothing that a second one would have."""
    reg = str(Path(sys.executable).with_name("reg"))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "REG_STATE": f"{directory}/state"}
        words = ["export", trained / "0.2.0", "--profile", "android", "--name", "acme/pii"]
        suite = ["--eval-suite", trained / SUITES[0]]
        search = ["--certify", "--objective", "latency", "--confirm-suite", trained / SUITES[1]]
        names = [f"--candidate={name}" for name in EIGHT]

        def export(*more: str | Path) -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([reg, "--registry", home, *words, *suite, *more], env)

        searched = export(*search, *names)
        full, smallest = _sizes(home)
        plain = export()
    what, peer = (
        "a search over eight candidates, all judged and timed",
        "the plain android export with its suite",
    )
    aim, small = "<= 0.45, <= 0.30 with INT8 embeddings", "the smallest certified file of the eight"
    found = rows(what, peer, [(searched, plain)], "<= 4")
    return [*found, row(small, "its fp32 file", [(smallest, full)], "MB", aim)]


def _sizes(home: Path) -> tuple[float, float]:
    """Megabytes of the full-precision artifact, and of the smallest certified one."""
    from onnxreg.registry import Registry

    artifacts = Registry(home).get("acme/pii").manifest.artifacts
    full = [artifact.own_size for artifact in artifacts if artifact.path == "model.onnx"]
    certified = [artifact.own_size for artifact in artifacts if artifact.certification.state == "certified"]
    return full[0] / 1e6, min(certified) / 1e6
