"""Progress on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from onnxreg.registry.copying import Progress


class Bar(Progress):
    """One bar over all bytes of a piece of work."""

    def __init__(self, drawn: bars.Progress, what: str) -> None:
        self._drawn = drawn
        self._task = drawn.add_task(what, total=None)

    def plan(self, files: int, size: int) -> None:
        self._drawn.update(self._task, total=size)

    def moved(self, size: int) -> None:
        self._drawn.advance(self._task, size)


@contextmanager
def shown(what: str, silent: bool) -> Iterator[Progress]:
    """A progress bar that is gone when the work is done; a mute Progress where stderr is no terminal."""
    if silent or not sys.stderr.isatty():
        yield Progress()
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield Bar(drawn, what)


@contextmanager
def steps(silent: bool) -> Iterator[Callable[[str], None]]:
    """Told what is being done, in a few words: a spinner with the time on a terminal, else a line for each step."""
    if silent:
        yield lambda step: None
        return
    if not sys.stderr.isatty():
        yield lambda step: print(f"{step} ...", file=sys.stderr, flush=True)
        return
    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=None)
        yield lambda step: drawn.update(task, description=step)
