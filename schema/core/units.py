"""Sizes (`30MB`, `512MiB`), durations (`15min`, `7d`) and counts as text, and the progress of long work."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onnxreg.schema.core.errors import InputError

SIZE_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DURATION_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
# Reports how many bytes were moved. A negative number takes back the bytes of a failed attempt.
Advance = Callable[[int], None]


def parse_size(text: str) -> int:
    """Read a size such as `1.5GB`, `512MiB` or `100` as bytes. Raise InputError for other text."""
    match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?([A-Za-z]*)", text)
    if match is None or match[3] not in SIZE_UNITS:
        raise InputError(f"not a size: {text[:40]!r}", "write 30MB, 0.5GB, 28.5MiB or a number of bytes")
    decimals = match[2] or ""
    count, remainder = divmod(int(match[1] + decimals) * SIZE_UNITS[match[3]], 10 ** len(decimals))
    if remainder or count >= 2**53:
        raise InputError(f"{text[:40]} is not a whole number of bytes below 2^53")
    return int(count)


def size(value: Any) -> int:
    """Read a size in a JSON document: a number of bytes, or a text such as `30MB`. Raise InputError for another value."""
    if type(value) is int and 0 <= value < 2**53:
        return value
    return parse_size(value if isinstance(value, str) else json.dumps(value))


def parse_duration(text: str) -> int:
    """Read a duration such as `90s`, `15min`, `12h`, `7d` or `2w` as seconds. Raise InputError for other text."""
    match = re.fullmatch(r"([0-9]{1,9})([A-Za-z]*)", text)
    if match is None or match[2] not in DURATION_UNITS:
        raise InputError(f"not a length of time: {text[:40]!r}", "write 12h or 7d; units are s, min, h, d, w")
    return int(match[1]) * DURATION_UNITS[match[2]]


def format_size(count: int) -> str:
    """Write a number of bytes, such as `1.5 GB` (10**9 bytes)."""
    for unit in ("GB", "MB", "kB"):
        if count >= SIZE_UNITS[unit]:
            return f"{count / SIZE_UNITS[unit]:.1f} {unit}"
    return f"{count} B"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, such as `1 blob` or `2 blobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Progress:
    """A receiver of progress, called from several threads. This base class shows nothing."""

    def plan(self, files: int, size: int) -> None:
        """Announce further files that will be read or copied. `size` is their total size in bytes."""

    def step(self, label: str) -> None:
        """Announce the next step of the work, whose duration is unknown."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        """Yield a function to call with the number of bytes read or copied. `size` is the file's size, if known."""
        yield lambda count: None


SILENT = Progress()


def count_cores() -> int:
    """Return the number of cores that this process may use. The machine may have more cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
