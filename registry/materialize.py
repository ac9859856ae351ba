"""Writing a version out as a directory of files: verified, in a fresh directory, swapped in whole."""

import os
import secrets
import shutil
import threading
from pathlib import Path

from onnxreg.registry import hashing
from onnxreg.registry.copying import Progress, run_parallel
from onnxreg.registry.disk import Disk, host_errors
from onnxreg.registry.storage import BlobReader
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError, IntegrityError
from onnxreg.schema.manifest import FILENAME, FileEntry, Manifest


def check_target(target: Path) -> None:
    """InputError where the directory holds something that is not an earlier export, which would be lost."""
    if target.exists() and not target.is_dir():
        raise InputError(
            f"{target} is a file", "name a directory that does not exist yet, or an earlier export"
        )
    if target.is_dir() and any(target.iterdir()) and not (target / FILENAME).is_file():
        raise InputError(
            f"{target} is not empty and holds no {FILENAME}",
            "name a new directory, or one that reg wrote before",
        )


def materialize(
    store: BlobReader, digest: Digest, data: bytes, target: Path, progress: Progress | None = None
) -> None:
    """Write the files of the manifest `data` (whose digest is given), and the manifest itself, into `target`.

    An earlier export there is replaced as a whole. IntegrityError where a blob is damaged: then the target is as it
    was before.
    """
    check_target(target)
    manifest = Manifest.decode(data, f"manifest {digest.short}...")
    meter = progress or Progress()
    with host_errors(f"writing {target}"):
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        fresh = target.absolute().parent / f".{target.name}.{secrets.token_hex(6)}.new"
        fresh.mkdir()
        try:
            _fill(store, manifest, fresh, meter)
            (fresh / FILENAME).write_bytes(data)
            _sync(fresh)
            _swap(fresh, target.absolute())
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _fill(store: BlobReader, manifest: Manifest, directory: Path, progress: Progress) -> None:
    entries = list({entry.path: entry for entry in manifest.all_files()}.values())
    progress.plan(len(entries), sum(entry.size for entry in entries))
    stop = threading.Event()

    def write(entry: FileEntry) -> None:
        path = directory / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.open_blob(entry.digest) as source, path.open("xb") as sink:
            found, size = hashing.pump(source, sink, progress.moved)
        hashing.check(found, entry.digest, f"{entry.path} (blob {entry.digest})")
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
    """Put the fresh directory in the target's place; the old one is whole until the last moment."""
    old = target.parent / f".{target.name}.{secrets.token_hex(6)}.old"
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    Disk().sync_directory(target.parent)
