"""Cache of results, by everything that shapes them.

    <root>/<kind>/<sha256 of the canonical key>/    files of the result, and entry.json:
                                                    {"key", "files": {path: digest}}, or
                                                    {"key", "value"} if the result is a JSON value

The key of a step holds the digests of its inputs, the pass with its version and parameters, and the versions
of the tools. An entry appears whole or not at all. It is read only if every file still has its digest.
Trimming removes the entries that were unused for longest.

The cache also has the memory of exports: the manifest that an equal plan gave before, so that nothing needs to be run.
It is keyed by the plan, with everything that shapes the draft; and, as in ccache's "direct mode", by the request as typed
and the digests of the files that were read for it. The second lookup reads no recipe, and takes a fraction of the time that
the imports of an export would take.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import package_versions, tools
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.given_file import FileState

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan


ENTRY_FILE = "entry.json"
MAX_CACHE_BYTES = 10 * 2**30
"""Default limit of the size of a cache."""

STAGED_PREFIX = ".staged-"
ABANDONED_AFTER_SECONDS = 3600.0
"""A staged directory of this age was left by a process that was killed."""

Key = Mapping[str, Any]
NO_DIGESTS: Mapping[str, str] = MappingProxyType({})
EXPORTS, REQUESTS = "exports", "requests"


@dataclass(frozen=True)
class TrimResult:
    """Entries removed from a cache with their bytes, and the bytes kept."""

    entries: int = 0
    bytes: int = 0
    kept: int = 0


class StepCache:
    """A directory of results. Files are linked in and out if the file system can do that, so they must not
    change.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: Key, target: Path) -> bool:
        """Put the files of an entry into `target`, an empty directory; False if no whole entry exists.

        A damaged entry is removed.
        """
        directory, entry = self._read(kind, key)
        try:
            for path, digest in entry["files"].items():
                link_or_copy(directory / path, target / path)
                if str(digest_file(target / path)) != digest:
                    raise InputError(f"{path} was changed")
        except (OSError, InputError, KeyError, TypeError, AttributeError):
            _empty(target)
            shutil.rmtree(directory, ignore_errors=True)
            return False
        with suppress(OSError):
            os.utime(directory / ENTRY_FILE)
        return True

    def keep(self, kind: str, key: Key, source: Path, digests: Mapping[str, str] = NO_DIGESTS) -> None:
        """Keep the files below `source` under a key. If nothing can be written, nothing is kept.

        Args:
            digests: of files that are hashed already, by path.
        """
        with suppress(OSError), self._staged(kind, key) as staged:
            files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
            for path in files:
                link_or_copy(source / path, staged / path)
                (staged / path).chmod(0o444)
            names = [path.as_posix() for path in files]
            hashes = {name: digests.get(name) or str(digest_file(staged / name)) for name in names}
            _write_entry(staged, key, files=hashes)

    def find_value(self, kind: str, key: Key) -> Any:
        """Return the JSON value that was remembered under a key, or None."""
        directory, entry = self._read(kind, key)
        with suppress(OSError):
            os.utime(directory / ENTRY_FILE)
        return entry.get("value")

    def remember(self, kind: str, key: Key, value: Any) -> None:
        """Keep a JSON value and replace an earlier one. If nothing can be written, nothing is kept."""
        with suppress(OSError), self._staged(kind, key) as staged:
            _write_entry(staged, key, value=value)
            shutil.rmtree(self._directory(kind, key), ignore_errors=True)

    def trim(self, limit: int = MAX_CACHE_BYTES, dry_run: bool = False) -> TrimResult:
        """Remove entries, those unused for longest first, until the rest takes at most `limit` bytes.

        Staged directories of killed processes are removed too, after `ABANDONED_AFTER_SECONDS` seconds.
        """
        entries = sorted(self._entries(), key=lambda entry: entry[0], reverse=True)
        kept_bytes, removed = 0, list(self._abandoned())
        for _, size, directory in entries:
            if kept_bytes + size <= limit:
                kept_bytes += size
            else:
                removed.append((size, directory))
        for _, directory in removed if not dry_run else ():
            shutil.rmtree(directory, ignore_errors=True)
        return TrimResult(len(removed), sum(size for size, _ in removed), kept_bytes)

    def _read(self, kind: str, key: Key) -> tuple[Path, dict[str, Any]]:
        """Return the directory of an entry, and the entry: empty if it cannot be read."""
        directory = self._directory(kind, key)
        try:
            entry = canonical.decode((directory / ENTRY_FILE).read_bytes(), ENTRY_FILE)
        except (OSError, InputError):
            return directory, {}
        return directory, entry if isinstance(entry, dict) else {}

    @contextmanager
    def _staged(self, kind: str, key: Key) -> Iterator[Path]:
        """Yield a directory that becomes the entry of a key; of two made at once, the first is kept."""
        directory, staged = self._directory(kind, key), self.root / f"{STAGED_PREFIX}{secrets.token_hex(8)}"
        try:
            staged.mkdir(parents=True)
            yield staged
            directory.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(directory)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield the time of last use, the bytes and the directory of each entry."""
        for directory in self.root.glob("[!.]*/*"):
            with suppress(OSError):
                yield (directory / ENTRY_FILE).stat().st_mtime, _size(directory), directory

    def _abandoned(self) -> Iterator[tuple[int, Path]]:
        """Yield the bytes and path of each staged directory that never became an entry."""
        for staged in self.root.glob(f"{STAGED_PREFIX}*"):
            with suppress(OSError):
                if time.time() - staged.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                    yield _size(staged), staged

    def _directory(self, kind: str, key: Key) -> Path:
        return self.root / kind / hashlib.sha256(canonical.encode(dict(key), "cache key")).hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file under another name, or copy it. FileExistsError if `target` exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class EarlierExport:
    """A manifest of an earlier export, and its model name."""

    name: str
    manifest: Digest


def find_export(cache: StepCache, plan: "ExportPlan") -> Digest | None:
    """Return the manifest that an equal plan gave, or None."""
    export = _read_export(cache.find_value(EXPORTS, plan.key()))
    return None if export is None else export.manifest


def remember_export(cache: StepCache, plan: "ExportPlan", manifest: Digest) -> None:
    """Keep the manifest for `find_export`."""
    cache.remember(EXPORTS, plan.key(), {"name": plan.name, "manifest": str(manifest)})


def find_export_of_request(cache: StepCache, request: Mapping[str, Any]) -> EarlierExport | None:
    """Return the export of an equal request if every file that was read for it is unchanged.

    Args:
        request: the whole request as JSON values; paths in it are absolute.
    """
    if not cache.root.is_dir():
        return None
    value = cache.find_value(REQUESTS, _request_key(request))
    export = _read_export(value)
    if export is None or value["read"] != _state_of(value["read"], value.get("settled", {})):
        return None
    return export


def remember_request(
    cache: StepCache,
    request: Mapping[str, Any],
    documents: Mapping[Path, Digest | None],
    plan: "ExportPlan",
    manifest: Digest,
    replan: "Callable[[], ExportPlan]",
) -> None:
    """Keep the manifest for `find_export_of_request`.

    Nothing is kept if a task does not state which files it read, or if they give another plan now.

    Args:
        documents: further files that are read for the request; with the digest of those that `replan` does
            not read again, such as the recipe.
        replan: makes the plan once more.
    """
    read = plan.reads()
    if read is not None:
        files = dict.fromkeys(str(path.absolute()) for path in (*read, *documents))
        settled = {path: state for path in files if (state := _settled(Path(path)))}
        state = _state_of({"files": files, "packages": plan.packages()}, {})
        value = {"name": plan.name, "manifest": str(manifest), "read": state, "settled": settled}
        changed = any(
            digest is not None and state["files"][str(path.absolute())] != str(digest)
            for path, digest in documents.items()
        )
        with suppress(RegError, OSError):
            if not changed and replan().key() == plan.key():
                cache.remember(REQUESTS, _request_key(request), value)


def _write_entry(directory: Path, key: Key, **content: Any) -> None:
    (directory / ENTRY_FILE).write_bytes(canonical.encode({"key": dict(key), **content}, ENTRY_FILE))


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _request_key(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"request": dict(request), "tools": tools()}


def _state_of(read: Any, settled: Mapping[str, Any]) -> Any:
    """Map files to digests, directories to a digest of their names, packages to versions; None for missing
    ones.

    A file that is unchanged since it was `settled` keeps the recorded digest, and is not read.
    """
    files = {
        path: digest if path in settled and settled[path] == _settled(Path(path)) else _digest(Path(path))
        for path, digest in read.get("files", {}).items()
    }
    return {"files": files, "packages": package_versions(read.get("packages", {}))}


def _settled(path: Path) -> list[str] | None:
    """Return the state that identifies unchanged contents; None without a file, or if it may change and keep
    its state.
    """
    with suppress(OSError):
        status, now = path.stat(), time.time_ns()
        state = FileState.of(status)
        if S_ISREG(status.st_mode) and state.is_settled(now):
            return state.to_json()
    return None


def _digest(path: Path) -> str | None:
    try:
        if path.is_dir():
            names = "\n".join(sorted(child.name for child in path.iterdir()))
            return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()
        return str(digest_file(path))
    except OSError:
        return None


def _read_export(value: Any) -> EarlierExport | None:
    """Decode a remembered export; None for a missing or malformed entry."""
    try:
        return EarlierExport(value["name"], Digest.parse(value["manifest"]))
    except (KeyError, TypeError, InputError):
        return None
