"""The display of running work on a terminal. Imported only if there is one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Column

from onnxreg.cli.render import output
from onnxreg.registry.support.parallel import WORKERS
from onnxreg.schema.core.progress import Advance, Progress

BESIDE = 46
"""Columns that the figures of the whole and a short bar take."""
CONTROL_C = "^C "
"""The text that a terminal adds to the last line at Ctrl-C; it must not begin a new line."""


class ProgressDisplay(Progress):
    """Draws the files under way, at most `lines` of them, below them the whole."""

    def __init__(self, label: str, width: int, lines: int) -> None:
        self._room = max(width - BESIDE, 8)
        self._planned = 0
        self._free = threading.Semaphore(lines)
        self._files = bars.Progress(_text(), bars.BarColumn(20), bars.DownloadColumn(), expand=False)
        self._all = bars.Progress(
            _text(),
            bars.BarColumn(None),
            bars.DownloadColumn(table_column=Column(no_wrap=True)),
            bars.TransferSpeedColumn(table_column=Column(no_wrap=True)),
            bars.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            expand=True,
        )
        self._task = self._all.add_task(_fit(label, self._room), total=None)
        self.lines = Constrain(Group(self._files, self._all), width - len(CONTROL_C))

    def plan(self, files: int, size: int) -> None:
        self._planned += size
        self._all.update(self._task, total=self._planned)

    def step(self, label: str) -> None:
        self._all.update(self._task, description=_fit(label, self._room))

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Advance]:
        if not self._free.acquire(blocking=False):
            yield self._advance
            return
        task = self._files.add_task(f"  {_fit(path, self._room - 2)}", total=size)

        def advance(count: int) -> None:
            if task in self._files.task_ids:
                self._files.advance(task, count)
            self._advance(count)

        try:
            yield advance
        finally:
            self._files.remove_task(task)
            self._free.release()

    def _advance(self, count: int) -> None:
        self._all.advance(self._task, count)


def _text() -> bars.TextColumn:
    return bars.TextColumn("{task.description}", markup=False)


def _fit(text: str, width: int) -> str:
    """The end of a text that is too long: there a path differs from others."""
    text = output.printable(text)
    return text if len(text) <= width else f"…{text[1 - width :]}"


class StepDisplay(Progress):
    """Draws a spinner, the current step and the time."""

    def __init__(self, bar: bars.Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def step(self, label: str) -> None:
        self._bar.update(self._task, description=label)


class CountDisplay(Progress):
    """Prints the text of each step that ended above a bar of `total`."""

    def __init__(self, bar: bars.Progress, label: str, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task(label, total=total)

    def step(self, label: str) -> None:
        self._bar.console.print(label, markup=False, highlight=False, soft_wrap=True)
        self._bar.advance(self._task)


@contextmanager
def files_drawn(label: str) -> Iterator[Progress]:
    """A line for each file under way and one for the whole, gone when the work is done."""
    console = Console(stderr=True)
    drawn = ProgressDisplay(label, console.width, min(WORKERS, max(console.height - 2, 1)))
    with Live(drawn.lines, console=console, transient=True, refresh_per_second=10):
        yield drawn


@contextmanager
def steps_drawn() -> Iterator[Progress]:
    """The current step, gone when the work is done."""
    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield StepDisplay(bar)


@contextmanager
def count_drawn(label: str, total: int) -> Iterator[Progress]:
    """The text of each step that ended, which stays, above a bar that goes."""
    columns = (_text(), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield CountDisplay(bar, label, total)
