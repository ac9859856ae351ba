"""Help for long work: progress, which the command line draws, and the number of processor cores to use."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Function that reports how many more bytes moved; a negative number takes back the bytes of a failed attempt."""


class Progress:
    """Receiver of progress, called from several threads. This base class draws nothing."""

    def plan(self, files: int, size: int) -> None:
        """Announce that this many more files and bytes will move."""

    def step(self, label: str) -> None:
        """Announce the next part of the work, whose size is not known, by its label."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        """Follow one file of `size` bytes (None: unknown); a store that sends files together may report late."""
        yield lambda count: None


SILENT = Progress()


def count_cores() -> int:
    """The number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
