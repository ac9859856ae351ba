"""What several tests or benchmarks begin from, made once in a process and gone when it ends."""

import atexit
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


@cache
def made_once(make: Callable[..., object], *arguments: Any) -> Path:
    """The path that `make` was called with, and these arguments, at the first call."""
    path = Path(tempfile.mkdtemp(dir=stock())) / "made"
    make(path, *arguments)
    return path


@cache
def stock() -> Path:
    """Where all of it is; on the disk of the benchmarks."""
    directory = tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR"))
    atexit.register(directory.cleanup)
    return Path(directory.name)
