"""Private attributes of libraries: the only module of the converters that uses any.

| attribute | reason |
|---|---|
| torch: the function by which its exporter prints a graph | a failed export would print a whole graph to stdout |
| flatbuffers: the position of a table | the bytes before and behind it are compared and rewritten, and have no other name |
"""

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
