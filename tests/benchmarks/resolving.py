"""A question to a registry in a directory, in process: the index file is read each time, and parsed once.

The model has one version of 64 artifacts, far more than most. The peer parses the same bytes and asks nothing.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Run, pairs, rows
from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.log.summary import VersionSummary
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.requirements import Query

NAME, VERSION = "acme/many", Version(1, 0, 0)
ARTIFACTS = 64
FORMATS = ("onnx", "onnx-int8", "ort", "onnx-android")


def artifact(number: int) -> dict[str, Any]:
    found = {
        "format": FORMATS[number % 4],
        "precision": "int8" if number % 4 == 1 else "float32",
        "path": f"model-{number}",
        "digest": str(Digest.of(str(number).encode())),
        "size": 1_000_000 + number,
        "state": "certified" if number % 3 else "unknown",
        "opset": 15 + number % 12,
        "operators": str(Digest.of(b"operators")),
        "recall": {"PHONE": number % 100 / 100},
    }
    return found | {"ort_format": 6} if number % 4 == 2 else found


def index_file(registry: str) -> bytes:
    manifest = Digest.of(b"manifest")
    ledger = Log(registry, NAME, {}.__getitem__)
    about = {"time": "2026-01-02T03:04:05Z", "actor": "ada", "name": NAME, "nonce": "0" * 32}
    ledger.append(Publish(**about, version=VERSION, manifest=manifest, size=1))
    artifacts = [artifact(number) for number in range(ARTIFACTS)]
    summary = {"manifest": str(manifest), "size": 1, "artifacts": artifacts, "files": []}
    ledger.summaries[VERSION] = VersionSummary.read(summary)
    return ledger.encode()


def benchmark(count: int = 15) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        registry = Registry(Path(directory))
        data = index_file(registry.id)
        path = registry.store.root / index_path(NAME)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        line, query = data.split(b"\n")[0], Query(certified=True, where=parse("opset <= 18"))
        ours, theirs = lambda: registry.resolve(NAME, query), lambda: json.loads(line)
        measured = pairs(lambda: timed(ours), lambda: timed(theirs), count)
    name = f"Registry.resolve, an index file of {len(line) / 1e3:.0f} kB"
    return rows(name, "json.loads of it", measured)[:1]


def timed(work: Callable[[], object]) -> Run:
    """Seconds of wall time; memory is not looked at here."""
    gc.collect()
    gc.disable()
    started, used = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    gc.enable()
    return Run(wall, 1, cpu)
