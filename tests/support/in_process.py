"""Work that `reg` gives to processes, done in the process of the test: one that imports PyTorch takes four seconds to start."""

import json
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from onnxreg.cli.batch import run_line
from onnxreg.converters.importers import adopt, confine
from onnxreg.converters.importers.intake import Adopted


class Reader(confine.Child):
    """The reader of model files."""

    def __init__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def adopt(self, **request: Any) -> Adopted:
        return confine.decode(json.loads(json.dumps(confine.encode(adopt.adopt(**request)))))


def run_lines(lines: Iterable[tuple[Any, Sequence[str]]], *_: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Run the command lines of a batch in this process, one after the other."""
    return ((job, run_line(words)) for job, words in lines)


def run(
    command: Sequence[str], env: Mapping[str, str] | None = None, **_: Any
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE WORDS` or `python -c PROGRAM WORDS` in this process, with that environment.

    Output is captured.
    """
    interpreter, option, program, *words = command
    assert interpreter == sys.executable and option in ("-m", "-c")
    out, err, status = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [program if option == "-m" else option, *words])
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            if option == "-m":
                runpy.run_module(program, run_name="__main__")
            else:
                exec(program, {"__name__": "__main__"})  # noqa: S102
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            status = 1
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())
