"""`reg verify` against the same reading and hashing on every core, without any registry around it."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, pairs, rows, run
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

MIB = 2**20
LARGE, SMALL = 8, 300
"""Files of 512 MiB and of 64 KiB: weights, and what goes with them."""

THREADS = """
import hashlib, os, sys
from concurrent.futures import ThreadPoolExecutor
def digest(path):
    hasher, block = hashlib.sha256(), bytearray(2**20)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            hasher.update(memoryview(block)[:count])
    assert hasher.hexdigest() == os.path.basename(path)
found = [os.path.join(top, name) for top, _, names in os.walk(sys.argv[1]) for name in names]
found.sort(key=os.path.getsize, reverse=True)
with ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(digest, found))
"""
SHELL = 'find "$1" -type f -print0 | xargs -0 -n 1 -P "$(nproc)" sha256sum > /dev/null'


@contextmanager
def filled() -> Iterator[Path]:
    """A registry with one version of about 4 GiB of incompressible bytes, all of it in the page cache."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        registry = Registry(Path(directory) / "home")
        with registry.workspace() as workspace:
            for number in range(LARGE):
                with (workspace / f"{number}.onnx").open("wb") as file:
                    for _ in range(512):
                        file.write(os.urandom(MIB))
            for number in range(SMALL):
                (workspace / f"{number}.txt").write_bytes(os.urandom(MIB // 16))
            artifacts = (
                DraftArtifact("onnx", "float32", f"{number}.onnx", fields={"role": f"part{number}"})
                for number in range(LARGE)
            )
            files = (DraftFile("text", f"{number}.txt") for number in range(SMALL))
            registry.add(Draft("acme/big", workspace, tuple(artifacts), tuple(files)))
        os.sync()
        yield registry.store.root


def benchmark(count: int = 5) -> list[Row]:
    """Whole processes; ours also replays the log and looks for what does not belong there."""
    reg = str(Path(sys.executable).with_name("reg"))
    with filled() as home:
        peers = {
            "threads, readinto + sha256": [sys.executable, "-c", THREADS, home / "blobs"],
            "find, xargs -P, sha256sum": ["sh", "-c", SHELL, "sh", home / "blobs"],
        }
        verify = [reg, "--registry", home, "verify"]
        found = []
        for (peer, command), aim in zip(peers.items(), ("near 1", ""), strict=True):
            measured = pairs(partial(run, verify), partial(run, command), count, warm_up=False)
            found += rows("verify of 4 GiB", peer, measured, aim)[:1]
        return found
