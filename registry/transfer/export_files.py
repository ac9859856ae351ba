"""Write verified files of a version into a directory: all files, one artifact, or a package for ONNX Runtime.

If the target is the run directory of a training (it has `checkpoints/`), the files go to its `exports/`. Then paths in
the manifest, such as `exports/model.onnx`, are relative to the run directory.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from msgspec import Struct

from onnxreg.registry.log import contents
from onnxreg.registry.log.log import read_blob, read_manifest
from onnxreg.registry.resolution import Resolution
from onnxreg.registry.store.directory import DirectoryRegistry, staging, temporary
from onnxreg.registry.store.protocol import WORTHLESS_NAME, BlobReader, RegistryReader, is_system_path
from onnxreg.registry.store.streams import Content, copy_verified
from onnxreg.registry.system import Disk, host_errors, refuse_unlisted, run_parallel
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.formats.package_layout import MANIFEST, PackageLayout, package, packaged_files
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME

CHECKPOINTS, EXPORTS = "checkpoints", "exports"


def folder_in(directory: Path) -> Path:
    """Return the directory for a version's files: `exports/` of a run directory, otherwise the directory itself."""
    is_run = (directory / CHECKPOINTS).is_dir() and not (directory / FILENAME).exists()
    return directory / EXPORTS if is_run else directory


def prefix_in(folder: Path) -> str:
    """Return the prefix to remove from paths: `exports/` if this is the `exports` folder of a run, else ""."""
    is_exports = folder.name == EXPORTS and (folder.parent / CHECKPOINTS).is_dir()
    return f"{EXPORTS}/" if is_exports else ""


def exported_paths(directory: Path) -> set[str]:
    """Return the paths of the files that an earlier export wrote here, or no paths if its manifest cannot be read."""
    try:
        manifest = Manifest.decode((directory / FILENAME).read_bytes())
    except (OSError, InputError):
        return set()
    prefix = prefix_in(directory)
    return {FILENAME, *(entry.path.removeprefix(prefix) for entry in manifest.all_files())}


def package_paths(directory: Path) -> set[str]:
    """Return the paths of the files of an earlier package here, or no paths if its manifest cannot be read."""
    try:
        return packaged_files((directory / MANIFEST).read_bytes())
    except OSError:
        return set()


def check_target(
    target: Path,
    registry: Path | None = None,
    expected_files: Callable[[Path], set[str]] = exported_paths,
    kind: str = "export or pull",
) -> None:
    """Raise InputError if `target` must not be replaced, for example because it has files that are not expected."""
    with host_errors(f"looking at {target}"):
        if target.is_symlink() and not target.exists():
            raise InputError(f"{target} is a link to nothing", "name a new directory, or remove the link")
        path = target.resolve()
        if not next(above for above in (path, *path.parents) if above.exists()).is_dir():
            hint = f"name a new directory, or an earlier {kind}"
            raise InputError(f"{target} is a file, or below one", hint)
        if registry is not None and path.is_relative_to(registry.resolve()):
            raise InputError(f"{target} is inside the registry", "name a directory outside of it")
        if Path.cwd().is_relative_to(path):
            raise InputError(f"{target} is the working directory", "go elsewhere, or name another directory")
        if os.path.ismount(path):
            raise InputError(f"{target} is a mount point, which cannot be replaced", "name a directory in it")
        others = sorted(_files_below(path) - expected_files(path)) if path.is_dir() else []
    if others:
        names = f"{', '.join(others[:3])}{' ...' if len(others) > 3 else ''}"
        hint = "name a new directory, or move those files away"
        raise InputError(f"{target} holds {names}, which no earlier {kind} wrote", hint)
    with host_errors(f"making {target}"):
        Path(mkdtemp(prefix=".reg-", dir=next(above for above in path.parents if above.exists()))).rmdir()


def _files_below(directory: Path) -> set[str]:
    names = (
        Path(parent, name).relative_to(directory).as_posix()
        for parent, folders, files in os.walk(directory, onerror=refuse_unlisted)
        for name in (*files, *(folder for folder in folders if Path(parent, folder).is_symlink()))
    )
    return {name for name in names if not is_system_path(name, WORTHLESS_NAME)}


def materialize(
    store: BlobReader, files: Iterable[FileEntry], data: bytes, target: Path, progress: Progress = SILENT
) -> None:
    """Replace `target` by these files and the manifest (`data`). Raises IntegrityError if a blob is damaged."""
    with replacing(target) as fresh:
        fill(store, files, fresh, progress, prefix_in(target.resolve()))
        (fresh / FILENAME).write_bytes(data)


