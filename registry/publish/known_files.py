"""Files that were hashed before: a file with the same state as then is not read again.

`known-files/<registry id>.json` in the user's state directory has them, the latest last. If it is lost or damaged, this
costs only time.
"""

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from onnxreg.registry.support.disk import read_bounded, replace_file
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Record
from onnxreg.schema.core.digest import Descriptor
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.given_file import FileState

MAX_KNOWN_FILES = 10_000


class KnownFile(Record, frozen=True):
    """The state of a file when it was read (see `FileState.to_json`), and its descriptor."""

    path: str
    state: list[str]
    file: Descriptor


class _KnownFilesFile(Record, frozen=True):
    files: list[KnownFile]


class KnownFiles:
    """Descriptors of files by their path and state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, KnownFile] = {}

    @cached_property
    def _known(self) -> dict[str, KnownFile]:
        with suppress(OSError, RegError):
            data = read_bounded(self._path, MAX_DOCUMENT_BYTES)
            files = _KnownFilesFile.decode(data, "it", MAX_DOCUMENT_BYTES).files
            return {item.path: item for item in files}
        return {}

    def find(self, path: Path, state: FileState) -> Descriptor | None:
        entry = self._known.get(_key(path))
        return entry.file if entry is not None and entry.state == state.to_json() else None

    def note(self, path: Path, state: FileState, file: Descriptor) -> None:
        """Record a file that had this state before and after it was read; call `save` at the end."""
        self._new[_key(path)] = KnownFile(_key(path), state.to_json(), file)

    def save(self) -> None:
        """Write the new records; earlier states of the same files are forgotten."""
        if self._new:
            earlier = [item for path, item in self._known.items() if path not in self._new]
            latest = [*earlier, *self._new.values()][-MAX_KNOWN_FILES:]
            with suppress(OSError, RegError):
                replace_file(self._path, _KnownFilesFile(latest).encode())


def _key(path: Path) -> str:
    return os.fsencode(path.resolve()).decode("utf-8", "backslashreplace")
