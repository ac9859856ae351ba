"""Make a draft of model files in a separate process with limited memory and time.

Native code parses graphs. It ignores Ctrl-C and may never end, so a child process runs this module. The child receives
a request over a socket, and sends messages as JSON:

{"reading": NAME, "size": BYTES}   before it reads a model file; BYTES is the size of all files so far
{"adopted": ...}                   the result
{"error": {family, message, hint, missing_files}}
{"bug": TRACEBACK}                 for an unexpected error
"""

import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from glob import escape
from multiprocessing.connection import Connection, Pipe
from pathlib import Path, PurePath
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from onnxreg.converters.source.source_files import Location, matching
from onnxreg.schema.core.errors import FAMILIES, HostError, InputError, RegError, hub_library, missing_extra

if TYPE_CHECKING:
    from onnxreg.converters.importers.intake import Adopted

BASE_MEMORY_BYTES, MEMORY_PER_BYTE = 2 * 2**30, 3
BASE_SECONDS, BYTES_PER_SECOND = 60.0, 20_000_000
"""The child may take `BASE_SECONDS` for each file, and a second more for each `BYTES_PER_SECOND` read so far."""
POLL_SECONDS = 0.05
MESSAGE_BYTES = 2**28
READER_HINT = "look at who made the file; a model of this size needs less"
DIES_WITH_PARENT, SIGKILL = 1, 9
SCHEME = "hf://"
URL = re.compile(r"hf://(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?/?")
GRAPH_FILES = "*.onnx", "*.ort", "*.onnx_data*", "*.onnx.data*"
BESIDE = "*.json", "*.jinja", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.config", "README.md"
PATTERNS = (*GRAPH_FILES, *BESIDE, "[0-9]*_*/model.safetensors")  # the files of a repository to download


class Child:
    """A child process that reads files. It ends with the `with` block."""

    def __init__(self) -> None:
        self._channel, end = Pipe()
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "onnxreg.converters.importers.confine", str(end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[end.fileno()],
                start_new_session=True,
            )
        self._reading, self._size, self._excess = "", 0, ""
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()

    def adopt(self, **request: Any) -> "Adopted":
        """Run `adopt.adopt` in the child. Raise its errors, and InputError if it takes too much memory or time."""
        with suppress(ConnectionError):
            self._channel.send(request)
        self._since = time.monotonic()
        Thread(target=self._watch, daemon=True).start()
        while True:
            try:
                value = json.loads(self._channel.recv_bytes(MESSAGE_BYTES))
            except (EOFError, OSError):  # the child may end within a message
                break
            if "adopted" in value:
                return decode(value["adopted"])
            if "error" in value:
                error = value["error"]
                if error["missing_files"]:
                    from onnxreg.converters.onnx.onnx_graph import MissingDataError

                    raise MissingDataError(error["message"], error["hint"], error["missing_files"])
                raise FAMILIES[error["family"]](error["message"], error["hint"])
            if "bug" in value:
                raise RuntimeError(self._about(f"the process that read it failed\n{value['bug']}"))
            self._since = time.monotonic()  # first: the watcher may look between the two
            self._reading, self._size = value["reading"], value["size"]
        if self._excess:
            raise InputError(self._about(f"reading it takes more than {self._excess}"), READER_HINT)
        status = self._process.wait()
        ending = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = self._about(f"the process that read it ended ({ending})")
        raise InputError(message, "look at who made the file")

    def _watch(self) -> None:
        """Kill the child if it exceeds a limit. Set `_excess` to this limit, such as `60 seconds`."""
        while self._process.poll() is None:
            memory = BASE_MEMORY_BYTES + MEMORY_PER_BYTE * self._size
            seconds = BASE_SECONDS + self._size / BYTES_PER_SECOND
            if resident(self._process.pid) > memory:
                self._excess = f"{memory / 2**30:.1f} GiB of memory"
            elif time.monotonic() - self._since > seconds:
                self._excess = f"{seconds:.0f} seconds"
            if self._excess:
                self._process.kill()
            time.sleep(POLL_SECONDS)

    def _about(self, message: str) -> str:
        return message if not self._reading or self._reading in message else f"{self._reading}: {message}"


