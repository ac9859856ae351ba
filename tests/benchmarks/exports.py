"""Exports of encoders: against OpenMed's converter, txtai, Optimum and Olive, and the cost of verdicts.

Whole processes, each in an environment of its own, because transformers imports whatever else is installed. Ours also
measures every graph against the checkpoint, hashes it and publishes the version.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from pii_encoder import fetch_encoder
from support.made_once import made_once

from benchmarks.measure import Command, Row, Run, pairs, processor, row, rows, run
from benchmarks.peers import installed

NAME = "demo/pii"
VERSIONS = ("0.1.0", "0.2.0")
KINDS: dict[str, list[str]] = {"plain": [], "int8": ["--int8-embeddings"]}


def exported(checkpoints: Path, kind: str = "plain") -> Path:
    """A directory with the files of each version in a folder of its name, and the `registry` that holds both as `NAME`.

    Groups share it: who changes the registry copies it first.
    """
    return made_once(_export, checkpoints, kind)


def _export(directory: Path, checkpoints: Path, kind: str) -> None:
    env = os.environ | {"REG_HOME": str(directory / "registry"), "REG_STATE": str(directory / "state")}
    command = [sys.executable, "-m", "onnxreg.cli", "export", "--profile", "android", *KINDS[kind]]
    for version in VERSIONS:
        names = ["--name", NAME, "--version", version, "--output", directory / version]
        run([*command, checkpoints / version, *names], env)


def android(checkpoint: Path, cache: Path, count: int = 7) -> list[Row]:
    """The android export against OpenMed's own converter, without a suite: fp32, fp16, INT8, ORT format, tokenizer, manifest.

    The seconds of one pair vary more than the aim is away, so it has a budget of its own.
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

        measured = pairs(ours, theirs, count, budget=60)
        found = [
            *rows("android export", "openmed", measured, "<= 0.65"),
            processor("android export", "openmed", measured),
        ]
        again()
        cached = [(again(), first) for first, _ in measured]
        what, first = "the same android export once more", "the first one"
        return [*found, *rows(what, first, cached, "<= 0.02"), processor(what, first, cached)]


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


def encoders(cache: Path, count: int = 3) -> list[Row]:
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


SUITES = ("heldout.jsonl", "confirm.jsonl")
EIGHT = (
    *("int8-int8-embeddings", "weights4-int8-embeddings", "weights8-128-int8-embeddings"),
    *("weights8-64-int8-embeddings", "weights8-32-int8-embeddings", "weights8-32-fp16-embeddings"),
    *("fp16", "int8"),
)


def search(trained: Path) -> list[Row]:
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
        full, smallest = _published_sizes(home)
        plain = export()
    what, peer = (
        "a search over eight candidates, all judged and timed",
        "the plain android export with its suite",
    )
    aim, small = "<= 0.45, <= 0.30 with INT8 embeddings", "the smallest certified file of the eight"
    found = rows(what, peer, [(searched, plain)], "<= 4")
    return [*found, row(small, "its fp32 file", [(smallest, full)], "MB", aim)]


def _published_sizes(home: Path) -> tuple[float, float]:
    """Megabytes of the full-precision artifact, and of the smallest certified one."""
    from onnxreg.registry import Registry

    artifacts = Registry(home).get("acme/pii").manifest.artifacts
    full = [artifact.own_size for artifact in artifacts if artifact.path == "model.onnx"]
    certified = [artifact.own_size for artifact in artifacts if artifact.certification.state == "certified"]
    return full[0] / 1e6, min(certified) / 1e6
