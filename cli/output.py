"""JSON, tables, progress, and errors with their exit statuses. Every verb needs this, so it imports nothing slow."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from shutil import get_terminal_size
from textwrap import TextWrapper, wrap
from typing import TYPE_CHECKING, Any, TextIO

from onnxreg.schema.core import units
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, InputError, RegError, missing_extra
from onnxreg.schema.core.units import SILENT, Advance, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


size, counted = units.format_size, units.counted

_WORDS = {
    "32": "certified, pass, kept, better",
    "33": "unknown, degrading, hint, yanked, partial, expired, purged, stopped",
    "31": "refused, fail, failed, breaking, error, damaged, missing, broken, worse, now fails, fails (other suite)",
    "2": "info, cosmetic",
}
# Word -> ANSI number
COLOURS = {word: number for number, words in _WORDS.items() for word in words.split(", ")}
_RIGHT = "BEFORE, AFTER, CHANGE, SIZE, SEQ, VERSIONS, EVENTS, BLOBS, VALUE, LIMIT, SAMPLES, UNIQUE, SHARED"
NUMBERS = frozenset(_RIGHT.split(", "))  # columns that are aligned to the right
MIN_COLUMN_WIDTH, COLUMN_GAP = 6, 2  # in characters


def write_json(value: Any) -> None:
    """Print a value as JSON on stdout. Records use their `to_json`. Paths and refs become text."""
    print(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | set | BaseException):
        raise TypeError(f"{type(value).__name__} has no JSON")
    return value.to_json() if hasattr(value, "to_json") else str(value)


def fields(item: object, names: str) -> dict[str, Any]:
    """Return attributes as a dict. The names `seq bytes=result.size` give `{seq: item.seq, bytes: item.result.size}`."""
    pairs = (name.rpartition("=") for name in names.split())
    return {key or path: attrgetter(path)(item) for key, _, path in pairs}


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically. If the file already has these bytes, it is not touched."""
    from onnxreg.registry.system import host_errors, replace_file

    with host_errors(f"writing {path}"):
        if not path.is_file() or path.read_bytes() != data:
            replace_file(path, data)


def write_bytes(data: bytes) -> None:
    """Print exactly these bytes on stdout. If stdout is a terminal, a newline follows."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()


def printable(text: str) -> str:
    """Escape control characters. A text that others wrote could otherwise control the terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def paint(word: str, stream: TextIO | None = None) -> str:
    """Colour a word, if the stream is a terminal and the user wants colours (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or word.strip() not in COLOURS or not (stream or sys.stdout).isatty():
        return word
    return f"\x1b[{COLOURS[word.strip()]}m{word}\x1b[0m"


def standing(item: Any, state: str = "") -> str:
    """Return an artifact's state for people. A full-precision file whose state is `unknown` is a `reference`."""
    state = state or item.state
    return "reference" if state == "unknown" and item.precision == "float32" else state


def filled(text: str, width: int, indent: str = "", first: str = "") -> str:
    """Fold a text at `width`. Put `first` before the first line, and `indent` before each further line."""
    return TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False).fill(text)


def fold_line(line: str, indent: str, stream: TextIO | None = None) -> str:
    """Fold a line at the width of the terminal, if there is one. Put `indent` before further lines."""
    return filled(line, get_terminal_size().columns, indent) if (stream or sys.stdout).isatty() else line


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table. Columns that are empty in every row are left out.

    A cell is empty for None. Sequences are joined by commas, and digests are shortened. On a narrow terminal, the
    widest columns are folded.
    """
    body = [[printable(_cell(cell)) for cell in row] for row in rows]
    shown = [index for index in range(len(header)) if any(row[index] for row in body)]
    lines: list[Sequence[str]] = [[row[index] for index in shown] for row in [header, *body] if body]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        room = get_terminal_size().columns - COLUMN_GAP * (len(widths) - 1)
        while sum(widths) > room and max(widths) > MIN_COLUMN_WIDTH:
            widths[widths.index(max(widths))] -= 1
        lines = [line for row in lines for line in zip_longest(*map(wrap, row, widths), fillvalue="")]
    right = [header[index] in NUMBERS for index in shown]
    yield from ((" " * COLUMN_GAP).join(map(_pad, line, widths, right)).rstrip() for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, Digest):
        return value.short
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _pad(cell: str, width: int, right: bool) -> str:
    return paint(cell.rjust(width) if right else cell.ljust(width))


def shortened(value: object) -> str:
    """Format a value in at most 60 characters: a text unchanged, None as `nothing`, and any other value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)
    text = "nothing" if value is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def number(value: float | None) -> str:
    """Format a number with four significant digits. None gives ""."""
    return "" if value is None else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format seconds as `12 s`, `3 min 05 s`, `2 h 10 min` or `3 days`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    hours = f"{total // 3600} h {total % 3600 // 60:02} min"
    return hours if total < 2 * 86400 else f"{total // 86400} days"


