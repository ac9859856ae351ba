"""Cache of the digests of added files: a file with the same state is not read and hashed again.

`local/known-files.json` has one line for each file, the latest last. If it is lost or damaged, this costs
only time.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES
from onnxreg.registry.support.disk import read_bounded, replace_file
from onnxreg.schema.core.descriptor import Descriptor, Pieces
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.file_state import FileState

MAX_KNOWN_FILES = 10_000
"""Files in the cache."""


KnownFile = tuple[FileState, Descriptor]
"""A file's state when it was read, and its descriptor."""


class KnownFiles:
    """Descriptors of files by their path and state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, KnownFile] = {}

    @cached_property
    def _known(self) -> dict[str, KnownFile]:
        return _read(self._path)

    def find(self, path: Path, state: FileState) -> Descriptor | None:
        known_state, file = self._known.get(str(path.resolve()), (None, None))
        return file if known_state == state else None

    def note(self, path: Path, state: FileState, file: Descriptor) -> None:
        """Record a file that had this state before and after it was read; call `save` at the end."""
        self._new[str(path.resolve())] = state, file

    def save(self) -> None:
        """Write the new records; earlier states of the same files are forgotten."""
        if not self._new:
            return
        previous = {path: known_file for path, known_file in self._known.items() if path not in self._new}
        latest = dict([*previous.items(), *self._new.items()][-MAX_KNOWN_FILES:])
        with suppress(OSError):
            replace_file(self._path, _encode(latest))


def state_of(path: Path) -> tuple[FileState, bool]:
    """A file's current state, links followed; the second value is True if it is settled."""
    state = FileState.of(os.stat(path))  # noqa: PTH116
    return state, state.is_settled(time.time_ns())


def _encode(known_files: Mapping[str, KnownFile]) -> bytes:
    lines = [
        json.dumps([path, state.to_json(), *_to_json(file)]) for path, (state, file) in known_files.items()
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _to_json(file: Descriptor) -> list[Any]:
    pieces = file.pieces
    return [str(file.digest), [pieces.size, *map(str, pieces.digests)] if pieces else None]


def _read(path: Path) -> dict[str, KnownFile]:
    try:
        return dict(_decode(line) for line in read_bounded(path, MAX_DOCUMENT_BYTES).splitlines())
    except (OSError, RegError, ValueError, TypeError):
        return {}


def _decode(line: bytes) -> tuple[str, KnownFile]:
    path, encoded_state, digest, pieces = json.loads(line)
    state = FileState.from_json(encoded_state)
    parts = Pieces(int(pieces[0]), tuple(map(Digest.parse, pieces[1:]))) if pieces else None
    file = Descriptor(Digest.parse(digest), state.size, parts)
    return str(path), (state, file)
