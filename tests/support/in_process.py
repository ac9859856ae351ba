"""`subprocess.run` of a Python module without a process: one that imports PyTorch takes four seconds to start."""

import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest


def run(command: Sequence[str], env: Mapping[str, str], **_: Any) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE WORDS` in this process, with that environment. Output is captured."""
    *interpreter, module = command[:3]
    assert interpreter == [sys.executable, "-m"]
    out, err, status = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [module, *command[3:]])
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            runpy.run_module(module, run_name="__main__")
        except Exception:
            traceback.print_exc()
            status = 1
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())
