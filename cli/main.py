"""The entry point of `reg`. To start fast, it imports modules only when they are needed."""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import onnxreg.cli as program
from onnxreg.cli import COMPLETES, VERSION, skip_globals
from onnxreg.schema.core.errors import RegError

PIPE_CLOSED = 141  # as a shell shows a program that SIGPIPE ended
# These run with rare garbage collection, to start faster. They leave little memory in reference cycles.
BRIEF = {"coverage", "diff", "history", "log", "ls", "pull", "push", "query", "resolve", "show", "verify"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. An exception from this function is a bug."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    program.is_running = arguments is None
    if arguments is None and BRIEF.intersection(skip_globals(words)[:1]):
        # the garbage collector and the search for plug-ins of pydantic take a tenth of the time of a start
        gc.set_threshold(100_000, 10, 10)
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
        with suppress(AttributeError):  # a test's stream lacks it
            getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        if words == ["--version"]:
            print(f"reg {VERSION}")
        else:
            from onnxreg.cli.app import run_app

            run_app(words)
        sys.stdout.flush()
        if arguments is None:
            quick_exit(0)
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (RegError, KeyboardInterrupt, OSError) as error:
        from onnxreg.cli.output import EXIT_STATUS, report

        if COMPLETES in os.environ:
            quick_exit(EXIT_STATUS["interrupted"])
        status = report(error, is_json="--json" in words)
        if status == EXIT_STATUS["interrupted"] and arguments is None:
            quick_exit(status)
        return status


def quick_exit(status: int) -> NoReturn:
    """Flush the output and end the process at once, without waiting for threads that wait for a server."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)
