"""The process that reads model files for `reg add` and `reg import`: one request on stdin, JSON lines on stdout.

{"reading": NAME, "size": BYTES}   before a model file is read; BYTES are those of all files so far
{"draft": ...}                     the outcome (`draft_json.encode`), or
{"error": {family, message, hint, missing_files}}, or
{"bug": TRACEBACK}                 of an error that nobody expects
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from onnxreg.converters.onnx.external_data import MissingDataError
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError, RegError, missing_extra

if TYPE_CHECKING:
    from onnxreg.converters.importers.draft_json import Difference
    from onnxreg.schema.manifest.draft import Draft

DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
SIGKILL = 9


class _Pipe:
    """The channel to the parent."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink
        self._sizes: dict[Path, int] = {}

    def send(self, value: Mapping[str, Any]) -> None:
        self._sink.write(f"{json.dumps(value)}\n")
        self._sink.flush()

    def name_file(self, message: str) -> str:
        """A message about the file that is being read."""
        return f"{list(self._sizes)[-1].name}: {message}" if self._sizes else message

    def opening(self, path: Path) -> None:
        self._sizes.pop(path, None)
        self._sizes[path] = path.stat().st_size if path.is_file() else 0
        self.send({"reading": path.name, "size": sum(self._sizes.values())})


def main() -> None:
    """Read the request, do it, and say how it ended. What libraries print goes to stderr."""
    _end_with_parent()
    pipe = _Pipe(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    try:
        import onnx  # noqa: F401  # while the parent opens its registry

        from onnxreg.converters.onnx.external_data import notify_listener

        request = json.loads(sys.stdin.readline() or "null")
        if request is not None:
            with notify_listener(pipe.opening):
                pipe.send({"draft": read(request)})
    except ModuleNotFoundError as error:
        _send_error(pipe, missing_extra((error.name or "").partition(".")[0], "onnx", "reading model files"))
    except RegError as error:
        _send_error(pipe, error)
    except (MemoryError, RecursionError) as error:
        message = f"reading needs more memory than there is: {type(error).__name__}"
        _send_error(pipe, InputError(pipe.name_file(message)))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        _send_error(
            pipe, HostError(pipe.name_file(f"reading failed: {reason}"), "check the file and its disk")
        )
    except Exception:  # noqa: BLE001
        pipe.send({"bug": traceback.format_exc()})


def _send_error(pipe: _Pipe, error: RegError) -> None:
    files = error.files if isinstance(error, MissingDataError) else ()
    value = {"family": error.family, "message": error.message, "hint": error.hint}
    pipe.send({"error": {**value, "missing_files": files}})


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the draft that a request asks for, as JSON."""
    from onnxreg.converters.importers.draft_json import encode

    workspace, name = Path(request["workspace"]), request["name"]
    if "files" in request:
        from onnxreg.converters.importers.add_files import adopt

        options = {"format": request["format"], "precision": request["precision"]}
        options["members"] = {Path(file): member for file, member in request.get("members", {}).items()}
        return encode(adopt([Path(file) for file in request["files"]], workspace, name=name, **options), [])

    return encode(*import_directory(Path(request["directory"]), workspace, name=name))


def import_directory(directory: Path, workspace: Path, *, name: str) -> "tuple[Draft, list[Difference]]":
    """Adopt a directory that OpenMed or `--output` wrote, or a repository; see their modules."""
    from onnxreg.converters.importers.import_export import import_written, is_written
    from onnxreg.converters.importers.import_repository import import_repository, is_repository
    from onnxreg.converters.importers.openmed.openmed import import_openmed
    from onnxreg.schema.manifest.vocabulary import FILENAME

    if not directory.is_dir():
        raise NotFoundError(
            f"there is no directory {directory.name}", "give the directory that holds the models"
        )
    if is_written(directory):
        return import_written(directory, workspace, name=name)
    if not (directory / FILENAME).is_file() and is_repository(directory):
        return import_repository(directory, workspace, name=name), []
    return import_openmed(directory, workspace, name=name)


def _end_with_parent() -> None:
    """Make the system end this process with its parent, if it can (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, SIGKILL)


if __name__ == "__main__":
    main()
