"""Write files of a version into a directory, verified: a version, one artifact of it, or an ORT package.

A fresh directory is filled, and swapped in as a whole. `unpacked` and `fetched` give one artifact for a while, in a
temporary directory: `unpacked` with its sidecars and the companions, `fetched` only its main file and external data.

A version that is written into the run directory of a training goes into `exports/`, beside its `checkpoints/`. That is
Orchard's layout. The manifest of an export calls its graph `exports/model.onnx`, and there it is.
"""

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

from onnxreg.registry.deliver.resolution import Resolution
from onnxreg.registry.log.contents import ArtifactPaths, download_files
from onnxreg.registry.log.lookup import read_blob, read_manifest
from onnxreg.registry.store import streams
from onnxreg.registry.store.directory.scratch import staging, temporary
from onnxreg.registry.store.protocol import BlobReader, RegistryReader
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.disk import Disk, host_errors, refuse_unlisted
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.formats.package_layout import MANIFEST, PackageLayout, packaged_files
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME

CHECKPOINTS, EXPORTS = "checkpoints", "exports"
_CWD = -100
_EXCHANGE = 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""


def exported(directory: Path) -> set[str]:
    """The manifest of an earlier export and the files that it names; empty if no manifest can be read."""
    try:
        manifest = Manifest.decode((directory / FILENAME).read_bytes())
    except (OSError, InputError):
        return set()
    prefix = prefix_in(directory)
    return {FILENAME, *(entry.path.removeprefix(prefix) for entry in manifest.all_files())}


def check_target(
    target: Path,
    registry: Path | None = None,
    expected_files: Callable[[Path], set[str]] = exported,
    kind: str = "export",
) -> None:
    """InputError if writing there would lose or hide anything that is not an earlier export.

    `expected_files` lists the files of an earlier export in a directory; `kind` names it in errors.
    """
    with host_errors(f"looking at {target}"):
        if target.is_symlink() and not target.exists():
            raise InputError(f"{target} is a link to nothing", "name a new directory, or remove the link")
        path = target.resolve()
        if path.exists() and not path.is_dir():
            raise InputError(
                f"{target} is a file", f"name a directory that does not exist yet, or an earlier {kind}"
            )
        if registry is not None and path.is_relative_to(registry.resolve()):
            raise InputError(f"{target} is inside the registry", "name a directory outside of it")
        if Path.cwd().is_relative_to(path):
            raise InputError(f"{target} is the working directory", "go elsewhere, or name another directory")
        others = _others(path, expected_files(path)) if path.is_dir() else []
    if others:
        raise InputError(
            f"{target} holds {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}, "
            f"which no earlier {kind} wrote",
            "name a new directory, or move those files away",
        )
    _check_writable(target, path.parent)


def materialize(
    store: BlobReader,
    files: Iterable[FileEntry],
    data: bytes,
    target: Path,
    progress: Progress = SILENT,
) -> None:
    """Write files of a manifest, and the manifest's own bytes `data`, into `target`.

    An earlier export there is replaced as a whole. In `exports/` of a run directory paths
    lose that prefix. IntegrityError if a blob is damaged: the target then is as it was before. The leftovers
    of a killed run beside the target are removed.
    """
    prefix, entries = prefix_in(target.resolve()), list(files)
    check_apart({entry.path for entry in entries}, prefix)
    with replacing(target) as fresh:
        fill(store, entries, fresh, progress, prefix)
        (fresh / FILENAME).write_bytes(data)


def fill(
    store: BlobReader, files: Iterable[FileEntry], directory: Path, progress: Progress, prefix: str = ""
) -> None:
    """Write files into a directory, several at a time, without the prefix of their paths.

    IntegrityError if a blob is damaged.
    """
    entries = list({entry.path: entry for entry in files}.values())
    progress.plan(len(entries), sum(entry.size for entry in entries))

    def write(entry: FileEntry) -> None:
        path = directory / entry.path.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = progress.file(entry.path, entry.size)
        with file as advance, store.open_blob(entry.digest) as source, path.open("xb") as sink:
            stream = metered(source, advance, f"reading blob {entry.digest}", entry.size)
            digest, size = streams.pump(stream, sink)
        streams.check(digest, entry.digest, f"{entry.path} (blob {entry.digest})")
        if size != entry.size:
            raise IntegrityError(f"{entry.path} has {size} bytes, its manifest says {entry.size}")

    run_parallel(write, entries)


@dataclass(frozen=True)
class UnpackedArtifact:
    """Files of one artifact, and the companions that it needs, below `root`."""

    root: Path
    manifest: Manifest
    artifact: Artifact

    @property
    def main(self) -> Path:
        return self.root / self.artifact.path

    def sidecar(self, role: str) -> Path | None:
        """The artifact's own file of a role."""
        return next((self.root / file.path for file in self.artifact.files if file.role == role), None)


