"""The files of a model package: nothing but files and directories, and the digests that it states hold."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.formats.ort_package import (
    ASSETS,
    MANIFEST,
    PackageExtension,
    PackageManifest,
    asset_directory,
    asset_of,
)

_COPY_HINT = "copy the whole package again, or make it again"


class PackageTree:
    """The files below a directory, by path, each hashed at most once. InputError for links and special files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = frozenset(_walk(root))
        self._digests: dict[str, Digest] = {}

    def digest(self, path: str) -> Digest:
        if path not in self._digests:
            self._digests[path] = digest_file(self.root / path)
        return self._digests[path]

    def below(self, directory: str) -> dict[str, str]:
        """Every file of a directory by its path there; its path in the package."""
        prefix = f"{directory}/" if directory else ""
        return {path.removeprefix(prefix): path for path in self.files if path.startswith(prefix)}

    def read(self, path: str, role: str) -> bytes:
        """The bytes of a document. InputError for one that is too large to be one."""
        file = self.root / self.check_present(path, role)
        if file.stat().st_size > canonical.MAX_BYTES:
            raise InputError(
                f"{path} in the package is larger than a document may be: {canonical.MAX_BYTES} bytes"
            )
        return file.read_bytes()

    def check_present(self, path: str, role: str) -> str:
        """The path, of a file that is in the package; InputError, saying what it was to be, if it is not."""
        if path not in self.files:
            raise InputError(f"the package names the {role} {path[:200]}, which is missing", _COPY_HINT)
        return path


def _walk(root: Path) -> list[str]:
    files = []
    for parent, directories, names in os.walk(root):
        for name in (*directories, *names):
            path = Path(parent, name)
            mode, relative = path.lstat().st_mode, path.relative_to(root).as_posix()
            _check(relative, mode)
            if stat.S_ISREG(mode):
                files.append(relative)
    return files


def _check(path: str, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
        raise InputError(
            f"{path} in the package is {kind}", "a package holds files only; look at who made it"
        )
    try:
        check_path(path)
    except ValueError as error:
        raise InputError(f"the package holds a file whose name a manifest cannot hold: {error}") from error


def verified_assets(tree: PackageTree, manifest: PackageManifest) -> Mapping[Digest, str]:
    """The directory of each shared asset.

    Raise InputError if one is missing, IntegrityError if its files are not its own.
    """
    directories = {Digest.parse(uri): directory for uri, directory in manifest.shared_assets.items()}
    for path in tree.below(ASSETS):
        digest = asset_of(path.partition("/")[0])
        if digest is not None:
            directories.setdefault(digest, asset_directory(digest))
    for digest, directory in directories.items():
        files = tree.below(directory)
        if not files:
            raise InputError(f"the shared asset {digest} is missing: {directory} holds no file", _COPY_HINT)
        measured = directory_digest({path: tree.digest(at) for path, at in files.items()})
        if measured != digest:
            raise IntegrityError(
                f"the shared asset {directory} is damaged: its files have the digest {measured.short}...",
                _COPY_HINT,
            )
    return directories


def check_listed(tree: PackageTree, extension: PackageExtension) -> None:
    """A package that `reg package` wrote lists its files: InputError if one is missing or too many,
    IntegrityError if one was changed."""
    for path in extension.files:
        tree.check_present(path, "file")
    unlisted = tree.files - {MANIFEST, *extension.files}
    if unlisted:
        raise InputError(
            f"{min(unlisted)} is not a file of this package", "move it away; the package lists its files"
        )
    for path, digest in extension.files.items():
        if tree.digest(path) != digest:
            raise IntegrityError(
                f"{path} in the package is damaged: its bytes have the digest {tree.digest(path).short}..., "
                f"not {digest.short}...",
                _COPY_HINT,
            )
