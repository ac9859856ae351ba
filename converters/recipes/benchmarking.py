"""How long each output takes on this CPU: all of them in turn, so that a busy moment slows all of them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import model, samples
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import numpy_type, session_options
from onnxreg.converters.toolchain import cpu_model, instruction_set
from onnxreg.schema.benchmark import BenchmarkDocument
from onnxreg.schema.draft import Draft, DraftArtifact
from onnxreg.schema.errors import ConversionError
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.recipe_file import Benchmark

WARM_UP = 10
BATCH = "batch"
"""How the axis is called whose size is asked for."""
LENGTH = 32
"""Of a dynamic axis that is no batch, such as the tokens of a sentence."""

Times = dict[str, dict[int, list[float]]]
"""Milliseconds of each timed run, by the path of an output and the rows of a batch."""


@dataclass(frozen=True)
class Benchmarked:
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


def measure(draft: Draft, asked: Benchmark) -> Benchmarked:
    """Time every artifact of a draft.

    Raises ConversionError, naming the file, for one that does not run on inputs drawn for it.
    """
    graphs = {item.path: _source(draft, item) for item in draft.artifacts}
    runs = [run for path, graph in graphs.items() for run in _runs(draft.root, path, graph, asked)]
    times: Times = {}
    for turn in range(WARM_UP + asked.runs):
        for run in runs:
            took = run.time()
            if turn >= WARM_UP:
                times.setdefault(run.path, {}).setdefault(run.rows, []).append(took)
    return Benchmarked(asked, times)


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
            reason = str(error).splitlines()[0][:200]
            raise ConversionError(f"{self.path} cannot be timed: {reason}") from error
        return 1000 * (time.perf_counter() - begin)


def _source(draft: Draft, artifact: DraftArtifact) -> Path:
    """The ONNX graph that says what an artifact takes: itself, or for ORT format its parent, or the first of the draft."""
    candidates = [artifact.path, artifact.parent, *(item.path for item in draft.artifacts)]
    found = next((each for each in candidates if each is not None and each.endswith(".onnx")), None)
    if found is None:
        raise ConversionError(f"{artifact.path} cannot be timed: no ONNX graph says what it takes")
    return draft.root / found


def _runs(root: Path, path: str, graph: Path, asked: Benchmark) -> list[Run]:
    """A run for each batch size that the graph takes."""
    import numpy as np
    import onnxruntime as ort

    options = session_options(prepacking=True)
    options.intra_op_num_threads, options.inter_op_num_threads = asked.threads, 1
    session = ort.InferenceSession(str(root / path), options, providers=["CPUExecutionProvider"])
    sizes = [{BATCH: rows} for rows in asked.batches]
    drawn = samples.draw(model.load(graph), sizes=sizes, lengths=[LENGTH] * len(sizes))
    types: Mapping[str, str] = {item.name: numpy_type(item.type) for item in session.get_inputs()}
    feeds = [{name: np.asarray(feed[name], dtype=dtype) for name, dtype in types.items()} for feed in drawn]
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
