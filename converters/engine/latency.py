"""Latency on this CPU, measured in turn so that a busy moment slows all graphs."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Milliseconds of each timed run of a batch through the graphs at `paths`, one after the other."""

    paths: tuple[str, ...]
    rows: int
    times: tuple[float, ...]

    def _percentile(self, rank: int) -> float:
        """Four significant digits."""
        import numpy as np

        return float(f"{np.percentile(self.times, rank):.4g}")

    @property
    def median(self) -> float:
        return self._percentile(50)

    @property
    def p95(self) -> float:
        return self._percentile(95)

    def checks(self) -> list[dict[str, Any]]:
        """Make the two checks of the first graph, in milliseconds."""
        others = " and ".join(self.paths[1:])
        name = f"latency of one row with {others}" if others else f"latency of batch {self.rows}"
        common = {"name": name, "samples": len(self.times), "verdict": "info"}
        values = {"median_ms": self.median, "p95_ms": self.p95}
        return [{**common, "metric": metric, "value": value} for metric, value in values.items()]


@dataclass(frozen=True)
class LatencyTable:
    """A requested benchmark and its measured latencies."""

    benchmark: Benchmark
    latencies: tuple[Latency, ...]

    def document(self, manifest: Manifest) -> BenchmarkDocument:
        """Make the benchmark document of a version: each latency is recorded with its first graph."""
        digests = {artifact.path: str(artifact.digest) for artifact in manifest.artifacts}
        artifacts = [
            {
                "artifact": digests[path],
                "path": path,
                "checks": [check for latency in latencies for check in latency.checks()],
            }
            for path, latencies in groupby(self.latencies, lambda latency: latency.paths[0])
        ]
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
        """The latencies of one row through several graphs."""
        machine = {"runs": self.benchmark.runs, "threads": self.benchmark.threads, "cpu": cpu_model()}
        return [
            {"graphs": list(item.paths), "p50_ms": item.median, "p95_ms": item.p95, **machine}
            for item in self.latencies
        ]


@dataclass(frozen=True)
class Run:
    """One batch through graphs: the first takes `feed`, each other one outputs of the first."""

    paths: tuple[str, ...]
    rows: int
    sessions: Sequence[Any]
    feed: Feed

    def time(self) -> float:
        """Run once; return milliseconds."""
        first, *others = self.sessions
        begin = time.perf_counter()
        try:
            values = first.run(None, self.feed)
            if others:
                outputs = dict(zip((item.name for item in first.get_outputs()), values, strict=True))
            for session in others:
                session.run(None, {item.name: outputs[item.name] for item in session.get_inputs()})
        except Exception as error:
            raise ConversionError(f"{' + '.join(self.paths)} cannot be timed: {why(error)}") from error
        return 1000 * (time.perf_counter() - begin)


def measure(draft: Draft, benchmark: Benchmark) -> LatencyTable:
    """Time every artifact of a draft, by itself.

    Raises ConversionError, naming the file, for one that does not run on inputs drawn for it.
    """
    bounds: dict[str, int] = {}  # a file in ORT format takes inputs of the same names
    for path in (item.path for item in draft.artifacts if item.path.endswith(".onnx")):
        for name, rows in samples.index_bounds(load_onnx(draft.root / path)).items():
            bounds[name] = min(rows, bounds.get(name, rows))
    runs = [run for item in draft.artifacts for run in _runs(draft.root, item.path, bounds, benchmark)]
    return _time(runs, benchmark)


def measure_chains(
    root: Path, chains: Iterable[Sequence[str]], feed: Feed, benchmark: Benchmark
) -> LatencyTable:
    """Time one row through each chain of graphs below `root`: the first takes `feed`, the others its outputs.

    Raises ConversionError, naming the files, for a chain that does not run.
    """
    runs = [Run(tuple(paths), 1, [_load(root / path, benchmark) for path in paths], feed) for paths in chains]
    return _time(runs, benchmark)


def _time(runs: Sequence[Run], benchmark: Benchmark) -> LatencyTable:
    turns = [[run.time() for run in runs] for _ in range(WARM_UP_RUNS + benchmark.runs)][WARM_UP_RUNS:]
    times = zip(runs, zip(*turns, strict=True), strict=True)
    return LatencyTable(benchmark, tuple(Latency(run.paths, run.rows, own) for run, own in times))


def _runs(root: Path, path: str, bounds: Mapping[str, int], benchmark: Benchmark) -> Iterator[Run]:
    """Prepare a run for each batch size that the graph takes."""
    session = _load(root / path, benchmark)
    sizes = [{BATCH_AXIS: rows} for rows in benchmark.batches]
    lengths = [DYNAMIC_AXIS_LENGTH] * len(sizes)
    axes = {item.name: item.shape[0] for item in session.get_inputs() if item.shape}
    batched = next((name for name, axis in axes.items() if axis == BATCH_AXIS), next(iter(axes), None))
    feeds = samples.draw(samples.taken_by(session), bounds, sizes=sizes, lengths=lengths)
    feeds_by_rows = {len(feed[batched]) if batched else 1: feed for feed in feeds}
    for rows, feed in feeds_by_rows.items():
        yield Run((path,), rows, [session], feed)


def _load(file: Path, benchmark: Benchmark) -> Any:
    return load_session(file, prepacking=True, threads=benchmark.threads)
