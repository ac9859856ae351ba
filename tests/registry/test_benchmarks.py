"""Benchmarks on record: about bytes of the version, read back as they were put, judged by nobody."""

import json
from typing import Any

import pytest
from support.registries.home import Home

from onnxreg.registry.trust.signatures import attest_benchmark, read_benchmarks
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError


@pytest.fixture
def benchmarked(registry) -> Home:
    for version in ("1.0.0", "1.1.0"):
        registry.make(version, seed=version, name="acme/net")
    return registry


def document(artifact: Digest, value: float = 1.5, **changes: Any) -> bytes:
    check = {"name": "latency of batch 1", "metric": "median_ms", "verdict": "info", "samples": 9}
    timed = {"artifact": str(artifact), "path": "model.onnx", "checks": [{**check, "value": value}]}
    about = {
        "cpu": "Z80",
        "isa": "z80",
        "runtime": "onnxruntime 1.31.1",
        "threads": 1,
        "warm_up": 1,
        "runs": 9,
    }
    made = {"format": "onnxreg-benchmark", "format_version": 1, **about, "artifacts": [timed]}
    return json.dumps({**made, **changes}).encode()


def attest(registry: Home, ref: str, report: bytes) -> None:
    release = registry.get(ref)
    attest_benchmark(registry.decisions(release.name), release, report, "benchmark")


def digest(registry: Home, version: str) -> Digest:
    return registry.get(f"acme/net:{version}").manifest.artifacts[0].digest


def values(registry: Home, version: str) -> list[float | None]:
    found = read_benchmarks(registry.get(f"acme/net:{version}"))
    return [check.value for each in found for item in each.artifacts for check in item.checks]


def test_each_version_has_its_own_oldest_first(benchmarked):
    for value in (2.0, 1.0):
        attest(benchmarked, "acme/net:1.0.0", document(digest(benchmarked, "1.0.0"), value))
    assert values(benchmarked, "1.0.0") == [2.0, 1.0]
    assert values(benchmarked, "1.1.0") == []
    attest(benchmarked, "acme/net:1.0.0", document(digest(benchmarked, "1.0.0"), 1.0))
    assert values(benchmarked, "1.0.0") == [2.0, 1.0]


def test_a_benchmark_of_other_bytes_is_refused(benchmarked):
    with pytest.raises(InputError, match=r"which is not an artifact of acme/net:1\.0\.0"):
        attest(benchmarked, "acme/net:1.0.0", document(digest(benchmarked, "1.1.0")))
    with pytest.raises(NotFoundError):
        attest(benchmarked, "acme/net:9.9.9", document(digest(benchmarked, "1.0.0")))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "onnxreg-evaluation"},
        {"format_version": 2},
        {"threads": 0},
        {"runs": -1},
        {"artifacts": []},
        {"cpu": None},
    ],
)
def test_invalid_benchmarks_are_refused(benchmarked, changes):
    with pytest.raises(InputError, match="benchmark is not valid"):
        attest(benchmarked, "acme/net:1.0.0", document(digest(benchmarked, "1.0.0"), **changes))
    assert values(benchmarked, "1.0.0") == []
