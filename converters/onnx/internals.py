"""Private attributes of libraries, and calls of the C library: the only module of the converters that uses any.

| attribute | reason |
|---|---|
| torch: the function by which its exporter prints a graph | a failed export would print a whole graph to stdout |
| flatbuffers: the position of a table | the bytes before and behind it are compared and rewritten, and have no other name |
| glibc: malloc_trim | a tenth of the peak memory of an export is what earlier steps have freed |
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_onnx_log() -> Iterator[None]:
    """Inside, PyTorch's exporter does not print a whole graph to stdout when it fails.

    It means to do that only when asked, but its question whether it was (torch 2.13, `setup_onnx_logging`) is always true.
    """
    import torch

    name = "_jit_onnx_log"
    log = getattr(torch._C, name, None)
    if log is None:
        yield
        return
    setattr(torch._C, name, lambda *parts: None)
    try:
        yield
    finally:
        setattr(torch._C, name, log)


def table_position(table: Any) -> int:
    """The byte offset of a table of a flatbuffer."""
    return int(table._tab.Pos)


def return_memory() -> None:
    """Give freed memory back to the operating system, if the C library is glibc, which keeps it."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
