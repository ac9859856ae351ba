"""The first load of a file by ONNX Runtime, where a crash can be survived.

ONNX Runtime's optimizers are native code: an error there is a signal, which ends the process that it happens in.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError


class FirstLoader:
    """A process that loads files, started with the first one and ended with the block; any thread may use it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()

    def load(self, path: Path, label: str, hint: str) -> None:
        """Load a file there. ConversionError if that process dies; any other error is raised when the file is loaded here.

        Args:
            label: what the error calls the file.
            hint: what to do then.
        """
        with self._lock:
            self._process = self._process or _start()
            assert self._process.stdin is not None and self._process.stdout is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(os.fsencode(path) + b"\0")
                self._process.stdin.flush()
            if self._process.stdout.read(1):
                return
            self._process.communicate()
            status, self._process = self._process.returncode, None
        raise ConversionError(f"ONNX Runtime crashed (status {status}) while it loaded {label}", hint)


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Load each path of standard input, which a null byte ends, and answer with a byte."""
    answers = os.dup(1)
    os.dup2(2, 1)  # output of a library does not count as an answer
    path = b""
    while byte := sys.stdin.buffer.read(1):
        if byte != b"\0":
            path += byte
            continue
        with suppress(Exception):
            load_session(Path(os.fsdecode(path)))
        os.write(answers, b".")
        path = b""


if __name__ == "__main__":
    main()
