"""The processor cores of this process."""

import os


def count_cores() -> int:
    """The cores that this process may use; it may be bound to fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
