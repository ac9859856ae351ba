"""Exports of one encoder (MiniLM) against txtai, Optimum and Olive: the same checkpoint to fp32 ONNX, whole processes.

Ours also measures every graph against the checkpoint, hashes it and publishes the version. Each lives in an
environment of its own, with what it asks for.
"""

import os
import shutil
import tempfile
from pathlib import Path

from pii_encoder import fetch_encoder

from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed

PEERS = ("txtai", "optimum", "olive")
TXTAI = (
    "import sys; from txtai.pipeline import HFOnnx; HFOnnx()(sys.argv[1], 'default', sys.argv[2], opset=18)"
)


def command(peer: str, programs: Path, checkpoint: Path, output: Path) -> Command:
    """How a peer exports a checkpoint for feature extraction. Olive's default exporter fails on it (transformers 5)."""
    if peer == "txtai":
        return [programs / "python", "-c", TXTAI, checkpoint, output / "model.onnx"]
    if peer == "optimum":
        task = ["--task", "feature-extraction", "--library-name", "transformers"]
        return [programs / "optimum-cli", "export", "onnx", "-m", checkpoint, *task, output]
    task = ["--task", "feature-extraction", "--use_dynamo_exporter"]
    olive = [programs / "olive", "capture-onnx-graph", "-m", checkpoint, *task, "-o", output]
    return ["sh", "-c", 'cd "$0" && exec "$@"', output, *olive]  # its cache lies in the working directory


def benchmark(cache: Path, count: int = 3) -> list[Row]:
    """First exports, each against its peer; then ours once more, against the first ones beside the last peer."""
    checkpoint = fetch_encoder(cache.absolute() / "packages")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OLIVE_DISABLE_TELEMETRY": "1", "CI": "true"}
    found: list[Row] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        home, output = Path(directory) / "home", Path(directory) / "peer"
        reg = installed(cache, "reg") / "reg"
        export = [reg, "--registry", home, "export", checkpoint, "--task", "default", "--opset", "18"]
        ours: Command = [*export, "--name", "acme/minilm"]

        def first() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run(ours, env)

        first()
        for peer in PEERS:
            programs = installed(cache, peer)

            def theirs(peer: str = peer, programs: Path = programs) -> Run:
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir()
                done = run(command(peer, programs, checkpoint, output), env)
                if not any(output.rglob("*.onnx")):
                    raise SystemExit(f"{peer} wrote no graph")
                return done

            theirs()
            what, measured = "export of an encoder, fp32", pairs(first, theirs, count, warm_up=False)
            found += [*rows(what, peer, measured, "<= 1.1"), processor(what, peer, measured)]
        run(ours, env)
        again = [(run(ours, env), exported) for exported, _ in measured]
        return [*found, *rows("export of an encoder once more", "reg, the first time", again, "<= 0.02")]
