"""Starting points of several tests or benchmarks, made once in a process and removed when it ends."""

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
    """The directory of all of them, on the disk of the benchmarks."""
    directory = tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR"))
    atexit.register(directory.cleanup)
    return Path(directory.name)
