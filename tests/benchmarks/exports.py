"""Exports of encoders: against OpenMed's converter, txtai, Optimum and Olive, and the cost of verdicts.

Whole processes, each in an environment of its own, because transformers imports whatever else is installed. Ours also
measures every graph against the checkpoint, hashes it and publishes the version.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
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
    *(
        "int8-int8-embeddings",
        "weights4-int8-embeddings",
        "w8a8-64-int8-embeddings",
        "w8a8-32-int8-embeddings",
    ),
    *("weights8-32-int8-embeddings", "mixed-int8-int8-embeddings", "fp16", "int8"),
)
TOKENS = {32: "<= 0.75", 128: "<= 1.0"}
"""The tokens of an input, and the aim for its latency."""
TURNS, WARM_UP = 40, 5


def search(trained: Path) -> list[Row]:
    """The model of the demo, suites of 600 texts. One pair: a search takes a minute, and prepares nothing that a second one would have."""
    reg = str(Path(sys.executable).with_name("reg"))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "REG_STATE": f"{directory}/state"}
        words = ["export", trained / "0.2.0", "--profile", "android", "--name", "acme/pii"]
        suite = ["--eval-suite", trained / SUITES[0]]
        asked = ["--certify", "--confirm-suite", trained / SUITES[1]]
        names = [f"--candidate={name}" for name in EIGHT]

        def export(*more: str | Path) -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([reg, "--registry", home, *words, *suite, *more], env)

        out = Path(directory) / "out"
        searched = export(*asked, *names, "--output", out)
        files = {name: out / f"{name}.onnx" for name in ("model", "model_int8")}
        peer = Path(directory) / "peer.onnx"
        _quantize(files["model"], peer)
        found = [
            *_latencies(files["model"], files["model_int8"], peer),
            *_losses(trained, files["model_int8"], peer),
        ]
        smallest, full = (files[name].stat().st_size / 1e6 for name in ("model_int8", "model"))
        plain = export()
    searching = rows(
        "a search over eight candidates",
        "the plain android export with its suite",
        [(searched, plain)],
        "<= 4",
    )
    return [
        *searching,
        row("the certified file of the eight", "its fp32 file", [(smallest, full)], "MB", "<= 0.30"),
        *found,
    ]


def _quantize(model: Path, target: Path) -> None:
    """Quantize as ONNX Runtime does by default, and as Optimum's configurations for x86 and ARM do."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(model, target)


def _latencies(model: Path, certified: Path, peer: Path) -> list[Row]:
    """One thread, files in turn."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    sessions = [
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for path in (model, certified, peer)
    ]
    found = []
    for tokens, aim in TOKENS.items():
        feed = {
            name: np.ones((1, tokens), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        feed["input_ids"] = np.random.default_rng(0).integers(1000, 20_000, (1, tokens))

        def milliseconds(session: Any, feed: dict[str, Any] = feed) -> float:
            begin = time.perf_counter()
            session.run(None, {item.name: feed[item.name] for item in session.get_inputs()})
            return 1000 * (time.perf_counter() - begin)

        turns = [[milliseconds(session) for session in sessions] for _ in range(WARM_UP + TURNS)][WARM_UP:]
        what = f"latency of {tokens} tokens, one thread"
        found += [
            row(f"{what}: the certified file", "its fp32 file", [(b, a) for a, b, _ in turns], "ms", aim),
            row(f"{what}: quantize_dynamic's file", "its fp32 file", [(c, a) for a, _, c in turns], "ms", ""),
        ]
    return found


def _losses(trained: Path, certified: Path, peer: Path) -> list[Row]:
    """The largest loss of a label on the second suite, beside the limit of G4."""
    from onnxreg.converters.engine import run_plan
    from onnxreg.converters.evaluation.evaluate import SourceEvaluation
    from onnxreg.converters.request import ExportRequest
    from onnxreg.schema.manifest.draft import DraftArtifact

    request = ExportRequest(
        str(trained / "0.2.0"), "acme/pii", "android", options={"eval_suite": trained / SUITES[1]}
    )
    plan: Any = request.plan()
    with tempfile.TemporaryDirectory() as directory:
        subject = run_plan.load_subject(plan, Path(directory) / "subject")
        evaluation = SourceEvaluation(plan.evaluation, lambda: subject)
        judged = [
            evaluation.judge(DraftArtifact("onnx", "int8", path.name), path).judgements[0]
            for path in (certified, peer)
        ]
    aim = "<= 1"
    return [
        row(f"largest loss of a label: {name}", "the limit", [(one.loss, one.limit)], "recall", aim)
        for name, one in zip(("the certified file", "quantize_dynamic's file"), judged, strict=True)
    ]
