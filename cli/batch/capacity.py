"""The number of exports that fit on this machine at once."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from onnxreg.cli.batch.jobs import Job
from onnxreg.converters.source.source_files import weight_files
from onnxreg.schema.core.errors import RegError

FRAMEWORKS = 500 * 10**6
"""Bytes that a process takes with torch, transformers and ONNX Runtime, before any weights."""
COPIES = 6
"""The peak memory of an export, in sizes of the weights: 5.0 and 5.3 were measured at 1.0 and 0.25 GB."""
UNKNOWN = 500 * 10**6
"""Bytes of weights that are not on this machine yet: a hub id that was not fetched yet, a source that a recipe names."""


def processes(jobs: Iterable[Job]) -> int:
    """As many as there are jobs, cores, and rooms for the largest job in the memory that is free; at least one."""
    jobs = list(jobs)
    free = free_memory()
    largest = max(map(need, jobs), default=0)
    rooms = len(jobs) if free is None or not largest else free // largest
    return max(1, min(len(jobs), cores(), rooms))


def need(job: Job) -> int:
    """The bytes of memory that a job takes, as an estimate from the size of its weights."""
    return FRAMEWORKS + COPIES * _weights(job.request.source)


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes available without swapping, no more than the control group allows; None if that is unknown."""
    limits = [_available(root), _left_in_group(root / "sys/fs/cgroup")]
    return min((size for size in limits if size is not None), default=None)


def _available(root: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left_in_group(group: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit, used = ((group / f"memory.{name}").read_text("ascii") for name in ("max", "current"))
        return max(0, int(limit) - int(used))
    return None


def _weights(source: str | None) -> int:
    directory = Path(source or "")
    if source is None or not directory.is_dir():
        return UNKNOWN
    with suppress(RegError, OSError):
        return sum((directory / name).stat().st_size for name in weight_files(directory))
    return 0
