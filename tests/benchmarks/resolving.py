"""Resolving over 64 artifacts in process, against the same questions asked of plain dicts in one loop.

The state is decoded before: what is timed is what a server or an app repeats, the evaluation of the candidates.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Run, pairs, rows
from onnxreg.registry.log.log import Log
from onnxreg.registry.registry import Registry
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.log.state import State
from onnxreg.schema.log.summary import VersionSummary
from onnxreg.schema.manifest.operators import read_operator_set
from onnxreg.schema.query.device import Device, preset
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.requirements import Query
from onnxreg.schema.query.resolve import VersionCandidate, resolve_among

NAME, VERSION = "acme/many", Version(1, 0, 0)
ARTIFACTS = 64
"""Artifacts of one version: far more than most models have."""
SIX = "size >= 1MB and path ~ 'model-*' and name ~ 'acme/*' and (certified or opset < 20) and not recall.PHONE < 0.5"
FORMATS = ("onnx", "onnx-int8", "ort", "onnx-android")
OPERATORS = canonical.encode(
    [{"domain": "ai.onnx", "name": "MatMul", "opset": 13, "inputs": {"0": ["float"]}}]
)
MINIMAL = {"ort": "1.23", "build": "minimal", "operators": 'ai.onnx;13;MatMul{"inputs": {"0": ["float"]}}'}


def artifact(number: int) -> dict[str, Any]:
    found = {
        "format": FORMATS[number % 4],
        "precision": "int8" if number % 4 == 1 else "float32",
        "path": f"model-{number}",
        "digest": str(Digest.of(str(number).encode())),
        "size": 1_000_000 + number,
        "state": "certified" if number % 3 else "unknown",
        "opset": 15 + number % 12,
        "operators": str(Digest.of(OPERATORS)),
        "recall": {"PHONE": number % 100 / 100},
    }
    return found | {"ort_format": 6} if number % 4 == 2 else found


def index_file(registry: str) -> bytes:
    """Of a model with one version of so many artifacts."""
    manifest = Digest.of(b"manifest")
    ledger = Log(registry, NAME, {}.__getitem__)
    about = {"time": "2026-01-02T03:04:05Z", "actor": "ada", "name": NAME, "nonce": "0" * 32}
    ledger.append(Publish(**about, version=VERSION, manifest=manifest, size=1))
    ledger.summaries[VERSION] = VersionSummary.read(
        {
            "manifest": str(manifest),
            "size": 1,
            "artifacts": [artifact(number) for number in range(ARTIFACTS)],
            "files": [],
        }
    )
    return ledger.encode()


def benchmark(count: int = 15) -> list[Row]:
    line = index_file("0" * 32).split(b"\n")[0]
    state = State.decode(line)
    summary = state.summaries.get(VERSION)
    assert summary is not None
    candidate = VersionCandidate(VERSION, state.versions[VERSION], summary)
    plain = canonical.decode(line)["summaries"][str(VERSION)]["artifacts"]
    cases: list[tuple[str, Query, Device | None, Callable[[dict[str, Any]], bool]]] = [
        ("no question", Query(), None, lambda a: True),
        (
            "format, certified, size",
            Query(("onnx-int8",), certified=True, max_size=1_000_032),
            None,
            lambda a: a["format"] == "onnx-int8" and a["state"] == "certified" and a["size"] <= 1_000_032,
        ),
        ("a stock device", Query(), preset("ort-android-1.23"), lambda a: a["opset"] <= 23),
        (
            "a minimal build",
            Query(),
            Device.read(MINIMAL),
            lambda a: a.get("ort_format") == 6 and a["opset"] <= 23,
        ),
        (
            "an expression",
            Query(where=parse("opset <= 18 and recall.PHONE >= 0.9")),
            None,
            lambda a: a["opset"] <= 18 and a["recall"].get("PHONE", 0) >= 0.9,
        ),
        (
            "six tests, of which the first three hold of all",
            Query(where=parse(SIX)),
            None,
            lambda a: (
                a["size"] >= 1_000_000
                and fnmatchcase(a["path"], "model-*")
                and NAME.startswith("acme/")
                and (a["state"] == "certified" or a["opset"] < 20)
                and a["recall"].get("PHONE", 1) >= 0.5
            ),
        ),
        (
            "least recall",
            Query(min_recall={"PHONE": 0.95}),
            None,
            lambda a: a["recall"].get("PHONE", 0) >= 0.95,
        ),
    ]

    def ours(query: Query, device: Device | None) -> Run:
        return timed(
            lambda: resolve_among(
                state, [candidate], query, device, lambda digest: read_operator_set(OPERATORS), True
            )
        )

    def theirs(fits: Callable[[dict[str, Any]], bool]) -> Run:
        def loop() -> object:
            return min(
                (a for a in plain if fits(a)),
                key=lambda a: (a["state"], a["format"], a["size"]),
                default=None,
            )

        return timed(loop)

    found = []
    for what, query, device, fits in cases:
        measured = pairs(lambda q=query, d=device: ours(q, d), lambda f=fits: theirs(f), count)
        name = f"resolve {ARTIFACTS} artifacts: {what}"
        found += rows(name, "a loop over dicts", measured, "< 1 ms")[:1]
    return [*found, in_process(count)]


def in_process(count: int) -> Row:
    """The facade's question to a registry in a directory: the index file is read each time, and parsed once."""
    with tempfile.TemporaryDirectory() as directory:
        registry = Registry(Path(directory))
        data = index_file(registry.id)
        path = registry.store.root / index_path(NAME)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        line, query = data.split(b"\n")[0], Query(certified=True, where=parse("opset <= 18"))
        measured = pairs(
            lambda: timed(lambda: registry.resolve(NAME, query)),
            lambda: timed(lambda: json.loads(line)),
            count,
        )
    name = f"Registry.resolve, an index file of {len(line) / 1e3:.0f} kB"
    return rows(name, "json.loads of it", measured)[0]


def timed(work: Callable[[], object]) -> Run:
    """Seconds of wall time; memory is not looked at here."""
    gc.collect()
    gc.disable()
    started, used = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    gc.enable()
    return Run(wall, 1, cpu)
