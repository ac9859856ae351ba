"""How long one row takes through a whole family on this CPU: species, head and detector together.

A figure of one machine and moment: it decides whether a release may go out here, and is attested of it, but stands in no
manifest.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.latency import benchmark_document, latency_checks, percentiles
from onnxreg.converters.passes.tools import proof
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.toolchain import cpu_model
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
        name = f"latency of one row with {' and '.join(self.paths[1:])}"
        return latency_checks(name, RUNS, self.p50, self.p95)


def document(latencies: Iterable[Latency], manifest: Manifest) -> BenchmarkDocument:
    """Make the benchmark document of a published family: each latency is recorded with its backbone."""
    checks = {latency.paths[0]: latency.checks() for latency in latencies}
    return benchmark_document(manifest, checks, THREADS, WARM_UP, RUNS)


def measure(workspace: Path, paths: Sequence[str], image: Feed) -> Latency:
    """Run the backbone, which is first, and the other graphs on its embedding, batch 1."""
    sessions = [load_session(workspace / path, prepacking=True) for path in paths]
    times = []
    for _ in range(WARM_UP + RUNS):
        begin = time.perf_counter()
        found: Mapping[str, Any] = proof.outputs(sessions[0], image, paths[0])
        feed = {"embedding": found["embedding"]}
        for session, path in zip(sessions[1:], paths[1:], strict=True):
            proof.outputs(session, feed, path)
        times.append(1000 * (time.perf_counter() - begin))
    return Latency(tuple(paths), *percentiles(times[WARM_UP:]))