def adopt_source(source: str, workspace: Path, *, name: str, progress: bool = False) -> "Adopted":
    """Make a draft of a directory or of a repository on the Hub (`hf://ORG/NAME`), in a separate process."""
    from onnxreg.converters.onnx.onnx_graph import MissingDataError

    is_url, further = source.startswith(SCHEME), set[str]()
    location = fetch_repository(source, progress) if is_url else Location(Path(source))
    while True:
        directory = location.directory
        with Child() as child:
            try:
                draft, differences = child.adopt(
                    source=directory, workspace=workspace, name=name, is_foreign=is_url
                )
                break
            except MissingDataError as error:
                missing = {PurePath(file).relative_to(directory).as_posix() for file in error.files} - further
                if location.hub_id is None or not missing:
                    raise
        further |= missing
        location = fetch_repository(f"{SCHEME}{location.hub_id}@{location.revision}", progress, further)
    if location.hub_id is not None and draft.document is None:
        origin = {"id": location.hub_id, "revision": location.revision}
        draft = replace(draft, fields={**draft.fields, "source": origin})
    return draft, differences


def fetch_repository(url: str, progress: bool = False, further: Collection[str] = ()) -> Location:
    """Download the model files of a repository on the Hub, such as `hf://acme/pii` or `hf://acme/pii@v1.0`.

    `further` are other files to download. `progress` shows progress bars. Raises InputError if the URL is not of this
    form, or if the repository is a registry.
    """
    from onnxreg.converters.source.hub import fetch

    match = URL.fullmatch(url)
    if match is None:
        message = f"not a repository on the Hub: {url[:200]!r}"
        raise InputError(message, "write hf://ORG/NAME or hf://ORG/NAME@REVISION")
    with hub_library("importing from the Hub"):
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
    if not progress:
        disable_progress_bars()
    location = fetch(match["id"], match["revision"], matching([*PATTERNS, *map(escape, further)]))
    if (location.directory / "registry.json").is_file():
        message = f"{url} is a registry, not a model's repository"
        raise InputError(message, f"pull from it: reg pull NAME {url}")
    return location


def resident(pid: int) -> int:
    """Return the memory that a process occupies, in bytes; 0 if the process has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except FileNotFoundError:
        if sys.platform == "linux":
            return 0
        process = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
        return int(process.stdout or 0) * 1024
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main(channel: Connection) -> None:
    from onnxreg.converters.onnx.onnx_graph import MissingDataError, notify_listener

    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, SIGKILL)
    sizes: dict[Path, int] = {}

    def send(value: Mapping[str, Any]) -> None:
        channel.send_bytes(json.dumps(value).encode())

    def opening(path: Path) -> None:
        sizes.pop(path, None)
        sizes[path] = path.stat().st_size if path.is_file() else 0
        send({"reading": path.name, "size": sum(sizes.values())})

    def fail(error: RegError, is_named: bool = False) -> None:
        message = f"{list(sizes)[-1].name}: {error.message}" if is_named and sizes else error.message
        files = error.files if isinstance(error, MissingDataError) else ()
        value = {"family": error.family, "message": message, "hint": error.hint, "missing_files": files}
        send({"error": value})

    try:
        from onnxreg.converters.importers.adopt import adopt  # while the parent opens its registry

        request = channel.recv()
        with notify_listener(opening):
            send({"adopted": encode(adopt(**request))})
    except EOFError:  # the parent was interrupted before it sent a request
        return
    except ModuleNotFoundError as error:
        fail(missing_extra((error.name or "").partition(".")[0], "onnx", "reading model files"))
    except RegError as error:
        fail(error)
    except (MemoryError, RecursionError) as error:
        fail(InputError(f"reading needs more memory than there is: {type(error).__name__}"), is_named=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        fail(HostError(f"reading failed: {reason}", "check the file and its disk"), is_named=True)
    except Exception:  # noqa: BLE001
        send({"bug": traceback.format_exc()})


def encode(adopted: "Adopted") -> Any:
    import msgspec

    return msgspec.to_builtins(adopted, enc_hook=os.fspath)


def decode(value: Any) -> "Adopted":
    import msgspec

    from onnxreg.converters.importers.intake import Difference
    from onnxreg.schema.manifest.draft import Draft

    return msgspec.convert(value, tuple[Draft, list[Difference]], dec_hook=lambda kind, item: kind(item))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
