"""The cost of verdicts, and what a certified file is worth: its bytes, its latency, and the loss of a peer's INT8 file."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Row, Run, row, rows, run

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


def benchmark(trained: Path) -> list[Row]:
    """The model of the demo, suites of 600 texts. One pair: a search takes a minute, and prepares nothing that a second one would have."""
    reg = str(Path(sys.executable).with_name("reg"))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "REG_STATE": f"{directory}/state"}
        words = ["export", trained / "0.2.0", "--profile", "android", "--name", "acme/pii"]
        suite = ["--eval-suite", trained / SUITES[0]]
        search = ["--certify", "--confirm-suite", trained / SUITES[1]]
        names = [f"--candidate={name}" for name in EIGHT]

        def export(*more: str | Path) -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([reg, "--registry", home, *words, *suite, *more], env)

        out = Path(directory) / "out"
        searched = export(*search, *names, "--output", out)
        files = {name: out / f"{name}.onnx" for name in ("model", "model_int8")}
        peer = Path(directory) / "peer.onnx"
        _quantize(files["model"], peer)
        found = [
            *_latencies(files["model"], files["model_int8"], peer),
            *_losses(trained, files["model_int8"], peer),
        ]
        smallest, full = (files[name].stat().st_size / 1e6 for name in ("model_int8", "model"))
        plain = export()
    search_row = rows(
        "a search over eight candidates",
        "the plain android export with its suite",
        [(searched, plain)],
        "<= 4",
    )
    return [
        *search_row,
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
