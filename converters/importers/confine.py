"""Reading model files in a process of its own, whose memory and time are bounded.

Graphs are parsed by native code, which neither hears Ctrl-C nor knows when to stop.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onnxreg.converters.onnx.external_data import MissingDataError
from onnxreg.schema.core.errors import InputError, RegError

if TYPE_CHECKING:
    from onnxreg.converters.importers.draft_json import ImportResult

BASE_MEMORY_BYTES, MEMORY_PER_BYTE = 2 * 2**30, 3
"""Resident bytes: at most so many, and for each byte of the files."""
BASE_SECONDS, BYTES_PER_SECOND = 60.0, 20_000_000
"""For each file: at most so many seconds, and one for so many bytes."""
POLL_SECONDS = 0.05
"""Seconds between two looks at the memory."""
READER_HINT = "look at who made the file; a model of this size needs less"
_FAMILIES = {kind.family: kind for kind in RegError.__subclasses__()}


class Child:
    """One reading process. It starts at once, and is killed at the end of the context, whatever happens.

    To be used once. It is in a session of its own, so that Ctrl-C reaches the parent alone, which kills it.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "onnxreg.converters.importers.reader_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reading, self._size = "", 0
        self._deadline = time.monotonic() + BASE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def add(
        self,
        files: list[Path],
        workspace: Path,
        *,
        name: str,
        format: str | None,
        precision: str | None,
        members: Mapping[Path, str] | None = None,
    ) -> "ImportResult":
        """`add_files.adopt`, there. InputError also if a file takes too much memory or time; HostError if it cannot be read.

        RuntimeError with the traceback of an error there that nobody expects.
        """
        member_names = {str(file): member for file, member in (members or {}).items()}
        request = {"files": list(map(str, files)), "name": name, "format": format, "precision": precision}
        return self._request({**request, "members": member_names}, workspace)

    def take(self, directory: Path, workspace: Path, *, name: str) -> "ImportResult":
        """`reader_process.import_directory`, there."""
        return self._request({"directory": str(directory), "name": name}, workspace)

    def _request(self, request: Mapping[str, Any], workspace: Path) -> "ImportResult":
        self._send({**request, "workspace": str(workspace)})
        self._deadline = time.monotonic() + BASE_SECONDS
        for line in self._lines():
            value = json.loads(line)
            if "draft" in value:
                from onnxreg.converters.importers.draft_json import decode

                return decode(value["draft"], workspace)
            if "error" in value:
                error = value["error"]
                if error["missing_files"]:
                    raise MissingDataError(error["message"], error["hint"], error["missing_files"])
                raise _FAMILIES[error["family"]](error["message"], error["hint"])
            if "bug" in value:
                raise RuntimeError(self._about(f"the process that read it failed\n{value['bug']}"))
            self._reading, self._size = value["reading"], value["size"]
            self._deadline = time.monotonic() + BASE_SECONDS + self._size / BYTES_PER_SECOND
        status = self._process.wait()
        raise InputError(
            self._about(f"the process that read it ended ({_ending(status)})"), "look at who made the file"
        )

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return

    def _lines(self) -> Iterator[bytes]:
        """Lines of the child until it ends. Raise InputError if it takes too much."""
        assert self._process.stdout is not None
        pipe, tail = self._process.stdout.fileno(), b""
        while True:
            if select.select([pipe], [], [], POLL_SECONDS)[0]:
                block = os.read(pipe, 2**20)
                if not block:
                    return
                *lines, tail = (tail + block).split(b"\n")
                yield from lines
            self._check()

    def _check(self) -> None:
        limit = BASE_MEMORY_BYTES + MEMORY_PER_BYTE * self._size
        if resident(self._process.pid) > limit:
            raise InputError(
                self._about(f"reading it takes more than {limit / 2**30:.1f} GiB of memory"), READER_HINT
            )
        if time.monotonic() > self._deadline:
            seconds = BASE_SECONDS + self._size / BYTES_PER_SECOND
            raise InputError(self._about(f"reading it takes more than {seconds:.0f} seconds"), READER_HINT)

    def _about(self, message: str) -> str:
        """A message that names the file that was being read."""
        return message if not self._reading or self._reading in message else f"{self._reading}: {message}"


def resident(pid: int) -> int:
    """The resident bytes of a process; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except FileNotFoundError:
        return 0 if sys.platform == "linux" else _listed(pid)
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _listed(pid: int) -> int:
    """The same, if there is no /proc."""
    process = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(process.stdout or 0) * 1024


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
