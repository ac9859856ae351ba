"""A registry in an object store: any place that can create, compare and swap, list and delete whole objects."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, NoReturn, cast

from onnxreg.registry.store import streams
from onnxreg.registry.store.layout import (
    NOTE,
    BlobKey,
    Kind,
    check_writer,
    index_path,
    keys_of,
    model_of,
    new_identity,
    note_path,
    other_registry,
    read_identity,
    usable_key,
)
from onnxreg.registry.store.protocol import (
    Hasher,
    IndexFile,
    MissingBlobError,
    ObjectStore,
    Push,
    RegistryStore,
    StoredObject,
    TreeFile,
)
from onnxreg.registry.store.streams import HashingReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, LostRaceError, NotFoundError, RemoteError

SPOOL_BYTES = 2 * 2**20
"""An uploaded blob of unknown digest is buffered in memory up to this many bytes, on disk above."""


class ReadOnlyStore(ObjectStore):
    """The writing half of an `ObjectStore`, refused. `description` names the place; `instead` is the hint."""

    description: str
    instead: str

    def create(self, key: str, source: BinaryIO) -> bool:
        self.refuse(f"writing {key}")

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.refuse(f"writing {key}")

    def delete(self, keys: Iterable[str]) -> None:
        self.refuse("deleting")

    def refuse(self, doing: str) -> NoReturn:
        """RemoteError. `doing` completes 'while ...'."""
        raise RemoteError(f"{doing} at {self.url}: {self.description} is only read", self.instead)


class ObjectRegistry(RegistryStore):
    """The registry in an object store; `create` makes one.

    `known_id` is its id if that is known: it is trusted until an index file is read, which is checked against it.
    """

    def __init__(self, store: ObjectStore, known_id: str | None = None) -> None:
        self.store = store
        self._known_id = known_id
        self._known_identity: dict[str, Any] | None = None

    @classmethod
    def open(
        cls, store: ObjectStore, create: bool, mirror_of: str | None = None, known_id: str | None = None
    ) -> "ObjectRegistry":
        """Open the registry; `create` makes one if there is nothing. InputError if something else is there."""
        if create and store.get("registry.json") is None:
            if not store.is_empty() and store.get("registry.json") is None:
                raise InputError(
                    f"{store.url} is not a registry and not empty",
                    "name a registry, or a place with nothing below it",
                )
            return cls.create(store, mirror_of, mirror_of is not None)
        registry = cls(store, known_id)
        registry.check_exists()
        return registry

    @classmethod
    def create(
        cls, store: ObjectStore, registry_id: str | None = None, mirror: bool = False
    ) -> "ObjectRegistry":
        """Open the registry, or make an empty one, which may be a mirror of that with this id."""
        if store.get("registry.json") is None:
            more = {"mirror": True} if mirror else {}
            store.swap("registry.json", new_identity(registry_id, **more), None)
        return cls(store)

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def registry_id(self) -> str:
        return self._known_id or str(self.identity["id"])

    @property
    def identity(self) -> dict[str, Any]:
        """The content of `registry.json`, read once."""
        if self._known_identity is not None:
            return self._known_identity
        stored = self.store.get("registry.json")
        if stored is None:
            hint = "check the URL, or push to make one"
            if self._known_id:
                hint = f"there was one; if it was deleted for good: reg trust reset {self._known_id}"
            raise NotFoundError(f"there is no registry in {self.url}", hint)
        identity = read_identity(stored[0], self.url)
        if self._known_id not in (None, identity["id"]):
            raise other_registry(self.url, identity["id"], str(self._known_id))
        self._known_identity = identity
        return identity

    def blob_url(self, digest: Digest) -> str:
        base_url = self.url.partition("?")[0]
        return f"{base_url.rstrip('/')}/{BlobKey(digest).path}"

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        plain = {BlobKey(digest).path: digest for digest in digests}
        present = self.store.has(plain)
        absent = [digest for path, digest in plain.items() if path not in present]
        return {plain[path] for path in present} | {key.digest for key in self._elsewhere(absent)}

    def _elsewhere(self, digests: Iterable[Digest]) -> list[BlobKey]:
        """The keys of blobs other than their plain keys."""
        keys = {key.path: key for digest in digests for key in keys_of(digest)[1:]}
        return sorted(keys[path] for path in self.store.has(keys)) if keys else []

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        stream = self.store.open(BlobKey(digest).path, start)
        for key in self._elsewhere([digest]) if stream is None else ():
            stream = stream or self.store.open(key.path, start)
        if stream is None:
            raise MissingBlobError(digest, self.url)
        return stream

    def open_key(self, key: BlobKey) -> BinaryIO:
        stream = self.store.open(key.path)
        if stream is None:
            raise MissingBlobError(key.digest, self.url)
        return stream

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        before = (cached.data, cached.token) if cached else None
        stored = self.store.get(index_path(name), before)
        return cached if stored is before else IndexFile(*stored) if stored else None

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(path, cached)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        check_writer(self.identity, self.url)
        return self.store.swap(path, data, expected)

    def names(self) -> Iterator[str]:
        return iter(sorted(self.index_tokens()))

    def index_tokens(self) -> dict[str, str]:
        tokens = {model_of(file.path): file.token for file in self.store.list("index/")}
        return {name: token for name, token in tokens.items() if name is not None}

    def files(self) -> Iterator[TreeFile]:
        return self.store.list("")

    def delete(self, keys: Iterable[BlobKey]) -> None:
        self.store.delete(key.path for key in keys)

    def discard(self, paths: Iterable[str]) -> None:
        self.store.delete(paths)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        self.store.swap(note_path(kind, note), data, None)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        prefix = note_path(kind, "")
        names = [file.path.removeprefix(prefix) for file in self.store.list(prefix)]
        contents = ((name, self.store.get(prefix + name)) for name in names if NOTE.fullmatch(name))
        return {name: value[0] for name, value in contents if value is not None}

    def is_alive(self, note: str) -> bool | None:
        return None

    def confirm(self, name: str) -> None:
        """Do nothing: an object store answers when the write is durable."""

    @contextmanager
    def push(self) -> Iterator["ObjectPush"]:
        """Begin a push. The registry's id is read first: writes must reach the right registry."""
        check_writer(self.identity, self.url)
        yield ObjectPush(self.store)


