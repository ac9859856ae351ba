"""How long one row takes through a whole family on this CPU: species, head and detector together.

A figure of one machine and moment: it decides whether a release may go out here, and is attested of it, but stands in no
manifest.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import proof
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.toolchain import cpu_model, instruction_set
from onnxreg.schema.formats.benchmark import BenchmarkDocument
from onnxreg.schema.manifest.manifest import Manifest

RUNS, WARM_UP, THREADS = 40, 5, 1


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one row, for the graphs at `paths` one after the other; the backbone is the first."""

    paths: tuple[str, ...]
    p50: float
    p95: float

    def __str__(self) -> str:
        return (
            f"p50 {self.p50:g} ms, p95 {self.p95:g} ms: {' + '.join(self.paths)} (one row, {THREADS} thread)"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "graphs": list(self.paths),
            "p50_ms": self.p50,
            "p95_ms": self.p95,
            "runs": RUNS,
            "threads": THREADS,
            "cpu": cpu_model(),
        }

    def checks(self) -> list[dict[str, Any]]:
        about = {
            "name": f"latency of one row with {' and '.join(self.paths[1:])}",
            "samples": RUNS,
            "verdict": "info",
        }
        return [
            {**about, "metric": metric, "value": value}
            for metric, value in (("median_ms", self.p50), ("p95_ms", self.p95))
        ]


def document(latencies: Iterable[Latency], manifest: Manifest) -> BenchmarkDocument:
    """What is put on record of a published family: each latency stands with its backbone."""
    digests = {item.path: str(item.digest) for item in manifest.artifacts}
    return BenchmarkDocument.from_json(
        {
            "format": "onnxreg-benchmark",
            "format_version": 1,
            "cpu": cpu_model(),
            "isa": instruction_set(),
            "threads": THREADS,
            "runtime": f"onnxruntime {version('onnxruntime')}",
            "warm_up": WARM_UP,
            "runs": RUNS,
            "artifacts": [
                {"artifact": digests[each.paths[0]], "path": each.paths[0], "checks": each.checks()}
                for each in latencies
            ],
        }
    )


def measure(workspace: Path, paths: Sequence[str], image: Feed) -> Latency:
    """Run the backbone, which is first, and the other graphs on its embedding, batch 1."""
    import numpy as np

    sessions = [load_session(workspace / path, prepacking=True) for path in paths]
    times = []
    for _ in range(WARM_UP + RUNS):
        begin = time.perf_counter()
        found: Mapping[str, Any] = proof.outputs(sessions[0], image, paths[0])
        feed = {"embedding": found["embedding"]}
        for session, path in zip(sessions[1:], paths[1:], strict=True):
            proof.outputs(session, feed, path)
        times.append(1000 * (time.perf_counter() - begin))
    p50, p95 = (float(f"{value:.4g}") for value in np.percentile(times[WARM_UP:], [50, 95]))
    return Latency(tuple(paths), p50, p95)
