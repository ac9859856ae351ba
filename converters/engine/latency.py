"""How long each output takes on this CPU: all of them in turn, so that a busy moment slows all of them."""

import time
from collections.abc import Mapping
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

WARM_UP = 10
BATCH = "batch"
"""How the axis is called whose size is asked for."""
LENGTH = 32
"""Of a dynamic axis that is no batch, such as the tokens of a sentence."""

Times = dict[str, dict[int, list[float]]]
"""Milliseconds of each timed run, by the path of an output and the rows of a batch."""


@dataclass(frozen=True)
class LatencyTable:
    """What was asked, and what it took."""

    asked: Benchmark
    times: Times

    def document(self, manifest: Manifest) -> BenchmarkDocument:
        """The statement about a version, whose artifacts lie at the paths that were timed."""
        digests = {artifact.path: str(artifact.digest) for artifact in manifest.artifacts}
        found = [
            {
                "artifact": digests[path],
                "path": path,
                "checks": [check for one in rows.items() for check in _checks(*one)],
            }
            for path, rows in self.times.items()
        ]
        about = {"cpu": cpu_model(), "isa": instruction_set(), "threads": self.asked.threads}
        about |= {
            "runtime": f"onnxruntime {version('onnxruntime')}",
            "warm_up": WARM_UP,
            "runs": self.asked.runs,
        }
        return BenchmarkDocument.from_json(
            {"format": "onnxreg-benchmark", "format_version": 1, **about, "artifacts": found}
        )


def measure(draft: Draft, asked: Benchmark) -> LatencyTable:
    """Time every artifact of a draft.

    Raises ConversionError, naming the file, for one that does not run on inputs drawn for it.
    """
    bounds = _index_bounds(draft)
    runs = [
        run for item in draft.artifacts for run in _runs(draft.root / item.path, item.path, bounds, asked)
    ]
    times: Times = {}
    for turn in range(WARM_UP + asked.runs):
        for run in runs:
            took = run.time()
            if turn >= WARM_UP:
                times.setdefault(run.path, {}).setdefault(run.rows, []).append(took)
    return LatencyTable(asked, times)


@dataclass(frozen=True)
class Run:
    """One graph on one batch."""

    path: str
    rows: int
    session: Any
    feed: Feed

    def time(self) -> float:
        """Milliseconds."""
        begin = time.perf_counter()
        try:
            self.session.run(None, self.feed)
        except Exception as error:
            raise ConversionError(f"{self.path} cannot be timed: {first_line(error)}") from error
        return 1000 * (time.perf_counter() - begin)


def _index_bounds(draft: Draft) -> Mapping[str, int]:
    """`samples.index_bounds` over the ONNX graphs of a draft: a file in ORT format takes inputs of the same names."""
    found: dict[str, int] = {}
    for path in (item.path for item in draft.artifacts if item.path.endswith(".onnx")):
        for name, rows in samples.index_bounds(load_onnx(draft.root / path)).items():
            found[name] = min(rows, found.get(name, rows))
    return found


def _runs(file: Path, path: str, bounds: Mapping[str, int], asked: Benchmark) -> list[Run]:
    """A run for each batch size that the graph takes."""
    import onnxruntime as ort

    options = session_options(prepacking=True)
    options.intra_op_num_threads, options.inter_op_num_threads = asked.threads, 1
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    sizes = [{BATCH: rows} for rows in asked.batches]
    taken = samples.taken_by(session)
    feeds = samples.draw(taken, bounds, sizes=sizes, lengths=[LENGTH] * len(sizes))
    counted = _counted(session)
    found = {len(feed[counted]) if counted else 1: feed for feed in feeds}
    return [Run(path, rows, session, feed) for rows, feed in found.items()]


def _counted(session: Any) -> str | None:
    """The input whose first axis is the batch, else the first that is no scalar."""
    axes = {item.name: item.shape[0] for item in session.get_inputs() if item.shape}
    return next((name for name, axis in axes.items() if axis == BATCH), next(iter(axes), None))


def _checks(rows: int, times: list[float]) -> list[dict[str, Any]]:
    import numpy as np

    about = {"name": f"latency of batch {rows}", "samples": len(times), "verdict": "info"}
    return [
        {**about, "metric": metric, "value": float(f"{np.percentile(times, share):.4g}")}
        for metric, share in (("median_ms", 50), ("p95_ms", 95))
    ]
