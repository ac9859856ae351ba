"""How long one row takes through a whole family on this CPU: species, head and detector together.

A figure of one machine and moment: it decides whether a release may go out here, and stands in no manifest.
"""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import proof
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import load_session
from onnxreg.converters.toolchain import instruction_set

RUNS, WARM_UP = 40, 5


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one row, one thread, over `runs`, for the graphs at `paths` one after the other."""

    paths: tuple[str, ...]
    p50: float
    p95: float
    runs: int = RUNS
    threads: int = 1

    def __str__(self) -> str:
        return f"p50 {self.p50:g} ms, p95 {self.p95:g} ms: {' + '.join(self.paths)} (one row, {self.threads} thread)"

    def to_json(self) -> dict[str, Any]:
        return {
            "graphs": list(self.paths),
            "p50_ms": self.p50,
            "p95_ms": self.p95,
            "runs": self.runs,
            "threads": self.threads,
            "cpu": f"{platform.machine()} {instruction_set()}",
        }


def measure(workspace: Path, paths: Sequence[str], image: Feed) -> Latency:
    """Run the backbone, which is first, and the other graphs on its embedding, batch 1."""
    import numpy as np

    sessions = [load_session(workspace / path, prepacking=True) for path in paths]
    times = []
    for _ in range(WARM_UP + RUNS):
        begin = time.perf_counter()
        found: Mapping[str, Any] = proof.outputs(sessions[0], image, paths[0])
        feed = {"embedding": found["embedding"], "head": np.zeros(1, np.int64)}
        for session, path in zip(sessions[1:], paths[1:], strict=True):
            proof.outputs(session, feed, path)
        times.append(1000 * (time.perf_counter() - begin))
    p50, p95 = (float(f"{value:.4g}") for value in np.percentile(times[WARM_UP:], [50, 95]))
    return Latency(tuple(paths), p50, p95)
