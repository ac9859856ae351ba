"""Files that were added before: while their state is the same, neither are they read nor hashed again.

`local/known-files.json` has a line for each, the latest last. It is a cache: one that is lost or damaged costs time only.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.registry.store.directory.safe_open import read_bounded
from onnxreg.registry.store.protocol import MAX_DOCUMENT
from onnxreg.registry.support.disk import replace_file
from onnxreg.schema.core.descriptor import Descriptor, Pieces
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.file_state import FileState

MOST = 10_000
"""Files that are remembered."""


@dataclass(frozen=True)
class KnownFile:
    """A file's state when it was read, and what it was then."""

    state: FileState
    file: Descriptor


class KnownFiles:
    """The descriptors of files by where they lie and their state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, KnownFile] = {}

    @cached_property
    def _known(self) -> dict[str, KnownFile]:
        return _read(self._path)

    def find(self, place: Path, state: FileState) -> Descriptor | None:
        known = self._known.get(str(place.resolve()))
        return known.file if known is not None and known.state == state else None

    def note(self, place: Path, state: FileState, file: Descriptor) -> None:
        """Remember a file that was read when it was in this state, before and after; call `save` in the end."""
        self._found[str(place.resolve())] = KnownFile(state, file)

    def save(self) -> None:
        """Keep what was noted; another state of the same file is forgotten."""
        if not self._found:
            return
        kept = {place: known for place, known in self._known.items() if place not in self._found}
        latest = dict([*kept.items(), *self._found.items()][-MOST:])
        with suppress(OSError):
            replace_file(self._path, _encode(latest))


def state_of(path: Path) -> tuple[FileState, bool]:
    """A file's state now, links followed, and whether it is settled."""
    state = FileState.of(os.stat(path))  # noqa: PTH116
    return state, state.is_settled(time.time_ns())


def _encode(known: Mapping[str, KnownFile]) -> bytes:
    lines = [json.dumps([place, each.state.to_json(), *_to_json(each.file)]) for place, each in known.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def _to_json(file: Descriptor) -> list[Any]:
    pieces = file.pieces
    return [str(file.digest), [pieces.size, *map(str, pieces.digests)] if pieces else None]


def _read(path: Path) -> dict[str, KnownFile]:
    try:
        return dict(_decode(line) for line in read_bounded(path, MAX_DOCUMENT).splitlines())
    except (OSError, RegError, ValueError, TypeError):
        return {}


def _decode(line: bytes) -> tuple[str, KnownFile]:
    place, at, digest, pieces = json.loads(line)
    state = FileState.from_json(at)
    parts = Pieces(int(pieces[0]), tuple(map(Digest.parse, pieces[1:]))) if pieces else None
    file = Descriptor("application/octet-stream", Digest.parse(digest), state.size, parts)
    return str(place), KnownFile(state, file)
