"""Environments of programs from PyPI that tests and benchmarks start, each made once below `.cache`."""

import shutil
import subprocess
import sys
from pathlib import Path

from support.one_at_a_time import locked


def installed(home: Path, *requirements: str | Path) -> Path:
    """The folder of an environment's programs; `requirements` (words for pip) are installed if it does not exist."""
    done = home / ".installed"
    with locked(home.parent):
        if done.exists():
            return home / "bin"
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *requirements], check=True)
        done.touch()
    return home / "bin"
