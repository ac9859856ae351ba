"""Results that need not be made again, by everything that shapes them.

    <root>/<kind>/<sha256 of the canonical key>/    files of the result, and entry.json: {"key", "files": {path: digest}}

The key of a step holds the digests of its inputs, the pass with its version and parameters, and the versions of the
tools. An entry appears whole or not at all, is read only where every file still has its digest, and is the first to go
where it was not used for longest.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema import canonical
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError

ENTRY = "entry.json"
LIMIT = 10 * 2**30
"""Bytes that a cache may take, where nobody says otherwise."""

Key = Mapping[str, Any]


@dataclass(frozen=True)
class Trimmed:
    """What left a cache, and what is left in it."""

    entries: int = 0
    bytes: int = 0
    kept: int = 0


class Cache:
    """A directory of results. Files are linked in and out where the file system can do that, so they must not change."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: Key, target: Path) -> bool:
        """Put the files of an entry into `target`, an empty directory; False where there is none that is whole.

        An entry that was damaged is removed.
        """
        place = self._place(kind, key)
        try:
            entry = canonical.decode((place / ENTRY).read_bytes(), ENTRY)
            files = {str(path): str(digest) for path, digest in entry["files"].items()}
            whole = all(str(digest_of(place / path)) == digest for path, digest in files.items())
        except FileNotFoundError:
            whole, files = False, {}
        except (OSError, InputError, KeyError, TypeError, AttributeError):
            whole, files = False, {}
        if not whole:
            shutil.rmtree(place, ignore_errors=True)
            return False
        for path in files:
            lend(place / path, target / path)
        with suppress(OSError):
            os.utime(place / ENTRY)
        return True

    def keep(self, kind: str, key: Key, source: Path) -> None:
        """Keep the files below `source` under a key. A full disk is no error: then nothing is kept."""
        place = self._place(kind, key)
        staged = self.root / f".{secrets.token_hex(8)}"
        try:
            files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
            for path in files:
                lend(source / path, staged / path)
                (staged / path).chmod(0o444)
            digests = {path.as_posix(): str(digest_of(staged / path)) for path in files}
            staged.mkdir(parents=True, exist_ok=True)
            (staged / ENTRY).write_bytes(canonical.encode({"key": dict(key), "files": digests}, ENTRY))
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(place)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)

    def trim(self, limit: int = LIMIT, dry_run: bool = False) -> Trimmed:
        """Remove entries, those unused for longest first, until the rest takes at most `limit` bytes."""
        entries = sorted(self._entries(), key=lambda entry: entry[0], reverse=True)
        kept, gone = 0, []
        for _, size, place in entries:
            if kept + size <= limit:
                kept += size
            else:
                gone.append((size, place))
        for _, place in gone if not dry_run else ():
            shutil.rmtree(place, ignore_errors=True)
        return Trimmed(len(gone), sum(size for size, _ in gone), kept)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """When each entry was last used, its bytes, and where it lies."""
        for place in self.root.glob("*/*"):
            with suppress(OSError):
                used = (place / ENTRY).stat().st_mtime
                yield used, sum(path.stat().st_size for path in place.rglob("*") if path.is_file()), place

    def _place(self, kind: str, key: Key) -> Path:
        return self.root / kind / hashlib.sha256(canonical.encode(dict(key), "cache key")).hexdigest()


def digest_of(path: Path) -> Digest:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return Digest.parse(f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}")


def lend(source: Path, target: Path) -> None:
    """The same file under another name: a link where that can be, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
