"""The entry point. Everything that the fast lane may do without is imported where it is needed."""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from onnxreg.cli import COMPLETES, VERSION
from onnxreg.schema.core.errors import RegError

PIPE_CLOSED = 141
"""What a shell shows for a program that SIGPIPE ended."""

SELDOM = 20_000
"""Containers that are made before the youngest are looked through; Python's own number is below a thousand."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A bug, and nothing else, leaves with its traceback."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    try:
        _dispatch(words, alone=arguments is None)
        sys.stdout.flush()
        if arguments is None:
            _leave(0)
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (RegError, KeyboardInterrupt) as error:
        from onnxreg.cli.errors import EXIT_STATUS, report

        if COMPLETES in os.environ:
            _leave(EXIT_STATUS["interrupted"])
        status = report(error, as_json="--json" in words)
        if status == EXIT_STATUS["interrupted"] and arguments is None:
            _leave(status)
        return status
    except OSError as error:
        from onnxreg.cli.errors import of_system, report

        return report(of_system(error), as_json="--json" in words)


def _leave(status: int) -> NoReturn:
    """End now: neither take the interpreter apart, nor wait for threads that some server keeps waiting."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)


def _warn_of_former_names(words: list[str]) -> None:
    """Name the environment variables that are set under their former names; not while a shell completes a word."""
    from onnxreg.registry.support.environment import former_names

    former = former_names()
    if former and COMPLETES not in os.environ:
        from onnxreg.cli.context import Session

        renamed = ", ".join(f"{old} is now {name}" for old, name in former.items())
        session = Session(quiet="--quiet" in words, as_json="--json" in words)
        session.warn(f"warning: {renamed}; the next release does not read the former names")


def _dispatch(words: list[str], alone: bool) -> None:
    """Take the fast lane where there is one. `alone`: the process is ours.

    Then garbage is collected seldom, and in the fast lane not at all: what is imported is none, and looking for it there
    takes as long as the fast lane's own work, and a tenth of an export's (mypy does likewise).
    """
    if words == ["--version"]:
        print(f"reg {VERSION}")
        return
    if alone:
        gc.disable()
    from onnxreg.cli import fast

    _warn_of_former_names(words)
    run = fast.parse(words)
    if run is not None and run() is not False:
        return
    if alone:
        gc.set_threshold(SELDOM)
    gc.enable()
    from onnxreg.cli.app import run_app

    run_app(words)