INTERRUPT_AGAIN_SECONDS = 1.5

# Of each family of errors; 1 is a bug
EXIT_STATUS = {
    "input": 2,
    "not-found": 3,
    "integrity": 4,
    "conflict": 5,
    "remote": 6,
    "conversion": 7,
    "gate": 8,
    "environment": 9,
    "interrupted": 130,
}


class InterruptError(RegError, family="interrupted"):
    """The user pressed Ctrl-C."""


def report(error: RegError | KeyboardInterrupt | OSError, is_json: bool = False) -> int:
    """Print an error on stderr, as `{"error": {...}}` if `is_json` is set. Return the exit status of the error."""
    if isinstance(error, KeyboardInterrupt):
        error = InterruptError("interrupted", "run the command again; nothing half-written was kept")
    if isinstance(error, OSError):
        error = _of_system(error)
    if is_json:
        print(json.dumps({"error": fields(error, "family message hint")}), file=sys.stderr)
    else:
        lines = [_line("error", error.message)]
        lines += [f"  {printable(line)}" for line in error.drawing]
        lines += [_line("hint", error.hint)] if error.hint else []
        print("\n".join(lines), file=sys.stderr)
    return EXIT_STATUS[error.family]


def _line(label: str, text: str) -> str:
    line = fold_line(f"{label}: {printable(text)}", " " * (len(label) + 2), sys.stderr)
    return f"{paint(label, sys.stderr)}{line.removeprefix(label)}"


def _of_system(error: OSError) -> RegError:
    if isinstance(error, IsADirectoryError) and error.filename:
        return InputError(f"{error.filename} is a directory", "name a file")
    prefix = f"{error.filename}: " if error.filename else "the output cannot be written: "
    hint = "check the path, its permissions and the space on its disk"
    return HostError(f"{prefix}{error.strerror or error}", hint)


@contextmanager
def resumable() -> Iterator[None]:
    """A context that turns Ctrl-C into an InterruptError. Its hint says that a second run continues the transfer.

    A library may catch the first interrupt, so the signal is sent again every 1.5 s until the context ends.
    """
    again: list[threading.Timer] = []

    def interrupt(*_: object) -> None:
        again.append(threading.Timer(INTERRUPT_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT)))
        again[-1].daemon = True
        again[-1].start()
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, interrupt) if is_main else None
    try:
        yield
    except KeyboardInterrupt:
        hint = "run the same command again: what arrived whole is not moved again"
        raise InterruptError("interrupted", hint) from None
    finally:
        for timer in again:
            timer.cancel()
        if is_main:
            signal.signal(signal.SIGINT, before)


@contextmanager
def prefix_outcome(outcome: str) -> Iterator[None]:
    """A context that puts `outcome`, a note about finished work, before the message of an error."""
    try:
        yield
    except RegError as error:
        error.message = f"{outcome}, but {error.message}"
        raise
    except KeyboardInterrupt:
        raise InterruptError(f"{outcome}, then interrupted", "run the same command again to go on") from None


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """A context that turns the ImportError of a missing library into a HostError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "onnxreg"):
            raise
        raise missing_extra(module, extra, purpose) from error


BESIDE = 46  # characters of a line of progress beside its label
CONTROL_C = "^C "  # a terminal adds this at Ctrl-C; a line of progress leaves room for it


class Drawn(Progress):
    """Progress that is shown as one line: a label of at most `room` characters, and the bytes of all files."""

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
        # Cut at the start: paths differ at their ends.
        text = printable(label)
        return text if len(text) <= self._room else f"…{text[1 - self._room :]}"


class Steps(Progress):
    def __init__(self, draw: Callable[[str], object]) -> None:
        self._draw = draw

    def step(self, label: str) -> None:
        self._draw(label)


@contextmanager
def files(label: str, silent: bool) -> Iterator[Progress]:
    """A context that shows the transferred bytes and the total on stderr, if stderr is a terminal."""
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
    """Return the line that rich draws for a transfer, and the `Progress` that updates this line."""
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
    """A context that shows the current step, with a spinner and the time. Without a terminal, it prints each step."""
    if silent or not sys.stderr.isatty():
        yield Steps(lambda label: silent or print(f"{label} ...", file=sys.stderr, flush=True))
        return
    from rich import progress
    from rich.console import Console

    text = progress.TextColumn("{task.description}", markup=False)
    columns = (progress.SpinnerColumn(), text, progress.TimeElapsedColumn())
    bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def draw(label: str) -> None:
        bar.update(task, description=printable(label))
        bar.start()  # a thread draws: it starts after the process of the work was forked

    try:
        yield Steps(draw)
    finally:
        bar.stop()
