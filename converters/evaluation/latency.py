"""Measure latencies on this CPU. Graphs are timed in turn, so that a busy moment slows all of them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onnxreg.converters.evaluation.predict import MASK, Run
from onnxreg.converters.evaluation.tokens import Floats
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.golden import runtime_version
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.toolchain import cpu_model, instruction_set
from onnxreg.schema.core.errors import ConversionError, why
from onnxreg.schema.gates.statements import BenchmarkDocument
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

WARM_UP_RUNS = 10
BATCH_AXIS = "batch"
DYNAMIC_AXIS_LENGTH = 32  # the length of all dynamic axes except the batch, such as the tokens of a sentence
TOKENS = (32, 128)
PAIRS = Benchmark(runs=30, batches=(1,))
"""The settings for timing a file beside its parent: 30 pairs of runs (one of each file) on a single row."""
WARM_UP_PAIRS, LEAST_PAIRS, MAX_SECONDS = 3, 8, 20.0
EDGE = 10
"""If a suite's inputs are sorted by size, the short input is at 1/10 of the list, and the long input at 9/10."""
FAST_ENOUGH = 1.1  # a file is slower than its parent if it takes more than this multiple of the parent's time


class Ratio(NamedTuple):
    """A latency as a multiple of the parent's: the median over pairs of runs, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_noisy(self) -> bool:
        """True if the interval is too wide to tell whether the file is slower."""
        return self.low < 1 < FAST_ENOUGH < self.high

    @property
    def is_slow(self) -> bool:
        return self.value > FAST_ENOUGH and not self.is_noisy


@dataclass(frozen=True)
class Latency:
    """The time in milliseconds that a batch takes through the graphs at `paths`, one after the other.

    `input` is the suite's input, such as `short (23 tokens)`. `ratio` compares with the file `parent`.
    """

    paths: tuple[str, ...]
    rows: int
    median: float
    p95: float
    runs: int
    input: str = ""
    parent: str = ""
    ratio: Ratio | None = None

    def checks(self) -> Iterator[dict[str, Any]]:
        name = f"latency, {self.input}" if self.input else f"latency of batch {self.rows}"
        if self.paths[1:]:
            name = f"latency of one row with {' and '.join(self.paths[1:])}"
        common = {"name": name, "samples": self.runs, "verdict": "info"}
        yield {**common, "metric": "median_ms", "value": self.median}
        yield {**common, "metric": "p95_ms", "value": self.p95}
        if self.ratio is not None:
            value, *interval = self.ratio
            yield {**common, "metric": "ratio", "value": value, "interval": interval, "direction": "lower"}


@dataclass(frozen=True)
class LatencyTable:
    """The latencies that a benchmark measured. `candidates` has the latencies of a search's candidates, by name."""

    benchmark: Benchmark
    latencies: tuple[Latency, ...]
    candidates: Mapping[str, Sequence[Latency]] = field(default_factory=dict)

    def document(self, manifest: Manifest) -> BenchmarkDocument:
        """Make the benchmark document of a version. A chain of graphs is recorded under its first graph."""
        digests = {artifact.path: str(artifact.digest) for artifact in manifest.artifacts}
        artifacts = []
        for path, latencies in groupby(self.latencies, lambda latency: latency.paths[0]):
            own = list(latencies)
            checks = [check for item in own for check in item.checks()]
            parent = {"parent": digests[own[0].parent]} if own[0].parent in digests else {}
            artifacts.append({"artifact": digests[path], "path": path, **parent, "checks": checks})
        candidates = [
            {"name": name, "checks": [check for item in latencies for check in item.checks()]}
            for name, latencies in self.candidates.items()
        ]
        return BenchmarkDocument.from_json(
            {
                **({"candidates": candidates} if candidates else {}),
                "format": "onnxreg-benchmark",
                "format_version": 1,
                "cpu": cpu_model(),
                "isa": instruction_set(),
                "threads": self.benchmark.threads,
                "runtime": f"onnxruntime {runtime_version()}",
                "warm_up": WARM_UP_PAIRS if self.benchmark is PAIRS else WARM_UP_RUNS,
                "runs": self.benchmark.runs,
                "artifacts": artifacts,
            }
        )

    def to_json(self) -> list[dict[str, Any]]:
        machine, rows = {"threads": self.benchmark.threads, "cpu": cpu_model()}, []
        for item in self.latencies:
            row = {"graphs": list(item.paths), "p50_ms": item.median, "p95_ms": item.p95, "runs": item.runs}
            if item.ratio is not None:
                value, *interval = item.ratio
                row |= {"input": item.input, "parent": item.parent, "ratio": value, "interval": interval}
            rows.append(row | machine)
        return rows


def measure(draft: Draft, benchmark: Benchmark) -> LatencyTable:
    """Time the artifacts of a draft at all batch sizes they accept. Raise ConversionError if an artifact fails."""
    files = {item.path: draft.root / item.path for item in draft.artifacts}
    sessions, runs = _load(files, benchmark), []
    feeds = _draw(files, sessions, [(rows, DYNAMIC_AXIS_LENGTH) for rows in benchmark.batches])
    for path, session in sessions.items():
        axes = {item.name: item.shape[0] for item in session.get_inputs() if item.shape}
        batched = next((name for name, axis in axes.items() if axis == BATCH_AXIS), next(iter(axes), None))
        by_rows = {len(feed[batched]) if batched else 1: feed for feed in feeds[path]}
        runs += [((path,), rows, feed) for rows, feed in by_rows.items()]
    return _time(runs, sessions, benchmark)


