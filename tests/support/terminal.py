"""`reg` on a pseudo terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path


def on_a_terminal(home: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Run `reg` on a pseudo terminal of 80 columns; its exit status and everything it drew."""
    ours, theirs = pty.openpty()
    values = {**os.environ, "REG_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    command = [sys.executable, "-m", "onnxreg.cli", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=values) as process:
        os.close(theirs)
        drawn = b"".join(iter(lambda: read(ours), b""))
    os.close(ours)
    return process.returncode, drawn.decode().replace("\r\n", "\n")


def read(descriptor: int) -> bytes:
    """Some bytes from a terminal; none once its other side is closed, which Linux calls an input error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
