"""Writing a version out as a directory of files: verified, in a fresh directory, swapped in whole."""

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO, cast

from onnxreg.registry.log.selection import Held, held_files
from onnxreg.registry.store import hash_stream
from onnxreg.registry.store.directory.scratch import staging
from onnxreg.registry.store.protocol import BlobReader
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.registry.transfer.copy import MeteredReader, Progress, run_parallel
from onnxreg.registry.transfer.run_directory import check_apart, prefix_in
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.manifest.manifest import FILENAME, FileEntry, Manifest

_CWD = -100
_EXCHANGE = 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""


def exported(directory: Path) -> set[str]:
    """The files that the manifest of an export names, and the manifest; none where there is no manifest to read."""
    try:
        manifest = Manifest.decode((directory / FILENAME).read_bytes())
    except (OSError, InputError):
        return set()
    prefix = prefix_in(directory)
    return {FILENAME, *(entry.path.removeprefix(prefix) for entry in manifest.all_files())}


def check_target(
    target: Path, registry: Path | None = None, known: Callable[[Path], set[str]] = exported
) -> None:
    """InputError where writing there would lose or hide anything that is not an earlier export.

    `known` gives the files of one that lies in a directory.
    """
    with host_errors(f"looking at {target}"):
        if target.is_symlink() and not target.exists():
            raise InputError(f"{target} is a link to nothing", "name a new directory, or remove the link")
        place = target.resolve()
        if place.exists() and not place.is_dir():
            raise InputError(
                f"{target} is a file", "name a directory that does not exist yet, or an earlier export"
            )
        if registry is not None and place.is_relative_to(registry.resolve()):
            raise InputError(f"{target} lies inside the registry", "name a directory outside of it")
        if Path.cwd().is_relative_to(place):
            raise InputError(f"{target} is the working directory", "go elsewhere, or name another directory")
        strangers = _strangers(place, known(place)) if place.is_dir() else []
    if strangers:
        raise InputError(
            f"{target} holds {', '.join(strangers[:3])}{' ...' if len(strangers) > 3 else ''}, "
            "which no earlier export wrote",
            "name a new directory, or move those files away",
        )
    _check_writable(target, place.parent)


def _check_writable(target: Path, parent: Path) -> None:
    """InputError where the way to the target goes through a file, HostError where nothing can be made beside it."""
    with host_errors(f"making {target}"):
        above = next(path for path in (parent, *parent.parents) if path.exists())
        if not above.is_dir():
            raise InputError(f"{target} cannot be made: {above} is a file", "name another directory")
        Path(mkdtemp(prefix=".reg-", dir=above)).rmdir()


def _strangers(directory: Path, known: set[str]) -> list[str]:
    """A few of the files of a directory that are not known."""
    found = (path for path in directory.rglob("*") if not path.is_dir() or path.is_symlink())
    names = (path.relative_to(directory).as_posix() for path in found)
    return sorted(islice((name for name in names if name not in known), 4))


def materialize(
    store: BlobReader,
    manifest: Manifest,
    data: bytes,
    target: Path,
    progress: Progress | None = None,
    held: Held = None,
) -> None:
    """Write the files of a manifest that are held, and the manifest's own bytes `data`, into `target`.

    An earlier export there is replaced as a whole. In `exports/` of a run directory (`rundir`) paths are without that
    beginning. IntegrityError where a blob is damaged: then the target is as it
    was before. What a killed run left beside the target is removed.
    """
    prefix, files = prefix_in(target.resolve()), list(held_files(manifest, held))
    check_apart({entry.path for entry in files}, prefix)
    with replacing(target) as fresh:
        fill(store, files, fresh, progress or Progress(), prefix)
        (fresh / FILENAME).write_bytes(data)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A fresh directory to fill, which takes the target's place as a whole once it is durable; not after an error."""
    place = target.resolve()
    with host_errors(f"writing {target}"):
        place.parent.mkdir(parents=True, exist_ok=True)
        with staging(place.parent, Disk(), f".{place.name}.") as fresh:
            yield fresh
            _sync(fresh)
            _swap(fresh, place)


def fill(
    store: BlobReader, files: Iterable[FileEntry], directory: Path, progress: Progress, prefix: str = ""
) -> None:
    """Write files into a directory, several at a time, without a beginning of their paths.

    IntegrityError where a blob is damaged.
    """
    entries = list({entry.path: entry for entry in files}.values())
    progress.plan(len(entries), sum(entry.size for entry in entries))
    stop = threading.Event()

    def write(entry: FileEntry) -> None:
        path = directory / entry.path.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = progress.file(entry.path, entry.size)
        with file as moved, store.open_blob(entry.digest) as source, path.open("xb") as sink:
            metered = MeteredReader(source, moved, stop, f"reading blob {entry.digest}", entry.size)
            found, size = hash_stream.pump(cast(BinaryIO, metered), sink)
        hash_stream.check(found, entry.digest, f"{entry.path} (blob {entry.digest})")
        if size != entry.size:
            raise IntegrityError(f"{entry.path} has {size} bytes, its manifest says {entry.size}")

    run_parallel(write, entries, stop)


def _sync(directory: Path) -> None:
    disk = Disk()
    for parent, _, files in os.walk(directory):
        for file in files:
            disk.sync_file(Path(parent) / file)
        disk.sync_directory(Path(parent))


def _swap(fresh: Path, target: Path) -> None:
    """Put the fresh directory in the target's place; `fresh` is the old one afterwards, where there was one."""
    if target.exists():
        _exchange(fresh, target)
    else:
        fresh.rename(target)
    Disk().sync_directory(target.parent)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two names atomically (Linux: renameat2); elsewhere by renames that are taken back on failure."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "renameat2"):
            if libc.renameat2(_CWD, os.fsencode(one), _CWD, os.fsencode(other), _EXCHANGE) == 0:
                return
            if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = one.with_name(f"{one.name}.old")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)
