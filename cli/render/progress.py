"""Progress: drawn on a terminal, where a person watches; else nothing, or a line for each step."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxreg.cli.interrupts import interruptible
from onnxreg.cli.render import output
from onnxreg.registry.transfer.copy import Progress


@contextmanager
def shown(what: str, silent: bool) -> Iterator[Progress]:
    """Draws on stderr what is done until it is done; a mute Progress where stderr is no terminal."""
    if silent or not sys.stderr.isatty():
        yield Progress()
        return
    from onnxreg.cli.render.progress_display import files_drawn

    with files_drawn(what) as drawn:
        yield drawn


@contextmanager
def steps(silent: bool) -> Iterator[Callable[[str], None]]:
    """Told what is being done, in a few words: a spinner with the time on a terminal, else a line for each step.

    Ctrl-C is raised at the next step and at the end of the last one, even where what was done in between swallowed it.
    """
    with _told(silent) as tell, interruptible() as check:

        def report(step: str) -> None:
            check()
            tell(step)

        yield report


@contextmanager
def _told(silent: bool) -> Iterator[Callable[[str], None]]:
    if silent:
        yield lambda step: None
        return
    if not sys.stderr.isatty():
        yield lambda step: print(f"{step} ...", file=sys.stderr, flush=True)
        return
    from onnxreg.cli.render.progress_display import steps_drawn

    with steps_drawn() as tell:
        yield tell


@contextmanager
def counted(what: str, total: int, silent: bool) -> Iterator[Callable[..., None]]:
    """Told of each piece of work that ended, in lines: prints them on stderr, on a terminal with a bar of `total` below."""
    if silent:
        yield lambda *lines: None
        return
    if not sys.stderr.isatty():
        yield lambda *lines: print(*map(output.printable, lines), sep="\n", file=sys.stderr, flush=True)
        return
    from onnxreg.cli.render.progress_display import count_drawn

    with count_drawn(what, total) as tell:
        yield tell
