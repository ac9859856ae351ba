"""The entry point. Everything that the fast lane may do without is imported where it is needed."""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from onnxreg.cli import VERSION
from onnxreg.schema.errors import RegError

PIPE_CLOSED = 141
"""What a shell shows for a program that SIGPIPE ended."""


HINT = "check the path, its permissions and the space on its disk"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A bug, and nothing else, leaves with its traceback."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    try:
        _dispatch(words, alone=arguments is None)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (RegError, KeyboardInterrupt) as error:
        from onnxreg.cli.errors import EXIT_STATUS, report

        status = report(error, as_json="--json" in words)
        if status == EXIT_STATUS["interrupted"] and arguments is None:
            _leave(status)
        return status
    except OSError as error:
        from onnxreg.cli.errors import report
        from onnxreg.schema.errors import HostError

        what = f"{error.filename}: " if error.filename else ""
        return report(HostError(f"{what}{error.strerror or error}", HINT), as_json="--json" in words)


def _leave(status: int) -> NoReturn:
    """End now, and do not wait for threads that some server keeps waiting."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)


def _dispatch(words: list[str], alone: bool) -> None:
    """Take the fast lane where there is one. `alone`: the process is ours.

    Then the fast lane does without collecting garbage and without taking the interpreter apart at the end, which
    together take as long as its own work (mypy does likewise).
    """
    if words == ["--version"]:
        print(f"reg {VERSION}")
        return
    if alone:
        gc.disable()
    from onnxreg.cli import fast

    run = fast.parse(words)
    if run is None or run() is False:
        gc.enable()
        from onnxreg.cli.app import run_app

        run_app(words)
        return
    if alone:
        sys.stdout.flush()
        os._exit(0)
