"""A registry in a local directory, written durably and by any number of processes at once.

Beside the tree that every store keeps, `local/` belongs to this machine: scratch space, locks, remotes, tracking
copies. It is never published.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Self

from onnxreg.registry.store.directory.incoming import PartialDownload, StagedBlobs, clear_partial
from onnxreg.registry.store.directory.scratch import exclusive, is_held, staging
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
    usable_key,
)
from onnxreg.registry.store.protocol import (
    IndexFile,
    MissingBlobError,
    Push,
    RegistryStore,
    StoredObject,
    TreeFile,
)
from onnxreg.registry.support.disk import (
    Disk,
    host_errors,
    is_regular,
    open_regular,
    path_text,
    read_all,
    read_bounded,
    refuse_unlisted,
    set_mode,
    share,
)
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError, NotFoundError
from onnxreg.schema.core.ref import is_name

MIN_RESUMABLE_BYTES = 2**20
"""Blobs with fewer bytes are fetched anew as a whole."""


class DirectoryRegistry(RegistryStore):
    """A registry below `root`, which is reached through a `disk`. `open` an existing one, or `create` one."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()

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
    def url(self) -> str:
        return path_text(self.root)

    @property
    def location(self) -> str:
        """The path in full."""
        return os.path.abspath(self.root)  # noqa: PTH100

    @property
    def is_there(self) -> bool:
        """True if there is a registry yet."""
        return (self.root / "registry.json").exists()

    @cached_property
    def identity(self) -> dict[str, Any]:
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

    # Reading

    def blob_path(self, digest: Digest) -> Path:
        """The file under the first key that has the blob; the path of the plain key if it is absent."""
        paths = [self.root / key.path for key in keys_of(digest)]
        return next(filter(is_regular, paths), paths[0])

    def blob_url(self, digest: Digest) -> str:
        return self.blob_path(digest).absolute().as_uri()

    def has_key(self, key: BlobKey) -> bool:
        return is_regular(self.root / key.path)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with host_errors(f"looking for blobs in {self.url}"):
            return {digest for digest in digests if any(map(self.has_key, keys_of(digest)))}

    def open_key(self, key: BlobKey) -> BinaryIO:
        with host_errors(f"reading blob {key.digest}"):
            try:
                return self.open_file(key.path)
            except (FileNotFoundError, NotADirectoryError):
                raise MissingBlobError(key.digest, self.url) from None

    def open_file(self, path: str) -> BinaryIO:
        """Open a regular file of the tree. FileNotFoundError if it is absent."""
        return open_regular(self.root / path)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        try:
            stream = self.open_key(BlobKey(digest))
        except MissingBlobError:
            key = BlobKey.of_path(self.blob_path(digest).relative_to(self.root).as_posix())
            stream = self.open_key(key or BlobKey(digest))
        stream.seek(start)
        return stream

    def read(self, path: str) -> bytes | None:
        """A small file of the tree or of `local/`; None if it is absent."""
        with host_errors(f"reading {path} of {self.url}"):
            try:
                with self.open_file(path) as file:
                    return read_all(file, path, MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        """See `RegistryReader.read_file`. The token is the SHA-256 of the bytes."""
        data = self.read(path)
        return None if data is None else (data, Digest.of(data).hex)

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        index = self.read_file(index_path(name))
        return IndexFile(*index) if index else None

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

    # Writing

    @property
    def scratch(self) -> Path:
        """The directory of unfinished files."""
        return self.root / "local" / "tmp"

    @property
    def is_shared(self) -> bool:
        """True if other users may write to the scratch space, and so change a file before it is stored."""
        if os.name != "posix":
            return False
        folders = [path.stat() for path in (self.root, self.scratch.parent, self.scratch)]
        return any(folder.st_mode & 0o022 or folder.st_uid != os.geteuid() for folder in folders)

    def refuse_link(self, path: Path) -> None:
        """IntegrityError if the path goes through a link below the root; the path to the root is its owner's choice."""
        for ancestor in takewhile(lambda above: above != self.root, (path, *path.parents)):
            if ancestor.is_symlink():
                raise IntegrityError(
                    f"{ancestor.relative_to(self.root)} of {self.url} is a link, which no registry has",
                    "somebody else may have prepared it: look at it before you write there",
                )

    def make_scratch(self) -> None:
        """Make the scratch directory, in a tree whose directories are its own: a link would redirect writes."""
        for part in ("local/tmp", "local/locks", "local/partial", "blobs/sha256", "index"):
            self.refuse_link(self.root / part)
        with host_errors(f"writing to {self.root}"):
            for part in ("tmp", "locks"):
                self.disk.make_directory(self.root / "local" / part, self.root)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a directory for one command's unfinished files. Those of dead commands are removed first."""
        if self.is_there:
            check_writer(self.identity, self.url)
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

    @contextmanager
    def push(self) -> Iterator["DirectoryPush"]:
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

    def swap_index(self, name: str, data: bytes, expected: str | None, scratch: Path) -> None:
        """Compare and swap under the model's lock. LostRaceError if the index is not the expected one."""
        if not self._swap(index_path(name), data, expected, scratch, name):
            raise LostRaceError(f"the index of {name} changed meanwhile")

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        with self.staging() as scratch:
            return self._swap(path, data, expected, scratch, f".{path}")

    def _swap(self, path: str, data: bytes, expected: str | None, scratch: Path, lock: str) -> bool:
        """Replace a file under a lock of its own; False if it is not the expected one."""
        lock_path = self.root / "local" / "locks" / f"{lock.replace('/', '~')}.lock"
        with host_errors(f"writing {path} of {self.root}"), exclusive(lock_path):
            current = self.read_file(path)
            if (current[1] if current else None) != expected:
                return False
            self._replace(path, data, scratch)
            return True

    def write_file(self, path: str, data: bytes) -> None:
        """Replace one small file of the tree or of `local/`, atomically and durably."""
        self.make_scratch()
        with host_errors(f"writing {path} of {self.root}"), staging(self.scratch, self.disk) as scratch:
            self._replace(path, data, scratch)

    def _replace(self, path: str, data: bytes, scratch: Path) -> None:
        target = self.root / path
        self.refuse_link(target.parent)
        self.disk.write_all([(self._write_scratch(scratch, data), target)], self.root, shared=True)

    def _write_scratch(self, scratch: Path, data: bytes) -> Path:
        temporary = scratch / os.urandom(8).hex()
        with self.disk.create(temporary) as file:
            file.write(data)
        return temporary

    def read_local(self, name: str) -> bytes | None:
        """Read a small file below `local/`; None if there is none."""
        return self.read(f"local/{name}")

    def write_local(self, name: str, data: bytes) -> None:
        """Replace a small file below `local/`, atomically and durably."""
        self.write_file(f"local/{name}", data)

    def confirm(self, name: str) -> None:
        path = Path(index_path(name))
        with host_errors(f"writing to {self.url}"):
            for directory in path.parents:
                self.disk.sync_directory(self.root / directory)

    def delete(self, keys: Iterable[BlobKey]) -> None:
        """Delete blobs. All logs become durable first: a power cut must not bring back one that refers to them."""
        paths = [self.root / key.path for key in keys]
        index = self.root / "index"
        with host_errors(f"deleting blobs of {self.url}"):
            folders = sorted(index.iterdir()) if index.is_dir() else []
            self._sync([*folders, index, self.root])
            for path in paths:
                self.refuse_link(path.parent)
                self.disk.unlink(path)
            self._sync(sorted({path.parent for path in paths}))

    def _sync(self, directories: Iterable[Path]) -> None:
        for directory in directories:
            if directory.is_dir():
                self.disk.sync_directory(directory)

    def discard(self, paths: Iterable[str]) -> None:
        with host_errors(f"deleting files of {self.url}"):
            for path in paths:
                self.disk.unlink(self.root / path)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        path = self.root / note_path(kind, note)
        with host_errors(f"writing {note_path(kind, note)} of {self.url}"):
            self.refuse_link(path.parent)
            self.disk.make_directory(path.parent, self.root)
            temporary = self._write_scratch(self.scratch / note.partition("-")[0], data)
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

    def is_alive(self, note: str) -> bool | None:
        with host_errors(f"looking at the locks of {self.url}"):
            return is_held(self.scratch / f"{note.partition('-')[0]}.lock")

    def clear_partial(self) -> int:
        """Remove partial downloads, except those of running pulls; returns their size in bytes."""
        return clear_partial(self.root, self.disk)


class DirectoryPush(StagedBlobs, Push):
    """One command's unfinished blobs in a staging directory."""

    def __init__(self, registry: DirectoryRegistry, directory: Path) -> None:
        super().__init__(directory, registry.url, registry.disk)
        self.id = directory.name
        self._registry = registry
        self._placed: set[BlobKey] = set()
        self._relied: set[BlobKey] = set()
        self._partial: dict[Digest, PartialDownload] = {}
        self._fetched: set[Digest] = set()

    def keep_fetched(self) -> None:
        """Keep fetched blobs that arrived whole, though nothing refers to them yet: the next try finds them."""
        with self._lock:
            arrivals = self._fetched & self._staged.keys()
            paths = {digest: self._staged.pop(digest) for digest in arrivals}
        self._give_names({usable_key(digest, self.condemned): path for digest, path in paths.items()})

    def release(self) -> None:
        """Release the partial downloads that this push did not finish."""
        for partial in self._partial.values():
            partial.release()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """Avoid condemned keys. Blobs that an earlier `publish` placed under one are staged again if they are still there."""
        super().avoid(condemned)
        for key in sorted(self._placed & self.condemned):
            self._placed.remove(key)
            with suppress(NotFoundError), self._registry.open_key(key) as source:
                self.put(source, key.digest)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with self._lock:
            staged = set(self._staged)
        return {digest for digest in digests if digest in staged or self._is_present(digest)}

    def _is_present(self, digest: Digest) -> bool:
        """Look under every key that is not condemned: an earlier attempt may have avoided the plain one."""
        usable = [key for key in keys_of(digest) if key not in self.condemned]
        present_key = next(filter(self._registry.has_key, usable), None)
        if present_key is None or not self.damaged.isdisjoint(usable):
            return False
        self._relied.add(present_key)
        return True

    def local_file(self, digest: Digest) -> Path | None:
        present = self._registry.blob_path(digest)
        return self._staged.get(digest) or (present if is_regular(present) else None)

    def fetch(
        self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO], path: Path | None = None
    ) -> int:
        with self._lock:
            self._fetched.add(digest)
            partial = self._partial.get(digest)
        with host_errors(f"writing a blob to {self._url}"):
            if partial is None and size >= MIN_RESUMABLE_BYTES:
                partial = PartialDownload.take(self._registry.root, digest, self._disk)
            if partial is None:
                with open_at(0) as stream:
                    return self.put(stream, digest)[1]
            with self._lock:
                self._partial[digest] = partial
            count = partial.fill(digest, size, open_at)
        self._keep(partial.path, digest)
        return count

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        self.flush()
        self._registry.swap_index(name, index, expected, self.directory)

    def flush(self) -> None:
        with host_errors(f"writing to {self._url}"):
            keys = {usable_key(digest, self.condemned): path for digest, path in self._staged.items()}
            self._staged, relied, self._relied = {}, self._relied - self._placed, set()
            self._give_names(keys, relied)
            self._placed.update(keys)

    def _give_names(self, staged: Mapping[BlobKey, Path], relied: Iterable[BlobKey] = ()) -> None:
        """Make staged blobs durable under their final names, and those that were there already under theirs."""
        root = self._registry.root
        targets = [(path, root / key.path) for key, path in staged.items()]
        for directory in {target.parent for _, target in targets}:
            self._registry.refuse_link(directory)
        self._disk.write_all(targets, root, [root / key.path for key in relied], shared=True)
