"""Progress: drawn by rich on a terminal; without a terminal, nothing, or a line for each step."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onnxreg.cli.output import printable
from onnxreg.schema.core.progress import SILENT, Advance, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

BESIDE = 46
"""The width in characters of a transfer's figures and a short bar."""
CONTROL_C = "^C "
"""The text that a terminal adds to the last line at Ctrl-C. Room is kept for the text, so that it fits on the line."""


class Drawn(Progress):
    """Progress that draws one line: a label of at most `room` characters, and the bytes of all transferred files."""

    def __init__(self, bar: "Bar", label: str, room: int) -> None:
        self._bar, self._room, self._planned = bar, room, 0
        self._task = bar.add_task(self._fit(label), total=None)

    def plan(self, files: int, size: int) -> None:
        self._planned += size
        self._bar.update(self._task, total=self._planned)

    def step(self, label: str) -> None:
        self._bar.update(self._task, description=self._fit(label))

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        yield lambda count: self._bar.advance(self._task, count)

    def _fit(self, label: str) -> str:
        """Shorten a long label to its end, because paths differ at their ends."""
        text = printable(label)
        return text if len(text) <= self._room else f"…{text[1 - self._room :]}"


class Steps(Progress):
    """Progress that, before each step, calls `check`, which may raise, and then `draw` with the label of the step."""

    def __init__(self, draw: Callable[[str], object], check: Callable[[], None]) -> None:
        self._draw, self._check = draw, check

    def step(self, label: str) -> None:
        self._check()
        self._draw(label)


@contextmanager
def files(label: str, silent: bool) -> Iterator[Progress]:
    """Draw the bytes that were transferred, and the total; nothing if stderr is not a terminal."""
    if silent or not sys.stderr.isatty():
        yield SILENT
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    line, drawn = transfer(label, console.width)
    with Live(line, console=console, transient=True, refresh_per_second=10):
        yield drawn


def transfer(label: str, width: int) -> tuple[Any, Progress]:
    """The line of a transfer, which rich draws, and the progress that updates the line."""
    from rich import progress
    from rich.constrain import Constrain
    from rich.table import Column

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(None),
        progress.DownloadColumn(table_column=Column(no_wrap=True)),
        progress.TransferSpeedColumn(table_column=Column(no_wrap=True)),
        progress.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        expand=True,
    )
    return Constrain(bar, width - len(CONTROL_C)), Drawn(bar, label, max(width - BESIDE, 8))


@contextmanager
def steps(silent: bool) -> Iterator[Progress]:
    """Draw the current step with a spinner and the time; a line for each step if stderr is not a terminal.

    After Ctrl-C, the next step or the end of the work raises KeyboardInterrupt again, even if the work swallowed the first.
    """
    if silent or not sys.stderr.isatty():
        with interruptible() as check:
            yield Steps(lambda label: silent or print(f"{label} ...", file=sys.stderr, flush=True), check)
        return
    from rich import progress
    from rich.console import Console

    text = progress.TextColumn("{task.description}", markup=False)
    columns = (progress.SpinnerColumn(), text, progress.TimeElapsedColumn())
    bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)
    with bar, interruptible() as check:
        yield Steps(lambda label: bar.update(task, description=printable(label)), check)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Run other people's code interruptibly. Yield a check that raises KeyboardInterrupt if Ctrl-C was pressed.

    An exception in a finalizer, a callback or below a bare `except` would be lost. So the handler records the press,
    and the check and the end of the work raise KeyboardInterrupt. A handler that is not Python's own is not replaced.
    """
    pressed = threading.Event()

    def press(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    owns_handler = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if owns_handler:
        signal.signal(signal.SIGINT, press)
    try:
        yield check
    finally:
        if owns_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    check()
