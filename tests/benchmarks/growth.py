"""Curves of what each step costs as its input grows: the steps of `tests/support/registries/growing.py`, and files of any size.

Up to `CALLS_UP_TO` each step runs once more with its calls of functions counted.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

from support.registries import growing

from benchmarks.measure import Curve, Run, run
from benchmarks.transfer import INGEST, big_file

SIZES = {
    "blobs of a version": [1, 10, 100, 1_000, 10_000],
    "versions of a model": [5, 50, 500, 5_000],
    "models": [10, 50, 300],
    "pushers at once": [1, 2, 4, 8, 16],
}
FURTHER = {
    "versions of a model": (20_000, ["resolve", "add one more", "log"]),
    "models": (10_000, ["resolve one", "search, no index yet", "search, one model changed"]),
}
"""One larger size, and the steps that are fast enough for it. `make test-all` counts the slow steps at their largest sizes."""
CALLS_UP_TO = 100
MEBIBYTES = [1, 16, 256, 1024]
UNITS = {"processor": "s", "bytes sent": "B", "bytes received": "B"}


def curves(kind: str) -> Iterator[Curve]:
    """The curves of all steps of one kind."""
    for name in growing.GROWTH[kind]:
        yield from _of_step(kind, name)


def _of_step(kind: str, name: str) -> Iterator[Curve]:
    """A curve for each count of a step that is not nothing everywhere."""
    further, steps = FURTHER.get(kind, (0, []))
    sizes = SIZES[kind] + ([further] if name in steps else [])
    found: dict[str, dict[int, float]] = {}
    for size in sizes:
        for profiled in (False, True):
            if not profiled or size <= CALLS_UP_TO:
                for what, value in _counted(kind, name, size, profiled).items():
                    found.setdefault(what, {})[size] = value
        print(
            kind,
            name,
            size,
            {what: values.get(size) for what, values in found.items()},
            file=sys.stderr,
            flush=True,
        )
    for what, values in found.items():
        if any(values.values()):
            yield Curve(name, what, kind, list(values), list(values.values()), UNITS.get(what, what))


def _counted(kind: str, name: str, size: int, profiled: bool) -> growing.Counts:
    """The steps get copies of one registry, so each has its own memory of the heads that it saw."""
    growing.PROFILED = profiled
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory,
        patch.dict(os.environ, REG_STATE=f"{directory}/state"),
    ):
        return growing.GROWTH[kind][name](size, Path(directory))


def file_sizes() -> Iterator[Curve]:
    """Peak memory, and bytes read and written, of whole processes that add, push, pull and verify one large file."""
    runs: dict[str, list[Run]] = {"add": [], "push": [], "pull": [], "verify": []}
    reg = Path(sys.executable).with_name("reg")
    for size in MEBIBYTES:
        with big_file(size) as file:
            home, shared, other = (file.with_name(name) for name in ("home", "shared", "other"))
            runs["add"].append(run([sys.executable, "-c", INGEST, home, file]))
            file.unlink()
            runs["push"].append(run([reg, "--registry", home, "push", "acme/big", shared]))
            shutil.rmtree(home)
            runs["pull"].append(run([reg, "--registry", other, "pull", "acme/big", shared]))
            shutil.rmtree(shared)
            runs["verify"].append(run([reg, "--registry", other, "verify"]))
    for verb, found in runs.items():
        for what, values, unit in (
            ("peak memory", [each.peak for each in found], "MiB"),
            ("read", [each.read / 2**20 for each in found], "MiB"),
            ("written", [each.written / 2**20 for each in found], "MiB"),
        ):
            yield Curve(verb, what, "MiB of a file", MEBIBYTES, values, unit)


PARTS: dict[str, Callable[[], Iterator[Curve]]] = {kind: partial(curves, kind) for kind in growing.GROWTH}
PARTS["MiB of a file"] = file_sizes
