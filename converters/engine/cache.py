"""A cache of the results of exports. The key of a result has everything that affects the result.

    <root>/<kind>/<sha256 of the canonical key>/    files of the result, and entry.json:
                                                    {"key", "files": {path: digest}}, or
                                                    {"key", "value"} if the result is a JSON value

An entry of the kind `exports` has the digest of the manifest that a plan made. For an equal plan, no step runs again.
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

from onnxreg.converters.source.source_files import digest_file, link_or_copy
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError

ENTRY_FILE = "entry.json"
MAX_CACHE_BYTES = 10 * 2**30

STAGED_PREFIX = ".staged-"
ABANDONED_AFTER_SECONDS = 3600.0

Key = Mapping[str, Any]
EXPORTS = "exports"


@dataclass(frozen=True)
class TrimResult:
    """The number of removed entries, their size in bytes, and the size of the other entries (`kept`)."""

    entries: int = 0
    bytes: int = 0
    kept: int = 0


class StepCache:
    """A directory of cached results of at most `limit` bytes. Its files may be hard links: do not change them."""

    def __init__(self, root: Path, limit: int = MAX_CACHE_BYTES) -> None:
        self.root, self.limit = root, limit

    def find(self, kind: str, key: Key, target: Path) -> bool:
        """Link an entry's files into the empty directory `target`. Return False if the entry is missing or damaged."""
        directory, entry = self._read(kind, key)
        try:
            for path, digest in entry["files"].items():
                link_or_copy(directory / path, target / path)
                if str(digest_file(target / path)) != digest:
                    raise InputError(f"{path} was changed")
        except (OSError, InputError, KeyError, TypeError, AttributeError):
            for path in target.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.rmtree(directory, ignore_errors=True)
            return False
        return True

    def keep(self, kind: str, key: Key, source: Path, digests: Mapping[str, str] | None = None) -> None:
        """Store the files below `source` as an entry. `digests` has digests that are known already, by path.

        An unwritable cache stores nothing.
        """
        with suppress(OSError), self._staged(kind, key) as (staged, entry):
            files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
            for path in files:
                link_or_copy(source / path, staged / path)
                (staged / path).chmod(0o444)
            names = [path.as_posix() for path in files]
            earlier = digests or {}
            entry["files"] = {name: earlier.get(name) or str(digest_file(staged / name)) for name in names}

    def find_value(self, kind: str, key: Key) -> Any:
        return self._read(kind, key)[1].get("value")

    def remember(self, kind: str, key: Key, value: Any) -> None:
        """Store a JSON value under a key. An unwritable cache stores nothing."""
        with suppress(OSError), self._staged(kind, key) as (_, entry):
            entry["value"] = value
            shutil.rmtree(self._directory(kind, key), ignore_errors=True)

    def trim(self, dry_run: bool = False) -> TrimResult:
        """Remove the least recently used entries until the size is within the limit. `dry_run` only counts them."""
        kept_bytes, removed, entries = 0, [], []
        for directory in self.root.glob(f"{STAGED_PREFIX}*"):
            with suppress(OSError):
                if time.time() - directory.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                    removed.append((_size(directory), directory))
        for directory in self.root.glob("[!.]*/*"):
            with suppress(OSError):
                entries.append(((directory / ENTRY_FILE).stat().st_mtime, _size(directory), directory))
        for _, size, directory in sorted(entries, key=lambda entry: entry[0], reverse=True):
            if kept_bytes + size <= self.limit:
                kept_bytes += size
            else:
                removed.append((size, directory))
        for _, directory in removed if not dry_run else ():
            shutil.rmtree(directory, ignore_errors=True)
        return TrimResult(len(removed), sum(size for size, _ in removed), kept_bytes)

    def _read(self, kind: str, key: Key) -> tuple[Path, dict[str, Any]]:
        """Return an entry's directory and entry.json ({} if it cannot be read). Mark the entry as used."""
        directory = self._directory(kind, key)
        try:
            entry = canonical.decode((directory / ENTRY_FILE).read_bytes(), ENTRY_FILE)
        except (OSError, InputError):
            return directory, {}
        with suppress(OSError):
            os.utime(directory / ENTRY_FILE)
        return directory, entry if isinstance(entry, dict) else {}

    @contextmanager
    def _staged(self, kind: str, key: Key) -> Iterator[tuple[Path, dict[str, Any]]]:
        """A context that yields a new directory and a dict (its entry.json), and stores both at the end."""
        directory, staged = self._directory(kind, key), self.root / f"{STAGED_PREFIX}{secrets.token_hex(8)}"
        entry: dict[str, Any] = {"key": dict(key)}
        try:
            staged.mkdir(parents=True)
            yield staged, entry
            (staged / ENTRY_FILE).write_bytes(canonical.encode(entry, ENTRY_FILE))
            directory.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(directory)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def _directory(self, kind: str, key: Key) -> Path:
        return self.root / kind / hashlib.sha256(canonical.encode(dict(key), "cache key")).hexdigest()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