@contextmanager
def unpacked(
    reader: RegistryReader, resolution: Resolution, progress: Progress = SILENT
) -> Iterator[UnpackedArtifact]:
    """Unpack the files of a resolution from the registry that gave it. IntegrityError if one is damaged."""
    digest = resolution.located.entry.manifest
    data = read_blob(reader, digest)
    manifest = read_manifest(data, digest, resolution.located.name)
    artifact = next(item for item in manifest.artifacts if item.path == resolution.artifact.path)
    with temporary() as scratch:
        root = scratch / "files"
        materialize(reader, download_files(manifest, artifact), data, root, progress)
        yield UnpackedArtifact(root, manifest, artifact)


@contextmanager
def fetched(
    reader: RegistryReader,
    artifact: Artifact,
    present: ArtifactPaths = None,
    progress: Progress = SILENT,
) -> Iterator[Path]:
    """Fetch the main file of one artifact into a temporary directory, with only its external data beside it,
    verified.

    `present`: the paths of the artifacts that the registry holds, see `PublishedVersion.held`; NotFoundError
    if this artifact is not one of them.
    """
    if present is not None and artifact.path not in present:
        raise NotFoundError(f"{artifact.path} is not held in {reader.url}", Advice("pull-artifact"))
    parts = [file for file in artifact.all_files() if file.role in ("artifact", "external-data")]
    with temporary() as scratch:
        fill(reader, parts, scratch, progress)
        yield scratch / artifact.path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a fresh directory, which replaces the target as a whole when it is durable.

    Not after an error.
    """
    path = target.resolve()
    with host_errors(f"writing {target}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with staging(path.parent, Disk(), f".{path.name}.") as fresh:
            yield fresh
            _sync(fresh)
            _swap(fresh, path)


def check_package_target(target: Path, registry: Path | None = None) -> None:
    """InputError if writing a package there would lose or hide anything that is not an earlier package of
    ours.
    """
    check_target(target, registry, _packaged, "package")


def write_package(
    store: BlobReader, package: PackageLayout, target: Path, progress: Progress = SILENT
) -> None:
    """Write a package into `target`; an earlier one there is replaced as a whole.

    IntegrityError if a blob is damaged: the target then is as it was before.
    """
    with replacing(target) as fresh:
        fill(store, package.files, fresh, progress)
        for path, data in package.documents.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(data)


def folder_in(directory: Path) -> Path:
    """The folder for the files of a version: `exports/` of a run directory, every other directory itself."""
    is_run = (directory / CHECKPOINTS).is_dir() and not (directory / FILENAME).exists()
    return directory / EXPORTS if is_run else directory


def prefix_in(folder: Path) -> str:
    """The prefix of a version's paths that this folder replaces; empty outside of a run directory."""
    is_exports = folder.name == EXPORTS and (folder.parent / CHECKPOINTS).is_dir()
    return f"{EXPORTS}/" if is_exports else ""


def check_apart(paths: Iterable[str], prefix: str) -> None:
    """InputError for two files that would have one path without the prefix."""
    names: set[str] = set()
    for path in paths:
        name = path.removeprefix(prefix)
        if name in names:
            raise InputError(
                f"{prefix}{name} and {name} would be one file in the {EXPORTS} of a run directory",
                "write the version to another directory",
            )
        names.add(name)


def _check_writable(target: Path, parent: Path) -> None:
    """InputError if the path to the target goes through a file, HostError if nothing can be created beside
    it.
    """
    with host_errors(f"making {target}"):
        above = next(path for path in (parent, *parent.parents) if path.exists())
        if not above.is_dir():
            raise InputError(f"{target} cannot be made: {above} is a file", "name another directory")
        Path(mkdtemp(prefix=".reg-", dir=above)).rmdir()


_LITTER = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini", re.IGNORECASE)


def _others(directory: Path, expected: set[str]) -> list[str]:
    """Up to four files of a directory that are not expected, without those of Finder and Explorer."""
    names = (
        Path(parent, name).relative_to(directory).as_posix()
        for parent, folders, files in os.walk(directory, onerror=refuse_unlisted)
        for name in (*files, *(folder for folder in folders if Path(parent, folder).is_symlink()))
    )
    foreign = (
        name for name in names if name not in expected and not _LITTER.fullmatch(name.rpartition("/")[2])
    )
    return sorted(islice(foreign, 4))


def _sync(directory: Path) -> None:
    disk = Disk()
    for parent, _, files in os.walk(directory, onerror=refuse_unlisted):
        for file in files:
            disk.sync_file(Path(parent) / file)
        disk.sync_directory(Path(parent))


def _swap(fresh: Path, target: Path) -> None:
    """Put the fresh directory in the target's place; `fresh` then is the old one, if there was one."""
    if target.exists():
        _exchange(fresh, target)
    else:
        fresh.rename(target)
    Disk().sync_directory(target.parent)


def _exchange(first: Path, second: Path) -> None:
    """Exchange two names atomically (Linux: renameat2); elsewhere by renames that are undone on failure."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "renameat2"):
            if libc.renameat2(_CWD, os.fsencode(first), _CWD, os.fsencode(second), _EXCHANGE) == 0:
                return
            if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = first.with_name(f"{first.name}.old")
    second.rename(aside)
    try:
        first.rename(second)
    except OSError:
        aside.rename(second)
        raise
    aside.rename(first)


def _packaged(directory: Path) -> set[str]:
    try:
        return packaged_files((directory / MANIFEST).read_bytes())
    except OSError:
        return set()
