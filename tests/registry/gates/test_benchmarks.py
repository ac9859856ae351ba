"""Benchmarks on record: about bytes of the version, read back as they were put, judged by nobody."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.registries.home import Home

from onnxreg.registry.trust.signatures import attest_benchmark, read_benchmarks
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft, DraftArtifact


@pytest.fixture
def registry(tmp_path: Path) -> Home:
    registry = Home(tmp_path / "home")
    for version in ("1.0.0", "1.1.0"):
        root = tmp_path / version
        root.mkdir()
        (root / "model.onnx").write_bytes(f"graph of {version}".encode())
        draft = Draft("acme/net", root, (DraftArtifact("onnx", "float32", "model.onnx"),))
        registry.add(draft, version)
    return registry


def document(artifact: Digest, value: float = 1.5, **changes: Any) -> bytes:
    check = {
        "name": "latency of batch 1",
        "metric": "median_ms",
        "value": value,
        "verdict": "info",
        "samples": 9,
    }
    timed = {"artifact": str(artifact), "path": "model.onnx", "checks": [check]}
    about = {
        "cpu": "Z80",
        "isa": "z80",
        "threads": 1,
        "runtime": "onnxruntime 1.31.1",
        "warm_up": 1,
        "runs": 9,
    }
    value_of = {"format": "onnxreg-benchmark", "format_version": 1, **about, "artifacts": [timed], **changes}
    return json.dumps(value_of).encode()


def attest(registry: Home, ref: str, report: bytes) -> None:
    release = registry.get(ref)
    attest_benchmark(registry.decisions(release.name), release, report, "benchmark")


def digest(registry: Home, version: str) -> Digest:
    return registry.get(f"acme/net:{version}").manifest.artifacts[0].digest


def values(registry: Home, version: str) -> list[float | None]:
    found = read_benchmarks(registry.store, Ref("acme/net", version))
    return [check.value for each in found for item in each.artifacts for check in item.checks]


def test_each_version_has_its_own_oldest_first(registry: Home) -> None:
    for value in (2.0, 1.0):
        attest(registry, "acme/net:1.0.0", document(digest(registry, "1.0.0"), value))
    assert values(registry, "1.0.0") == [2.0, 1.0]
    assert values(registry, "1.1.0") == []
    attest(registry, "acme/net:1.0.0", document(digest(registry, "1.0.0"), 1.0))
    assert values(registry, "1.0.0") == [2.0, 1.0]


def test_a_benchmark_of_other_bytes_is_refused(registry: Home) -> None:
    with pytest.raises(InputError, match=r"which is not an artifact of acme/net:1\.0\.0"):
        attest(registry, "acme/net:1.0.0", document(digest(registry, "1.1.0")))
    with pytest.raises(NotFoundError):
        attest(registry, "acme/net:9.9.9", document(digest(registry, "1.0.0")))


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
def test_invalid_benchmarks_are_refused(registry: Home, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="benchmark is not valid"):
        attest(registry, "acme/net:1.0.0", document(digest(registry, "1.0.0"), **changes))
    assert values(registry, "1.0.0") == []
