"""A registry in a local directory, written durably and by any number of processes at once.

Beside the tree that every store keeps, `local/` belongs to this machine: scratch space, locks, remotes, tracking
copies. It is never published.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Self

from onnxreg.registry.store.directory.directory_push import DirectoryPush
from onnxreg.registry.store.directory.partial_download import clear_partial
from onnxreg.registry.store.directory.scratch import exclusive, is_held, staging
from onnxreg.registry.store.directory.tree import DirectoryTree
from onnxreg.registry.store.layout import (
    NOTE,
    BlobKey,
    Kind,
    check_writer,
    index_path,
    is_system_path,
    keys_of,
    new_identity,
    note_path,
    read_identity,
)
from onnxreg.registry.store.protocol import (
    MAX_DOCUMENT_BYTES,
    IndexFile,
    MissingBlobError,
    RegistryStore,
    TreeFile,
)
from onnxreg.registry.support.disk import (
    Disk,
    host_errors,
    is_regular,
    read_bounded,
    refuse_unlisted,
    set_mode,
    share,
)
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import is_name


class DirectoryRegistry(DirectoryTree, RegistryStore):
    """A registry below `root`. `open` an existing one, or `create` one."""

    @classmethod
    def open(cls, root: Path, disk: Disk | None = None) -> Self:
        """Open an existing registry. NotFoundError if there is none; HostError if its layout is newer than this build."""
        registry = cls(root, disk)
        registry.check_exists()
        return registry

    @classmethod
    def create(
        cls, root: Path, disk: Disk | None = None, mirror_of: str | None = None
    ) -> "DirectoryRegistry":
        """Open the registry, or make an empty one, which may be a mirror of the registry with this id.

        InputError if the directory holds something else.
        """
        registry = cls(root, disk)
        if not registry.is_there:
            with host_errors(f"making a registry in {root}"):
                registry.check_not_foreign()
                registry.make_scratch()
                with exclusive(root / "local" / "locks" / "registry.lock"):
                    if not registry.is_there:
                        registry.check_not_foreign()
                        more = {"mirror": True} if mirror_of else {}
                        registry.write_file("registry.json", new_identity(mirror_of, **more))
        registry.check_exists()
        return registry

    def check_not_foreign(self) -> None:
        """InputError if the directory holds something else than a registry that somebody makes just now."""
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file", "name a directory")
        names = {entry.name for entry in self.root.iterdir()} if self.root.exists() else set()
        names = {name for name in names if not is_system_path(name)}
        if "registry.json" not in names and names - {"local"}:
            raise InputError(
                f"{self.root} is not a registry and not empty",
                "name a registry, or a directory that is empty or does not exist yet",
            )

    def make_scratch(self) -> None:
        """Make the scratch directory, in a tree whose directories are its own: a link would redirect writes."""
        for part in ("local/tmp", "local/locks", "local/partial", "blobs/sha256", "index"):
            self.refuse_link(self.root / part)
        with host_errors(f"writing to {self.root}"):
            for part in ("tmp", "locks"):
                self.disk.make_directory(self.root / "local" / part, self.root)

    @contextmanager
    def prospective(self) -> Iterator[None]:
        """Work that may make the registry. If it does not, the directories that were made for it are removed.

        InputError if the directory holds something else.
        """
        if self.is_there:
            yield
            return
        self.check_not_foreign()
        local = self.root / "local"
        new_directories = [self.scratch, local / "locks", local] + ([] if self.root.exists() else [self.root])
        try:
            yield
        finally:
            if not self.is_there:
                with suppress(OSError):  # another command works there
                    for directory in new_directories:
                        directory.rmdir()

    @property
    def is_there(self) -> bool:
        """True if there is a registry yet."""
        return (self.root / "registry.json").exists()

    def check_exists(self) -> None:
        """Read which registry this is. NotFoundError if there is none."""
        _ = self.registry_id

    @cached_property
    def registry_id(self) -> str:
        return str(self._identity["id"])

    @property
    def is_mirror(self) -> bool:
        return self._identity.get("mirror") is True

    @cached_property
    def _identity(self) -> dict[str, Any]:
        with host_errors(f"opening the registry in {self.root}"):
            try:
                data = read_bounded(self.root / "registry.json", 64 * 1024)
            except FileNotFoundError:
                raise NotFoundError(
                    f"there is no registry in {self.root}",
                    "check the path; `reg push` to it makes a new one, and here also `reg add`, `reg export` and `reg pull`",
                ) from None
            except NotADirectoryError:
                raise InputError(f"{self.root} is not a directory", "name a directory") from None
        return read_identity(data, str(self.root))

    @property
    def scratch(self) -> Path:
        return self.root / "local" / "tmp"

    @property
    def location(self) -> str:
        """The path in full."""
        return os.path.abspath(self.root)  # noqa: PTH100

    @property
    def is_shared(self) -> bool:
        """True if other users may write to the scratch space, and so change a file before it is stored."""
        if os.name != "posix":
            return False
        folders = [path.stat() for path in (self.root, self.scratch.parent, self.scratch)]
        return any(folder.st_mode & 0o022 or folder.st_uid != os.geteuid() for folder in folders)

    def blob_url(self, digest: Digest) -> str:
        return self.blob_path(digest).absolute().as_uri()

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with host_errors(f"looking for blobs in {self.url}"):
            return {digest for digest in digests if any(map(self.has_key, keys_of(digest)))}

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        try:
            stream = self.open_key(BlobKey(digest))
        except MissingBlobError:
            key = BlobKey.of_path(self.blob_path(digest).relative_to(self.root).as_posix())
            stream = self.open_key(key or BlobKey(digest))
        stream.seek(start)
        return stream

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        data = self.read(index_path(name))
        if data is not None and b"\r\n" in data:
            raise IntegrityError(
                f"{index_path(name)} has the line ends of Windows (CRLF): git or an editor changed them",
                "type `git config core.autocrlf false`, write `* -text` into .gitattributes, and check the files out again",
            )
        return None if data is None else IndexFile(data, Digest.of(data).hex)

    def names(self) -> Iterator[str]:
        """List every model's name. Folders are listed one by one: a glob would leave out what it may not list."""
        index = self.root / "index"
        with host_errors(f"listing {self.url}"):
            paths = list(index.iterdir()) if index.is_dir() else []
            paths += [
                file for path in paths if path.suffix != ".jsonl" and path.is_dir() for file in path.iterdir()
            ]
            logs = [path for path in paths if path.suffix == ".jsonl" and is_regular(path)]
        names = (path.relative_to(index).as_posix().removesuffix(".jsonl") for path in logs)
        return iter(sorted(name for name in names if is_name(name)))

    def files(self) -> Iterator[TreeFile]:
        with host_errors(f"listing {self.url}"):
            for directory, folders, names in os.walk(self.root, onerror=refuse_unlisted):
                hidden = {"local"} if directory == str(self.root) else set()
                folders[:] = [name for name in folders if name not in hidden and not is_system_path(name)]
                linked = [
                    name for name in folders if name.endswith(".jsonl") or Path(directory, name).is_symlink()
                ]
                for name in sorted([*names, *linked]):
                    path = Path(directory, name)
                    with suppress(FileNotFoundError):  # it was deleted meanwhile
                        status = path.lstat()
                        size = status.st_size if stat.S_ISREG(status.st_mode) else None
                        yield TreeFile(path.relative_to(self.root).as_posix(), size)

    def delete(self, keys: Iterable[BlobKey]) -> None:
        """Delete blobs. All logs become durable first: a power cut must not bring back one that refers to them."""
        paths = [self.root / key.path for key in keys]
        index = self.root / "index"
        with host_errors(f"deleting blobs of {self.url}"):
            folders = sorted(index.iterdir()) if index.is_dir() else []
            for directory in (*folders, index, self.root):
                if directory.is_dir():
                    self.disk.sync_directory(directory)
            for path in paths:
                self.refuse_link(path.parent)
                self.disk.unlink(path)
            for directory in sorted({path.parent for path in paths}):
                if directory.is_dir():
                    self.disk.sync_directory(directory)

    def discard(self, paths: Iterable[str]) -> None:
        with host_errors(f"deleting files of {self.url}"):
            for path in paths:
                self.disk.unlink(self.root / path)

    def confirm(self, name: str) -> None:
        path = Path(index_path(name))
        with host_errors(f"writing to {self.url}"):
            for directory in path.parents:
                self.disk.sync_directory(self.root / directory)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        path = self.root / note_path(kind, note)
        with host_errors(f"writing {note_path(kind, note)} of {self.url}"):
            self.refuse_link(path.parent)
            self.disk.make_directory(path.parent, self.root)
            temporary = self.write_scratch(self.scratch / note.partition("-")[0], data)
            share(temporary, path)
            self.disk.rename(temporary, path)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        directory = self.root / "gc" / kind
        contents: dict[str, bytes] = {}
        with host_errors(f"reading the notes in {self.url}"):
            for path in sorted(directory.iterdir()) if directory.is_dir() else []:
                if NOTE.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        contents[path.name] = read_bounded(path, MAX_DOCUMENT_BYTES)
        return contents

    def remove_note(self, kind: Kind, note: str) -> None:
        self.discard([note_path(kind, note)])

    def is_alive(self, note: str) -> bool | None:
        with host_errors(f"looking at the locks of {self.url}"):
            return is_held(self.scratch / f"{note.partition('-')[0]}.lock")

    @contextmanager
    def push(self) -> Iterator[DirectoryPush]:
        with host_errors(f"writing to {self.root}"), self.staging() as directory:
            push = DirectoryPush(self, directory)
            try:
                yield push
            except BaseException:
                with suppress(Exception):
                    push.keep_fetched()
                raise
            finally:
                push.release()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a directory for one command's unfinished files. Those of dead commands are removed first."""
        if self.is_there:
            check_writer(self._identity, self.url)
        self.make_scratch()
        with ExitStack() as stack:
            with host_errors(f"writing to {self.root}"):
                try:
                    directory = stack.enter_context(staging(self.scratch, self.disk))
                except FileNotFoundError:  # the end of another command's `prospective`
                    self.make_scratch()
                    directory = stack.enter_context(staging(self.scratch, self.disk))
                set_mode(directory, 0o700)
            yield directory

    def clear_partial(self) -> int:
        """Remove partial downloads, except those of running pulls; returns their size in bytes."""
        with host_errors(f"clearing {self.partial}"):
            return clear_partial(self.partial, self.disk)

    def read_local(self, name: str) -> bytes | None:
        return self.read(f"local/{name}")

    def write_local(self, name: str, data: bytes) -> None:
        self.write_file(f"local/{name}", data)

    def remove_local(self, name: str) -> None:
        self.discard([f"local/{name}"])

    def write_file(self, path: str, data: bytes) -> None:
        """Replace one small file of the tree, atomically and durably."""
        self.make_scratch()
        with host_errors(f"writing {path} of {self.root}"), staging(self.scratch, self.disk) as scratch:
            self.replace({path: data}, scratch)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        with self.staging() as scratch:
            return self.swap(path, data, expected, scratch, f".{path}")
