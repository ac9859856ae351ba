"""The cost of verdicts: four artifacts judged against one, and a search against a plain export."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import yaml

from benchmarks.measure import Row, Run, row, rows, run

SUITES = ("heldout.jsonl", "confirm.jsonl")
EIGHT = (
    *("int8-int8-embeddings", "weights4-int8-embeddings", "weights8-128-int8-embeddings"),
    *(
        "weights8-64-int8-embeddings",
        "weights8-32-int8-embeddings",
        "weights8-32-fp16-embeddings",
        "fp16",
        "int8",
    ),
)
JUDGED = ("model_int8.onnx", "model_fp16.onnx", "weights8.onnx", "weights4.onnx")
RECIPE = """
task: token-classification
steps:
  - {name: fp32, pass: OnnxConversion, params: {target_opset: 18}}
  - {name: int8, pass: OnnxDynamicQuantization, input: fp32}
  - {name: fp16, pass: OnnxFloatToFloat16, input: fp32}
  - {name: weights8, pass: OnnxBlockWiseRtnQuantization, input: fp32, params: {bits: 8, block_size: 32, gemm: true}}
  - {name: weights4, pass: OnnxBlockWiseRtnQuantization, input: fp32, params: {bits: 4, block_size: 32, gemm: true}}
outputs:
  - {step: fp32, path: model.onnx}
  - {step: int8, path: model_int8.onnx}
  - {step: fp16, path: model_fp16.onnx}
  - {step: weights8, path: weights8.onnx}
  - {step: weights4, path: weights4.onnx}
"""


def benchmark(trained: Path, count: int = 2) -> list[Row]:
    """The model of the demo, suites of 600 texts; the source is run on the suite in every judgement."""
    return [*_judging(trained, count), *_searching(trained)]


def _judging(trained: Path, count: int) -> list[Row]:
    from onnxreg.converters.engine import run_plan
    from onnxreg.converters.engine.plan import plan_export
    from onnxreg.converters.engine.read_recipe import from_value
    from onnxreg.converters.engine.run_plan import execute
    from onnxreg.converters.evaluation import predict
    from onnxreg.converters.evaluation.evaluate import SourceEvaluation, plan_evaluation
    from onnxreg.schema.inputs.recipe_file import EvaluationRequest

    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory) / "w"
        workspace.mkdir()
        plan = plan_export(from_value(yaml.safe_load(RECIPE), "recipe"), str(trained / "0.2.0"), "acme/pii")
        draft = execute(plan, workspace)
        artifacts = {artifact.path: artifact for artifact in draft.artifacts}
        subject = run_plan.load_subject(plan, Path(directory) / "subject", None)
        suite = EvaluationRequest(suite=str(trained / SUITES[0]))
        evaluation_plan = plan_evaluation(suite, plan.task.id, Path(), artifacts)

        def judge(paths: Sequence[str]) -> float:
            begin = time.perf_counter()
            evaluation = SourceEvaluation(evaluation_plan, lambda: subject)
            for path in paths:
                evaluation.judge(artifacts[path], workspace / path)
            return time.perf_counter() - begin

        def judge_alone() -> float:
            """Judge one artifact with a run for each text, as before texts of equal length shared runs."""
            with patch.object(predict, "MAX_ROWS", 1):
                return judge(JUDGED[:1])

        judge(JUDGED[:1])
        values = [(judge(JUDGED), judge_alone(), judge(JUDGED[:1])) for _ in range(count)]
    what = "judging four artifacts on 600 texts"
    return [
        row(
            what, "judging one, each text alone", [(four, alone) for four, alone, _ in values], "s", "<= 1.6"
        ),
        row(what, "judging one", [(four, one) for four, _, one in values], "s", ""),
    ]


def _searching(trained: Path) -> list[Row]:
    """One pair: a search takes a minute, and prepares nothing that a second one would have."""
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
    found = rows(
        "a search over eight candidates, all judged and timed",
        "the plain android export with its suite",
        [(searched, plain)],
        "<= 4",
    )
    aim = "<= 0.45, <= 0.30 with INT8 embeddings"
    return [
        *found,
        row("the smallest certified file of the eight", "its fp32 file", [(smallest, full)], "MB", aim),
    ]


def _sizes(home: Path) -> tuple[float, float]:
    """Megabytes of the full-precision artifact, and of the smallest certified one."""
    from onnxreg.registry import Registry

    artifacts = Registry(home).get("acme/pii").manifest.artifacts
    full = [artifact.own_size for artifact in artifacts if artifact.path == "model.onnx"]
    certified = [artifact.own_size for artifact in artifacts if artifact.certification.state == "certified"]
    return full[0] / 1e6, min(certified) / 1e6