def measure_chains(
    root: Path, chains: Sequence[Sequence[str]], feed: Feed, benchmark: Benchmark
) -> LatencyTable:
    """Time a row through each chain of graphs. The first graph gets `feed`, each other graph outputs of the first."""
    sessions = _load({path: root / path for paths in chains for path in paths}, benchmark)
    return _time([(tuple(paths), 1, feed) for paths in chains], sessions, benchmark)


def _load(files: Mapping[str, Path], benchmark: Benchmark) -> dict[str, Any]:
    return {
        path: load_session(file, prepacking=True, threads=benchmark.threads) for path, file in files.items()
    }


def _draw(
    files: Mapping[str, Path], sessions: Mapping[str, Any], shapes: Sequence[tuple[int, int]]
) -> dict[str, tuple[Feed, ...]]:
    """Return random inputs for each file. `shapes` are (number of rows, length of other dynamic axes)."""
    sizes, lengths = [{BATCH_AXIS: rows} for rows, _ in shapes], [length for _, length in shapes]
    bounds: dict[str, int] = {}
    for file in (file for file in files.values() if file.suffix == ".onnx"):
        for name, rows in samples.index_bounds(models.load(file)).items():
            bounds[name] = min(rows, bounds.get(name, rows))
    return {
        path: samples.draw(samples.model_of_inputs(session), bounds, sizes, lengths)
        for path, session in sessions.items()
    }


def _time(
    runs: Sequence[tuple[tuple[str, ...], int, Feed]], sessions: Mapping[str, Any], benchmark: Benchmark
) -> LatencyTable:
    """Warm up, then time batches in turn. A run is (paths of the graphs, number of rows, inputs)."""

    def through(paths: tuple[str, ...], feed: Feed) -> None:
        first, *others = (sessions[path] for path in paths)
        try:
            values = first.run(None, feed)
            if others:
                outputs = dict(zip((item.name for item in first.get_outputs()), values, strict=True))
            for session in others:
                session.run(None, {item.name: outputs[item.name] for item in session.get_inputs()})
        except Exception as error:
            raise ConversionError(f"{' + '.join(paths)} cannot be timed: {why(error)}") from error

    calls = [partial(through, paths, feed) for paths, _, feed in runs]
    times = _milliseconds(calls, WARM_UP_RUNS, benchmark.runs)
    latencies = []
    for (paths, rows, _), own in zip(runs, times.T, strict=True):
        median, p95 = _figures(*np.percentile(own, (50, 95)))
        latencies.append(Latency(paths, rows, median, p95, benchmark.runs))
    return LatencyTable(benchmark, tuple(latencies))


def _milliseconds(
    calls: Sequence[Callable[[], object]], warm_up: int, most: int, least: int = 0, seconds: float = inf
) -> Floats:
    """Time calls in turn. Return milliseconds, float64 `[turns, calls]`, without the first `warm_up` turns."""
    turns, end = list[list[float]](), time.monotonic() + seconds
    while len(turns) < warm_up + most and (len(turns) < warm_up + least or time.monotonic() <= end):
        turn = [0.0] * len(calls)
        for number in range(len(calls))[:: -1 if len(turns) % 2 else 1]:
            begin = time.perf_counter()
            calls[number]()
            turn[number] = 1000 * (time.perf_counter() - begin)
        turns.append(turn)
    return np.array(turns[warm_up:])


def _figures(*values: float) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def compare_files(
    files: Mapping[str, Path], pairs: Sequence[tuple[str, str]], max_tokens: int | None
) -> LatencyTable:
    """Time each pair (path, parent's path) on random inputs. Raise ConversionError if a file does not load or run."""
    sessions = _load(files, PAIRS)
    lengths = sorted({min(tokens, max_tokens or tokens) for tokens in TOKENS})
    feeds = _draw(files, sessions, [(1, length) for length in lengths])
    runs = {path: partial(samples.outputs, session, label=path) for path, session in sessions.items()}
    latencies = [
        compare(path, runs[path], parent, runs[parent], typical_inputs(feeds[parent]))
        for path, parent in pairs
    ]
    return LatencyTable(PAIRS, tuple(chain.from_iterable(latencies)))


def typical_inputs(feeds: Sequence[Feed]) -> dict[str, Feed]:
    """Return a short and a long input of a suite, by name. If their sizes are equal, return only a single input."""

    def size(feed: Feed) -> int:
        return max(int(array.size) for array in feed.values())

    ordered = sorted(feeds, key=size)
    short, long = ordered[len(ordered) // EDGE], ordered[-1 - len(ordered) // EDGE]
    chosen = {"typical": short} if size(short) == size(long) else {"short": short, "long": long}
    return {
        f"{word} ({feed[MASK].shape[1]} tokens)" if MASK in feed else word: feed
        for word, feed in chosen.items()
    }


def compare(path: str, run: Run, parent_path: str, parent: Run, inputs: Mapping[str, Feed]) -> list[Latency]:
    """Time a file and its parent on each input. Raise ConversionError if a file does not run.

    Order statistics give the interval of the median ratio (David and Nagaraja, Order Statistics, 2003, section 7.1).
    """
    latencies = []
    for name, feed in inputs.items():
        calls = [partial(parent, feed), partial(run, feed)]
        times = _milliseconds(calls, WARM_UP_PAIRS, PAIRS.runs, LEAST_PAIRS, MAX_SECONDS)[:, ::-1]
        ratios, half = np.sort(times[:, 0] / times[:, 1]), 0.98 * sqrt(len(times))
        ends = ratios[int(len(times) / 2 - half)], ratios[int(np.ceil(len(times) / 2 + half))]
        median, p95, *ratio = _figures(*np.percentile(times[:, 0], (50, 95)), np.median(ratios), *ends)
        latencies.append(Latency((path,), 1, median, p95, len(times), name, parent_path, Ratio(*ratio)))
    return latencies
