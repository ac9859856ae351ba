"""Which files Python opens or lists: what a command costs, without a clock. SQLite opens its own file unseen."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_seen: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in ("open", "os.listdir", "os.scandir"):
        _seen.append(os.fspath(arguments[0]) if isinstance(arguments[0], str | Path) else "")


@cache
def _hook() -> None:
    """Watch from the first use on: a hook stays, and costs a little at every event of the process."""
    sys.addaudithook(_watch)


@contextmanager
def opened(root: Path) -> Iterator[list[str]]:
    """The paths below a directory that are opened or listed meanwhile, sorted, one for each time."""
    global _seen
    _hook()
    seen, found = [], []
    _seen = seen
    try:
        yield found
    finally:
        _seen = None
        found += sorted(os.path.relpath(path, root) for path in seen if path.startswith(f"{root}{os.sep}"))
