"""Results that need not be made again, by everything that shapes them.

    <root>/<kind>/<sha256 of the canonical key>/    files of the result, and entry.json: {"key", "files": {path: digest}}
                                                    or {"key", "value"}, where the result is a JSON value

The key of a step holds the digests of its inputs, the pass with its version and parameters, and the versions of the
tools. An entry appears whole or not at all, is read only where every file still has its digest, and is the first to go
where it was not used for longest.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.source.file_hash import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError

ENTRY = "entry.json"
LIMIT = 10 * 2**30
"""Bytes that a cache may take, where nobody says otherwise."""

STAGED = ".staged-"
ABANDONED = 3600.0
"""Seconds after which what was staged and is no entry yet was left by a process that was killed."""

Key = Mapping[str, Any]


@dataclass(frozen=True)
class TrimResult:
    """What left a cache, and what is left in it."""

    entries: int = 0
    bytes: int = 0
    kept: int = 0


class StepCache:
    """A directory of results. Files are linked in and out where the file system can do that, so they must not change."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: Key, target: Path) -> bool:
        """Put the files of an entry into `target`, an empty directory; False where there is none that is whole.

        An entry that was damaged is removed.
        """
        place, entry = self._read(kind, key)
        try:
            for path, digest in entry["files"].items():
                lend(place / path, target / path)
                if str(digest_file(target / path)) != digest:
                    raise InputError(f"{path} was changed")
        except (OSError, InputError, KeyError, TypeError, AttributeError):
            _empty(target)
            shutil.rmtree(place, ignore_errors=True)
            return False
        with suppress(OSError):
            os.utime(place / ENTRY)
        return True

    def keep(self, kind: str, key: Key, source: Path) -> None:
        """Keep the files below `source` under a key. Where nothing can be written, nothing is kept."""
        with suppress(OSError), self._staged(kind, key) as staged:
            files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
            for path in files:
                lend(source / path, staged / path)
                (staged / path).chmod(0o444)
            digests = {path.as_posix(): str(digest_file(staged / path)) for path in files}
            _write_entry(staged, key, files=digests)

    def recall(self, kind: str, key: Key) -> Any:
        """The JSON value that was remembered under a key; None where there is none."""
        place, entry = self._read(kind, key)
        with suppress(OSError):
            os.utime(place / ENTRY)
        return entry.get("value")

    def remember(self, kind: str, key: Key, value: Any) -> None:
        """Keep a JSON value, in place of what was there. Where nothing can be written, nothing is kept."""
        with suppress(OSError), self._staged(kind, key) as staged:
            _write_entry(staged, key, value=value)
            shutil.rmtree(self._place(kind, key), ignore_errors=True)

    def trim(self, limit: int = LIMIT, dry_run: bool = False) -> TrimResult:
        """Remove entries, those unused for longest first, until the rest takes at most `limit` bytes.

        What a killed process left half-made goes too, after `ABANDONED` seconds.
        """
        entries = sorted(self._entries(), key=lambda entry: entry[0], reverse=True)
        kept, gone = 0, list(self._abandoned())
        for _, size, place in entries:
            if kept + size <= limit:
                kept += size
            else:
                gone.append((size, place))
        for _, place in gone if not dry_run else ():
            shutil.rmtree(place, ignore_errors=True)
        return TrimResult(len(gone), sum(size for size, _ in gone), kept)

    def _read(self, kind: str, key: Key) -> tuple[Path, dict[str, Any]]:
        """Where the entry of a key lies, and the entry; that is empty where none can be read."""
        place = self._place(kind, key)
        try:
            entry = canonical.decode((place / ENTRY).read_bytes(), ENTRY)
        except (OSError, InputError):
            return place, {}
        return place, entry if isinstance(entry, dict) else {}

    @contextmanager
    def _staged(self, kind: str, key: Key) -> Iterator[Path]:
        """A directory that becomes the entry of a key at the end, whole; the first of two that are made at once stays."""
        place, staged = self._place(kind, key), self.root / f"{STAGED}{secrets.token_hex(8)}"
        try:
            staged.mkdir(parents=True)
            yield staged
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(place)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """When each entry was last used, its bytes, and where it lies."""
        for place in self.root.glob("[!.]*/*"):
            with suppress(OSError):
                yield (place / ENTRY).stat().st_mtime, _size(place), place

    def _abandoned(self) -> Iterator[tuple[int, Path]]:
        """What was staged and never became an entry: its bytes, and where it lies."""
        for staged in self.root.glob(f"{STAGED}*"):
            with suppress(OSError):
                if time.time() - staged.stat().st_mtime > ABANDONED:
                    yield _size(staged), staged

    def _place(self, kind: str, key: Key) -> Path:
        return self.root / kind / hashlib.sha256(canonical.encode(dict(key), "cache key")).hexdigest()


def _write_entry(place: Path, key: Key, **holds: Any) -> None:
    (place / ENTRY).write_bytes(canonical.encode({"key": dict(key), **holds}, ENTRY))


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def lend(source: Path, target: Path) -> None:
    """The same file under another name: a link where that can be, else a copy. FileExistsError where one is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)
