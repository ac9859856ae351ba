"""A registry in a local directory, written durably and by any number of processes at once.

Beside the tree that every store keeps, `local/` belongs to this machine: scratch space, locks, remotes, tracking
copies. It is never published.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

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
from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES, IndexFile, MissingBlobError, TreeFile
from onnxreg.registry.support.disk import (
    Disk,
    host_errors,
    is_regular,
    open_regular,
    path_text,
    read_bounded,
    refuse_unlisted,
    regular_size,
    set_mode,
    share,
)
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import is_name

if TYPE_CHECKING:
    from onnxreg.registry.store.directory.directory_push import DirectoryPush
    from onnxreg.registry.store.protocol import StoredObject


class DirectoryRegistry:
    """A registry below `root`. `open` an existing one, or `create` one."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()

    @classmethod
    def open(cls, root: Path, disk: Disk | None = None) -> Self:
        """Open an existing registry. NotFoundError if there is none; HostError if its layout is newer than this build."""
        remote = cls(root, disk)
        remote.check_exists()
        return remote

    @classmethod
    def create(
        cls, root: Path, disk: Disk | None = None, mirror_of: str | None = None
    ) -> "DirectoryRegistry":
        """Open the registry, or make an empty one, which may be a mirror of that with this id.

        InputError if the directory holds something else.
        """
        remote = cls(root, disk)
        if not remote.is_there:
            more = {"mirror": True} if mirror_of else {}
            remote._initialise(new_identity(mirror_of, **more))
        remote.check_exists()
        return remote

    def _initialise(self, identity: bytes) -> None:
        from onnxreg.registry.store.directory.scratch import exclusive

        with host_errors(f"making a registry in {self.root}"):
            self.check_not_foreign()
            self.make_scratch()
            with exclusive(self.root / "local" / "locks" / "registry.lock"):
                if self.is_there:
                    return
                self.check_not_foreign()
                self.write_file("registry.json", identity)

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
        """The scratch directory, in a tree whose directories are its own: a link would redirect writes."""
        for part in ("tmp", "locks", "partial"):
            self.refuse_link(self.root / "local" / part)
        for part in ("blobs/sha256", "index"):
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
        local = self.scratch.parent
        new_directories = [self.scratch, local / "locks", local] + ([] if self.root.exists() else [self.root])
        try:
            yield
        finally:
            if not self.is_there:
                with suppress(OSError):  # another command works there
                    for directory in new_directories:
                        directory.rmdir()

    def refuse_link(self, path: Path) -> None:
        """IntegrityError if the path goes through a link below the root; the path to the root is its owner's choice."""
        for ancestor in takewhile(lambda above: above != self.root, (path, *path.parents)):
            if ancestor.is_symlink():
                raise IntegrityError(
                    f"{ancestor.relative_to(self.root)} of {self.url} is a link, which no registry has",
                    "somebody else may have prepared it: look at it before you write there",
                )

    @property
    def is_there(self) -> bool:
        """True if there is a registry yet."""
        return (self.root / "registry.json").exists()

    @cached_property
    def registry_id(self) -> str:
        return str(self._identity["id"])

    def check_exists(self) -> None:
        """Read which registry this is. NotFoundError if there is none."""
        _ = self.registry_id

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
                    Advice("create-registry"),
                ) from None
            except NotADirectoryError:
                raise InputError(f"{self.root} is not a directory", "name a directory") from None
        return read_identity(data, str(self.root))

    def read_local(self, name: str) -> bytes | None:
        with host_errors(f"reading local/{name}"):
            try:
                return read_bounded(self.root / "local" / name, MAX_DOCUMENT_BYTES)
            except FileNotFoundError:
                return None

    def write_local(self, name: str, data: bytes) -> None:
        self.write_file(f"local/{name}", data)

    def remove_local(self, name: str) -> None:
        with host_errors(f"writing to {self.url}"), suppress(FileNotFoundError):
            self.disk.unlink(self.root / "local" / name)

    @property
    def scratch(self) -> Path:
        return self.root / "local" / "tmp"

    @property
    def partial(self) -> Path:
        """The directory of partial downloads."""
        return self.root / "local" / "partial"

    @property
    def url(self) -> str:
        return path_text(self.root)

    @property
    def location(self) -> str:
        """The path in full."""
        return os.path.abspath(self.root)  # noqa: PTH100

    def blob_url(self, digest: Digest) -> str:
        return self.blob_path(digest).absolute().as_uri()

    def _key(self, digest: Digest) -> BlobKey:
        """The first key that has the blob; the plain one if it is absent."""
        keys = keys_of(digest)
        return next((key for key in keys if is_regular(self.root / key.path)), keys[0])

    def blob_path(self, digest: Digest) -> Path:
        return self.root / self._key(digest).path

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with host_errors(f"looking for blobs in {self.url}"):
            return {digest for digest in digests if self.has_key(self._key(digest))}

    def has_key(self, key: BlobKey) -> bool:
        return is_regular(self.root / key.path)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        path = self.root / BlobKey(digest).path
        with host_errors(f"reading blob {digest}"):
            try:
                stream = open_regular(path)
            except (FileNotFoundError, NotADirectoryError):
                stream = self.open_key(self._key(digest))
            stream.seek(start)
        return stream

    def open_key(self, key: BlobKey) -> BinaryIO:
        with host_errors(f"reading blob {key.digest}"):
            try:
                return open_regular(self.root / key.path)
            except (FileNotFoundError, NotADirectoryError):
                raise MissingBlobError(key.digest, self.url) from None

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        index = self.view_index(name)
        return index and index._replace(token=Digest.of(index.data).hex)

    def view_index(self, name: str) -> IndexFile | None:
        """The index file without its token, which costs as much as reading it: to read, not to swap."""
        with host_errors(f"reading the index of {name}"):
            try:
                data = read_bounded(self.root / index_path(name), MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None
        if b"\r\n" in data:
            raise IntegrityError(
                f"{index_path(name)} has the line ends of Windows (CRLF): git or an editor changed them",
                "type `git config core.autocrlf false`, write `* -text` into .gitattributes, and check the files out again",
            )
        return IndexFile(data, "")

    def names(self) -> Iterator[str]:
        index = self.root / "index"
        with host_errors(f"listing {self.url}"):
            paths = list(_logs(index)) if index.is_dir() else []
            names = [
                path.relative_to(index).as_posix()[: -len(".jsonl")] for path in paths if is_regular(path)
            ]
        return iter(sorted(name for name in names if is_name(name)))

    def files(self) -> Iterator[TreeFile]:
        with host_errors(f"listing {self.url}"):
            for directory, folders, names in os.walk(self.root, onerror=refuse_unlisted):
                hidden = {"local"} if directory == str(self.root) else set()
                folders[:] = [name for name in folders if name not in hidden and not is_system_path(name)]
                linked = [
                    folder
                    for folder in folders
                    if folder.endswith(".jsonl") or os.path.islink(os.path.join(directory, folder))  # noqa: PTH114, PTH118
                ]
                for name in sorted([*names, *linked]):
                    path = Path(directory, name)
                    size = regular_size(path)
                    if size is None or size >= 0:
                        yield TreeFile(path.relative_to(self.root).as_posix(), size)

    def delete(self, keys: Iterable[BlobKey]) -> None:
        paths = [self.root / key.path for key in keys]
        with host_errors(f"deleting blobs of {self.url}"):
            self._sync_logs()
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
        path = self.root / index_path(name)
        with host_errors(f"writing to {self.url}"):
            for directory in path.parents[: len(path.relative_to(self.root).parts)]:
                self.disk.sync_directory(directory)

    def _sync_logs(self) -> None:
        """Make all logs durable: a power cut must not bring back one that refers to blobs that are deleted next."""
        index = self.root / "index"
        folders = sorted(index.iterdir()) if index.is_dir() else []
        for directory in (*folders, index, self.root):
            if directory.is_dir():
                self.disk.sync_directory(directory)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        path = self.root / note_path(kind, note)
        with host_errors(f"writing {note_path(kind, note)} of {self.url}"):
            self.refuse_link(self.root / "gc")
            self.refuse_link(path.parent)
            self.disk.make_directory(path.parent, self.root)
            temporary = self.scratch / note.partition("-")[0] / os.urandom(8).hex()
            with self.disk.create(temporary) as file:
                file.write(data)
            share(temporary, path)
            self.disk.rename(temporary, path)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        directory = self.root / "gc" / kind
        contents: dict[str, bytes] = {}
        with host_errors(f"reading the notes in {self.url}"):
            paths = sorted(directory.iterdir()) if directory.is_dir() else []
            for path in paths:
                if NOTE.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        contents[path.name] = read_bounded(path, MAX_DOCUMENT_BYTES)
        return contents

    def remove_note(self, kind: Kind, note: str) -> None:
        with host_errors(f"removing a note of {self.url}"):
            self.disk.unlink(self.root / note_path(kind, note))

    def is_alive(self, note: str) -> bool | None:
        from onnxreg.registry.store.directory.scratch import is_held

        with host_errors(f"looking at the locks of {self.url}"):
            return is_held(self.scratch / f"{note.partition('-')[0]}.lock")

    @contextmanager
    def push(self) -> Iterator["DirectoryPush"]:
        from onnxreg.registry.store.directory.directory_push import DirectoryPush

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

    def clear_partial(self) -> int:
        """Remove partial downloads, except those of running pulls; returns their size in bytes."""
        from onnxreg.registry.store.directory.directory_push import clear_partial

        with host_errors(f"clearing {self.partial}"):
            return clear_partial(self.partial, self.disk)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a directory for one command's unfinished files. Those of dead commands are removed first."""
        from onnxreg.registry.store.directory.scratch import staging

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

    @property
    def is_shared(self) -> bool:
        """True if other users may write to the scratch space, and so change a file before it is stored."""
        if os.name != "posix":
            return False
        folders = [path.stat() for path in (self.root, self.scratch.parent, self.scratch)]
        return any(folder.st_mode & 0o022 or folder.st_uid != os.geteuid() for folder in folders)

    def swap_index(self, name: str, data: bytes, expected: str | None, scratch: Path) -> None:
        """Compare and swap under the model's lock. LostRaceError if the index is not the expected one."""
        from onnxreg.schema.core.errors import LostRaceError

        if not self._swap(index_path(name), data, expected, scratch, name):
            raise LostRaceError(f"the index of {name} changed meanwhile")

    def read_file(self, path: str, cached: "StoredObject | None" = None) -> "StoredObject | None":
        with host_errors(f"reading {path}"):
            try:
                data = read_bounded(self.root / path, MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return data, Digest.of(data).hex

    def write_files(self, files: Mapping[str, bytes]) -> None:
        with self.staging() as scratch, host_errors(f"writing to {self.root}"):
            pairs = []
            for number, (path, data) in enumerate(files.items()):
                if (self.read_file(path) or (None,))[0] != data:
                    self.refuse_link((self.root / path).parent)
                    with self.disk.create(scratch / str(number)) as file:
                        file.write(data)
                    pairs.append((scratch / str(number), self.root / path))
            relied = [self.root / path for path in files]
            self.disk.write_all(pairs, self.root, relied, shared=True)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        with self.staging() as scratch, host_errors(f"writing {path} of {self.root}"):
            return self._swap(path, data, expected, scratch, f".{path}")

    def _swap(self, path: str, data: bytes, expected: str | None, scratch: Path, lock: str) -> bool:
        """Compare and swap under a lock, for which writers of other files do not wait; False if the file is not the
        expected one.
        """
        from onnxreg.registry.store.directory.scratch import exclusive

        with exclusive(self.root / "local" / "locks" / f"{lock.replace('/', '~')}.lock"):
            current = self.read_file(path)
            if (current[1] if current else None) != expected:
                return False
            self._replace(path, data, scratch)
            return True

    def write_file(self, path: str, data: bytes) -> None:
        """Replace one small file of the tree, atomically and durably."""
        from onnxreg.registry.store.directory.scratch import staging

        self.make_scratch()
        with host_errors(f"writing {path} of {self.root}"), staging(self.scratch, self.disk) as scratch:
            self._replace(path, data, scratch)

    def _replace(self, path: str, data: bytes, scratch: Path) -> None:
        temporary = scratch / os.urandom(8).hex()
        with self.disk.create(temporary) as file:
            file.write(data)
        self.refuse_link((self.root / path).parent)
        self.disk.write_all([(temporary, self.root / path)], self.root, shared=True)


def _logs(index: Path) -> Iterator[Path]:
    """The index files of all models. OSError if a folder cannot be listed: a glob would leave it out."""
    for path in index.iterdir():
        if path.suffix == ".jsonl":
            yield path
        elif path.is_dir():
            yield from (file for file in path.iterdir() if file.suffix == ".jsonl")
