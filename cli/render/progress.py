"""Progress: drawn on a terminal that a person watches; else nothing, or a line for each step."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxreg.cli.interrupts import interruptible
from onnxreg.schema.core.progress import SILENT, Progress


class Lines(Progress):
    """Prints each step on stderr."""

    def __init__(self, ending: str = "") -> None:
        self._ending = ending

    def step(self, label: str) -> None:
        print(f"{label}{self._ending}", file=sys.stderr, flush=True)


@contextmanager
def files(label: str, silent: bool) -> Iterator[Progress]:
    """Draw the files that move, and the whole; nothing if stderr is not a terminal."""
    if silent or not sys.stderr.isatty():
        yield SILENT
        return
    from onnxreg.cli.render.progress_display import files_drawn

    with files_drawn(label) as drawn:
        yield drawn


@contextmanager
def steps(silent: bool) -> Iterator[Progress]:
    """Draw the current step with a spinner and the time; a line for each step if stderr is not a terminal.

    Ctrl-C is raised at the next step and at the end of the last one, even if the work in between swallowed it.
    """
    with _steps(silent) as drawn, interruptible() as check:
        yield CheckedProgress(drawn, check)


class CheckedProgress(Progress):
    """Calls `check` before each step is drawn; `check` may raise."""

    def __init__(self, drawn: Progress, check: Callable[[], None]) -> None:
        self._drawn = drawn
        self._check = check

    def step(self, label: str) -> None:
        self._check()
        self._drawn.step(label)


@contextmanager
def _steps(silent: bool) -> Iterator[Progress]:
    if silent:
        yield SILENT
    elif not sys.stderr.isatty():
        yield Lines(" ...")
    else:
        from onnxreg.cli.render.progress_display import steps_drawn

        with steps_drawn() as drawn:
            yield drawn


@contextmanager
def counted(label: str, total: int, silent: bool) -> Iterator[Progress]:
    """Print a text for each step that ended; on a terminal with a bar of `total` below."""
    if silent:
        yield SILENT
    elif not sys.stderr.isatty():
        yield Lines()
    else:
        from onnxreg.cli.render.progress_display import count_drawn

        with count_drawn(label, total) as drawn:
            yield drawn
