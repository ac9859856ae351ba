"""Progress of long work, which the command line draws, and the number of processor cores to use."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Function that reports a number of bytes as moved; a negative number takes back the bytes of a failed attempt."""


class Progress:
    """Receiver of progress, called from several threads. This base class draws nothing."""

    def plan(self, files: int, size: int) -> None:
        """Announce a further number of files, and of bytes in them, that will move."""

    def step(self, label: str) -> None:
        """Announce the next part of the work by its label. Its size is not known."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        """Give a function to report the bytes moved of a file of `size` bytes (None: unknown). Reports may come late."""
        yield lambda count: None


SILENT = Progress()


def count_cores() -> int:
    """The number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