class ObjectPush(Push):
    """Blobs go up at once, each under the first key that nobody condemned; the index file last."""

    def __init__(self, store: ObjectStore) -> None:
        self.id = secrets.token_hex(8)
        self._store = store

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        keys = {digest: usable_key(digest, self.condemned) for digest in digests}
        paths = {key.path: digest for digest, key in keys.items() if key not in self.damaged}
        return {paths[path] for path in self._store.has(paths)}

    def put(self, source: BinaryIO, expected: Digest | None = None, length: int = 0) -> tuple[Digest, int]:
        """See `Push.put`; `length` as in `HashingReader`."""
        if expected is None or (key := usable_key(expected, self.condemned)) in self.damaged:
            return self._put_spooled(source, expected)
        checked = HashingReader(source, expected, length)
        self._store.create(key.path, cast(BinaryIO, checked))
        return expected, checked.size

    def _put_spooled(
        self, source: BinaryIO, expected: Digest | None, hasher: Hasher | None = None
    ) -> tuple[Digest, int]:
        """The bytes are known before anything is sent."""
        with SpooledTemporaryFile(SPOOL_BYTES) as spool:
            digest, size = streams.pump(source, spool, hasher=hasher)
            if expected is not None:
                streams.check(digest, expected, f"blob {expected}")
            spool.seek(0)
            key = usable_key(digest, self.condemned)
            if key in self.damaged:
                self._store.delete([key.path])
                self.damaged -= {key}
            self._store.create(key.path, cast(BinaryIO, spool))
        return digest, size

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        with path.open("rb") as source:
            return self._put_spooled(source, None, hasher)

    def fetch(
        self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO], path: Path | None = None
    ) -> int:
        with open_at(0) as stream:
            return self.put(stream, digest, size)[1]

    def flush(self) -> None:
        """Blobs are up already."""

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        if not self._store.swap(index_path(name), index, expected):
            raise LostRaceError(f"the index of {name} changed meanwhile")
