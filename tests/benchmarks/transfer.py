"""Ingest against `sha256sum` and `cp`."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Row, Run, pairs, rows, run

MIB = 2**20

INGEST = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
registry = Registry(Path(sys.argv[1]))
with registry.workspace() as workspace:
    (workspace / "big.onnx").symlink_to(sys.argv[2])
    registry.add(Draft("acme/big", workspace, (DraftArtifact("onnx", "float32", "big.onnx"),)))
"""


@contextmanager
def big_file(mebibytes: int) -> Iterator[Path]:
    """Incompressible bytes in a fresh directory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        path = Path(directory) / "big.onnx"
        with path.open("wb") as file:
            for _ in range(mebibytes):
                file.write(os.urandom(MIB))
        os.sync()
        yield path


def ingest(count: int = 3) -> list[Row]:
    """Both sides end durable: ours syncs by itself, the peer is `sha256sum`, `cp` and `sync` of the copy."""
    with big_file(1024) as file:
        copy, home = file.with_name("copy"), file.with_name("registry")
        script = 'sha256sum "$1" && cp "$1" "$2" && sync "$2"'

        def peer() -> Run:
            copy.unlink(missing_ok=True)
            return run(["sh", "-c", script, "sh", file, copy])

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([sys.executable, "-c", INGEST, home, file])

        return rows("ingest of 1 GiB", "sha256sum + cp + sync", pairs(ours, peer, count), "<= 1.15")[:1]
