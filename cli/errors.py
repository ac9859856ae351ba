"""Errors as users see them: the exit status of each error family, and the text on stderr."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onnxreg.cli.output import fields, fold_line, paint, printable
from onnxreg.schema.core.errors import HostError, InputError, RegError, missing_extra

INTERRUPT_AGAIN_SECONDS = 1.5

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
"""The exit status of every family of `schema.errors`. 0 is success, 1 a bug, which shows its traceback."""


class InterruptError(RegError, family="interrupted"):
    """The user pressed Ctrl-C."""


def report(error: RegError | KeyboardInterrupt, is_json: bool = False) -> int:
    """Print an error on stderr, with `is_json` as `{"error": {...}}` on one line; return the exit status."""
    if isinstance(error, KeyboardInterrupt):
        error = InterruptError("interrupted", "run the command again; nothing half-written was kept")
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


def of_system(error: OSError) -> RegError:
    """Convert an OSError. A directory in place of a file becomes an InputError."""
    if isinstance(error, IsADirectoryError) and error.filename:
        return InputError(f"{error.filename} is a directory", "name a file")
    prefix = f"{error.filename}: " if error.filename else "the output cannot be written: "
    hint = "check the path, its permissions and the space on its disk"
    return HostError(f"{prefix}{error.strerror or error}", hint)


@contextmanager
def resumable() -> Iterator[None]:
    """After Ctrl-C, raise InterruptError with the hint that the same command continues with the blobs that arrived.

    While a library waits for its own threads, raise Ctrl-C again every few seconds.
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
    """Put a note about the finished work before the message of an error in the body."""
    try:
        yield
    except RegError as error:
        error.message = f"{outcome}, but {error.message}"
        raise
    except KeyboardInterrupt:
        raise InterruptError(f"{outcome}, then interrupted", "run the same command again to go on") from None


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Turn the ImportError of a missing library into a HostError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "onnxreg"):
            raise
        raise missing_extra(module, extra, purpose) from error
