"""Work that `reg` gives to processes, done in the process of the test: one that imports PyTorch takes four seconds to start."""

import json
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.importers import confine, draft_json, reader_process


class Reader(confine.Child):
    """The reader of model files."""

    def __init__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def _request(self, request: Mapping[str, Any], workspace: Path) -> draft_json.ImportResult:
        value = reader_process.read({**request, "workspace": str(workspace)})
        return draft_json.decode(json.loads(json.dumps(value)), workspace)


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
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            status = 1
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())