def write_package(
    store: DirectoryRegistry,
    ref: Ref,
    target: Path,
    selection: contents.Selection = contents.EVERYTHING,
    progress: Progress = SILENT,
) -> tuple[contents.Release, PackageLayout]:
    """Write selected artifacts of a version, by default all, as a model package of ONNX Runtime.

    Raises NotFoundError if a selected artifact is absent, InputError if ONNX Runtime can load none of the artifacts,
    and IntegrityError if a file is damaged.
    """
    check_target(target, store.root, package_paths, "package")
    release = contents.read_version(store, ref)
    artifacts = contents.selected_artifacts(release.manifest, release.held, selection, str(release.ref))
    layout = package(release.manifest, release.digest, str(release.version), artifacts)
    with replacing(target) as fresh:
        fill(store, layout.files, fresh, progress)
        for path, data in layout.documents.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(data)
    return release, layout


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A context with a new directory, which replaces `target` at the end."""
    path, disk = target.resolve(), Disk()
    aside = path.with_name(f".{path.name}.former")
    with host_errors(f"writing {target}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if aside.exists() and not path.exists():  # a killed command moved it away
            aside.rename(path)
        with staging(path.parent, disk, f".{path.name}.") as fresh:
            yield fresh
            for parent, _, files in os.walk(fresh, onerror=refuse_unlisted):
                for file in files:
                    disk.sync_file(Path(parent) / file)
                disk.sync_directory(Path(parent))
            shutil.rmtree(aside, ignore_errors=True)
            if path.exists():
                path.rename(aside)
            try:
                fresh.rename(path)
            except OSError:
                with suppress(FileNotFoundError):  # there was nothing to replace
                    aside.rename(path)
                raise
            disk.sync_directory(path.parent)
            shutil.rmtree(aside, ignore_errors=True)


def fill(
    store: BlobReader, files: Iterable[FileEntry], directory: Path, progress: Progress, prefix: str = ""
) -> None:
    """Write files below `directory`, at their paths without the `prefix`. Raises IntegrityError if a blob is damaged,
    and InputError if two files would have the same path.
    """
    entries = list({entry.path: entry for entry in files}.values())
    if len({entry.path.removeprefix(prefix) for entry in entries}) < len(entries):
        problem = f"two files of the version would be one in the {EXPORTS} of a run directory"
        raise InputError(problem, "write it to another directory")
    progress.plan(len(entries), sum(entry.size for entry in entries))

    def write(entry: FileEntry) -> None:
        path = directory / entry.path.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as sink:
            opened = partial(store.open_blob, entry.digest)
            copy_verified(Content(entry.path, entry.size, entry.digest, opened), sink, progress)

    run_parallel(write, entries)


class UnpackedArtifact(Struct, frozen=True):
    """One artifact with all files that it needs, in the directory `root`."""

    root: Path
    manifest: Manifest
    artifact: Artifact

    @property
    def main(self) -> Path:
        return self.root / self.artifact.path

    def sidecar(self, role: str) -> Path | None:
        return next((self.root / file.path for file in self.artifact.files if file.role == role), None)


@contextmanager
def unpacked(
    reader: RegistryReader, resolution: Resolution, progress: Progress = SILENT
) -> Iterator[UnpackedArtifact]:
    """A context with a temporary directory of an artifact's files. Raises IntegrityError if a blob is damaged."""
    digest = resolution.located.entry.manifest
    manifest = read_manifest(read_blob(reader, digest), digest, resolution.located.name)
    artifact = next(item for item in manifest.artifacts if item.path == resolution.artifact.path)
    with temporary() as root:
        fill(reader, contents.download_files(manifest, artifact), root, progress)
        yield UnpackedArtifact(root, manifest, artifact)


@contextmanager
def fetched(
    reader: RegistryReader, version: contents.Release, artifacts: Iterable[Artifact], progress: Progress
) -> Iterator[Path]:
    """A context with a directory of these artifacts' graphs and data. Raises NotFoundError if a file is absent."""
    files: list[FileEntry] = []
    for artifact in artifacts:
        if version.held is not None and artifact.path not in version.held:
            raise NotFoundError(f"{artifact.path} is not held in {reader.url}", "`reg pull` fetches the rest")
        files += (file for file in artifact.all_files() if file.role in ("artifact", "external-data"))
    with temporary() as scratch:
        fill(reader, files, scratch, progress)
        yield scratch
