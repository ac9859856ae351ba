"""Latency on this CPU. Graphs are timed in turn, so that a busy moment slows all of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.toolchain import cpu_model, instruction_set
from onnxreg.schema.core.errors import ConversionError, why
from onnxreg.schema.gates.statements import BenchmarkDocument
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

WARM_UP_RUNS = 10
BATCH_AXIS = "batch"
"""Name of the axis whose sizes the recipe lists."""
DYNAMIC_AXIS_LENGTH = 32
"""Length of every other dynamic axis, such as the tokens of a sentence."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds that a batch takes through the graphs at `paths`, in sequence, to four significant digits."""

    paths: tuple[str, ...]
    rows: int
    median: float
    p95: float


@dataclass(frozen=True)
class LatencyTable:
    """A requested benchmark and the latencies measured for it."""

    benchmark: Benchmark
    latencies: tuple[Latency, ...]

    def document(self, manifest: Manifest) -> BenchmarkDocument:
        """Make the benchmark document of a version. The latency of several graphs is recorded under the first graph."""
        digests = {artifact.path: str(artifact.digest) for artifact in manifest.artifacts}
        artifacts = []
        for path, latencies in groupby(self.latencies, lambda latency: latency.paths[0]):
            checks = []
            for item in latencies:
                others = " and ".join(item.paths[1:])
                name = f"latency of one row with {others}" if others else f"latency of batch {item.rows}"
                common = {"name": name, "samples": self.benchmark.runs, "verdict": "info"}
                checks += [
                    {**common, "metric": "median_ms", "value": item.median},
                    {**common, "metric": "p95_ms", "value": item.p95},
                ]
            artifacts.append({"artifact": digests[path], "path": path, "checks": checks})
        return BenchmarkDocument.from_json(
            {
                "format": "onnxreg-benchmark",
                "format_version": 1,
                "cpu": cpu_model(),
                "isa": instruction_set(),
                "threads": self.benchmark.threads,
                "runtime": f"onnxruntime {version('onnxruntime')}",
                "warm_up": WARM_UP_RUNS,
                "runs": self.benchmark.runs,
                "artifacts": artifacts,
            }
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Latencies of one row through several graphs, in JSON form."""
        machine = {"runs": self.benchmark.runs, "threads": self.benchmark.threads, "cpu": cpu_model()}
        return [
            {"graphs": list(item.paths), "p50_ms": item.median, "p95_ms": item.p95, **machine}
            for item in self.latencies
        ]


def measure(draft: Draft, benchmark: Benchmark) -> LatencyTable:
    """Time every artifact of a draft by itself, at each batch size that the artifact takes.

    Raises ConversionError, naming the file, if an artifact does not run on inputs drawn for it.
    """
    bounds: dict[str, int] = {}  # a file in ORT format takes inputs of the same names
    for path in (item.path for item in draft.artifacts if item.path.endswith(".onnx")):
        for name, rows in samples.index_bounds(load_onnx(draft.root / path)).items():
            bounds[name] = min(rows, bounds.get(name, rows))
    sizes = [{BATCH_AXIS: rows} for rows in benchmark.batches]
    lengths = [DYNAMIC_AXIS_LENGTH] * len(sizes)
    sessions = _load(draft.root, [item.path for item in draft.artifacts], benchmark)
    runs = []
    for path, session in sessions.items():
        axes = {item.name: item.shape[0] for item in session.get_inputs() if item.shape}
        batched = next((name for name, axis in axes.items() if axis == BATCH_AXIS), next(iter(axes), None))
        feeds = samples.draw(samples.taken_by(session), bounds, sizes=sizes, lengths=lengths)
        by_rows = {len(feed[batched]) if batched else 1: feed for feed in feeds}
        runs += [((path,), rows, feed) for rows, feed in by_rows.items()]
    return _time(runs, sessions, benchmark)


def measure_chains(
    root: Path, chains: Sequence[Sequence[str]], feed: Feed, benchmark: Benchmark
) -> LatencyTable:
    """Time one row through each chain of graphs below `root`; the first takes `feed`, the others take its outputs.

    Raises ConversionError, naming the files, if a chain does not run.
    """
    sessions = _load(root, [path for paths in chains for path in paths], benchmark)
    return _time([(tuple(paths), 1, feed) for paths in chains], sessions, benchmark)


def _load(root: Path, paths: Sequence[str], benchmark: Benchmark) -> dict[str, Any]:
    return {
        path: load_session(root / path, prepacking=True, threads=benchmark.threads)
        for path in dict.fromkeys(paths)
    }


def _time(
    runs: Sequence[tuple[tuple[str, ...], int, Feed]], sessions: Mapping[str, Any], benchmark: Benchmark
) -> LatencyTable:
    """Warm up, then time the batches in turn. `runs` has each batch: the graphs' paths, the rows, the inputs."""
    import numpy as np

    def milliseconds(paths: tuple[str, ...], feed: Feed) -> float:
        first, *others = (sessions[path] for path in paths)
        begin = time.perf_counter()
        try:
            values = first.run(None, feed)
            if others:
                outputs = dict(zip((item.name for item in first.get_outputs()), values, strict=True))
            for session in others:
                session.run(None, {item.name: outputs[item.name] for item in session.get_inputs()})
        except Exception as error:
            raise ConversionError(f"{' + '.join(paths)} cannot be timed: {why(error)}") from error
        return 1000 * (time.perf_counter() - begin)

    turns = range(WARM_UP_RUNS + benchmark.runs)
    times = [[milliseconds(paths, feed) for paths, _, feed in runs] for _ in turns][WARM_UP_RUNS:]
    figures = [[float(f"{figure:.4g}") for figure in row] for row in np.percentile(times, (50, 95), axis=0)]
    latencies = zip(runs, *figures, strict=True)
    return LatencyTable(benchmark, tuple(Latency(paths, rows, *own) for (paths, rows, _), *own in latencies))
