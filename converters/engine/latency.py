"""Latency of each output on this CPU, measured in turn so that a busy moment slows all of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import session_options
from onnxreg.converters.source.toolchain import cpu_model, instruction_set
from onnxreg.schema.core.errors import ConversionError, first_line
from onnxreg.schema.formats.benchmark import BenchmarkDocument
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

WARM_UP_RUNS = 10
BATCH_AXIS = "batch"
"""Name of the axis whose sizes the recipe lists."""
DYNAMIC_AXIS_LENGTH = 32
"""Length of every other dynamic axis, such as the tokens of a sentence."""

Times = dict[str, dict[int, list[float]]]
"""Milliseconds of each timed run, by the path of an output and the rows of a batch."""


@dataclass(frozen=True)
class LatencyTable:
    """A requested benchmark and its measured times."""

    benchmark: Benchmark
    times: Times

    def document(self, manifest: Manifest) -> BenchmarkDocument:
        """Make the benchmark document of a version whose artifacts have the timed paths."""
        checks = {
            path: [check for entry in rows.items() for check in _checks(*entry)]
            for path, rows in self.times.items()
        }
        return benchmark_document(manifest, checks, self.benchmark.threads, WARM_UP_RUNS, self.benchmark.runs)


def benchmark_document(
    manifest: Manifest, checks: Mapping[str, list[dict[str, Any]]], threads: int, warm_up: int, runs: int
) -> BenchmarkDocument:
    """Make the benchmark document of a version, measured on this CPU; `checks` are by the path of an artifact."""
    digests = {artifact.path: str(artifact.digest) for artifact in manifest.artifacts}
    return BenchmarkDocument.from_json(
        {
            "format": "onnxreg-benchmark",
            "format_version": 1,
            "cpu": cpu_model(),
            "isa": instruction_set(),
            "threads": threads,
            "runtime": f"onnxruntime {version('onnxruntime')}",
            "warm_up": warm_up,
            "runs": runs,
            "artifacts": [
                {"artifact": digests[path], "path": path, "checks": items} for path, items in checks.items()
            ],
        }
    )


def measure(draft: Draft, benchmark: Benchmark) -> LatencyTable:
    """Time every artifact of a draft.

    Raises ConversionError, naming the file, for one that does not run on inputs drawn for it.
    """
    bounds = _index_bounds(draft)
    runs = [
        run for item in draft.artifacts for run in _runs(draft.root / item.path, item.path, bounds, benchmark)
    ]
    times: Times = {}
    for turn in range(WARM_UP_RUNS + benchmark.runs):
        for run in runs:
            elapsed = run.time()
            if turn >= WARM_UP_RUNS:
                times.setdefault(run.path, {}).setdefault(run.rows, []).append(elapsed)
    return LatencyTable(benchmark, times)


@dataclass(frozen=True)
class Run:
    """One graph on one batch."""

    path: str
    rows: int
    session: Any
    feed: Feed

    def time(self) -> float:
        """Run once; return milliseconds."""
        begin = time.perf_counter()
        try:
            self.session.run(None, self.feed)
        except Exception as error:
            raise ConversionError(f"{self.path} cannot be timed: {first_line(error)}") from error
        return 1000 * (time.perf_counter() - begin)


def _index_bounds(draft: Draft) -> Mapping[str, int]:
    """`samples.index_bounds` over the ONNX graphs of a draft: a file in ORT format takes inputs of the same
    names.
    """
    bounds: dict[str, int] = {}
    for path in (item.path for item in draft.artifacts if item.path.endswith(".onnx")):
        for name, rows in samples.index_bounds(load_onnx(draft.root / path)).items():
            bounds[name] = min(rows, bounds.get(name, rows))
    return bounds


def _runs(file: Path, path: str, bounds: Mapping[str, int], benchmark: Benchmark) -> list[Run]:
    """Prepare a run for each batch size that the graph takes."""
    import onnxruntime as ort

    options = session_options(prepacking=True)
    options.intra_op_num_threads, options.inter_op_num_threads = benchmark.threads, 1
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    sizes = [{BATCH_AXIS: rows} for rows in benchmark.batches]
    inputs = samples.taken_by(session)
    feeds = samples.draw(inputs, bounds, sizes=sizes, lengths=[DYNAMIC_AXIS_LENGTH] * len(sizes))
    batch_input = _batch_input(session)
    feeds_by_rows = {len(feed[batch_input]) if batch_input else 1: feed for feed in feeds}
    return [Run(path, rows, session, feed) for rows, feed in feeds_by_rows.items()]


def _batch_input(session: Any) -> str | None:
    """Find the input whose first axis is the batch, else the first that is not a scalar."""
    axes = {item.name: item.shape[0] for item in session.get_inputs() if item.shape}
    return next((name for name, axis in axes.items() if axis == BATCH_AXIS), next(iter(axes), None))


def _checks(rows: int, times: list[float]) -> list[dict[str, Any]]:
    return latency_checks(f"latency of batch {rows}", len(times), *percentiles(times))


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile, each to four significant digits."""
    import numpy as np

    median, p95 = (float(f"{value:.4g}") for value in np.percentile(times, [50, 95]))
    return median, p95


def latency_checks(name: str, runs: int, median: float, p95: float) -> list[dict[str, Any]]:
    """Make the two checks of a measured latency, in milliseconds."""
    common = {"name": name, "samples": runs, "verdict": "info"}
    return [
        {**common, "metric": metric, "value": value}
        for metric, value in (("median_ms", median), ("p95_ms", p95))
    ]
