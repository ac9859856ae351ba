"""Long work: its progress, which the command line draws, and the processor cores for it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Reports how many more bytes moved; a negative number takes back those of a try that failed."""


class Progress:
    """Receiver of progress; this one draws nothing. Called from several threads."""

    def plan(self, files: int, size: int) -> None:
        """Announce that so many more files and bytes will move."""

    def step(self, label: str) -> None:
        """Announce the next part of the work by its label; its size is not known."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        """Follow one file of `size` bytes, if known; a store that sends files together may report late."""
        yield lambda count: None


SILENT = Progress()


def count_cores() -> int:
    """The cores that this process may use; it may be bound to fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
