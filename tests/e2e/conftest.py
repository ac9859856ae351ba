"""`reg` as its user runs it: a process of its own, on a tiny real checkpoint."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "REG_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "TMPDIR": str(tmp_path)}


@pytest.fixture
def reg(environment: dict[str, str], tmp_path: Path) -> Reg:
    """Run `reg` in the test's directory; `code` is the exit status it must have."""

    def run(*words: str | Path, code: int = 0, **more: Any) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "onnxreg.cli", *map(str, words)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, **more
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done

    return run
