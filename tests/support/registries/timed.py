"""Benchmark documents of one artifact beside full precision, as an export or a device writes them."""

import json
from typing import Any

from onnxreg.registry import Registry
from onnxreg.registry.trust.signatures import attest_benchmark

MACHINE = {"isa": "x86_64+avx2", "runtime": "onnxruntime 1.31.1", "threads": 1}


def check(value: float, interval: Any = None, name: str = "latency, short", metric: str = "ratio") -> Any:
    stated = {"name": name, "metric": metric, "value": value, "verdict": "info"}
    return stated if interval is None else {**stated, "interval": interval}


def document(registry: Registry, ref: str, *checks: Any, index: int = -1, **changes: Any) -> bytes:
    """A benchmark of the last artifact of a version, or of the one at `index`."""
    artifact = registry.get(ref).manifest.artifacts[index]
    timed = {"artifact": str(artifact.digest), "path": artifact.path, "checks": checks}
    about = {"format": "onnxreg-benchmark", "format_version": 1, "cpu": "Z80", "warm_up": 1, "runs": 9}
    return json.dumps({**about, **MACHINE, "artifacts": [timed], **changes}).encode()


def record(registry: Registry, ref: str, *checks: Any, index: int = -1, **changes: Any) -> None:
    release = registry.get(ref)
    report = document(registry, ref, *checks, index=index, **changes)
    attest_benchmark(registry.decisions(release.name), release, report, "benchmark")
