"""Readers and stores: `RegistryReader` is a place to read, `RegistryStore` one to write, made from an `ObjectStore`, any
place that can create, compare and swap, list and delete whole objects. `MemoryStore` is its reference.

The docstrings of protocols are the obligations of an implementation (`tests/conformance` tries them). `layout` is the tree
of files that each place keeps.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol, cast

from onnxreg.registry.store import streams
from onnxreg.registry.store.layout import (
    NOTE,
    PROBE,
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
from onnxreg.registry.store.streams import Hasher, HashingReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, InputError, LostRaceError, NotFoundError, RemoteError
from onnxreg.schema.core.ref import Version

SPOOL_BYTES = 2 * 2**20
"""An uploaded blob of unknown digest is buffered in memory up to this many bytes, on disk above."""
StoredObject = tuple[bytes, str]
"""A small object's bytes and its token."""
Carried = Mapping[str, frozenset[Version]]
"""The versions, by model, whose files an archive has."""


class IndexFile(NamedTuple):
    """The bytes of an index file, and the token that a swap must bring to replace exactly these bytes."""

    data: bytes
    token: str


class MissingBlobError(NotFoundError):
    """A blob that some document named is not there: lost, or freed since the document was read."""

    def __init__(self, digest: Digest, location: str) -> None:
        super().__init__(f"blob {digest} is not in {location}", VERIFY_ADVICE)


class UnlistedError(RemoteError):
    """A store cannot list its files; it serves only files that are requested by name."""


class TreeFile(NamedTuple):
    """A file of the tree: its path, its size in bytes (None: no regular file), its token ("": not known)."""

    path: str
    size: int | None
    token: str = ""


class BlobReader(Protocol):
    """Read blobs. Bytes are returned as they are stored: the caller checks the digest."""

    @property
    def url(self) -> str:
        """The URL or path as people write it; without secrets."""

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of these blobs that are present: one answer for all of them, not one request each."""

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open a stream over the blob's bytes from an offset; the caller closes it. MissingBlobError if it is absent."""


class RegistryReader(BlobReader, Protocol):
    """A registry to read from."""

    carried: Carried | None = None
    """The versions whose files it has; None if it has them all."""

    @property
    def location(self) -> str:
        """The identity of the place, if the URL does not say enough."""
        return self.url

    @property
    def registry_id(self) -> str:
        """32 hex digits, random, made once. NotFoundError if there is no registry."""

    @property
    def is_mirror(self) -> bool:
        """True if it is a verbatim copy of the registry with its id: no event is made in it."""

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """A model's index file as it is now, or `cached` if it is that still; None if the model is unknown."""

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file past caches in between, and past a commit that was pinned before."""
        return self.read_index(name)

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        """A small file of the tree, such as the catalog, and the token for its next swap; None if it is absent.

        `cached` is an earlier result, or its token without the bytes, which may be returned again if the file has not
        changed. None means: as it is now, past caches in between and pinned commits.
        """
        return None

    def names(self) -> Iterator[str]:
        """List every model's name, sorted. Never called on the way to one model. UnlistedError if the store cannot list."""

    def index_tokens(self) -> dict[str, str]:
        """A token of each model's index file that changes with the file; "" if the store knows none."""
        return dict.fromkeys(self.names(), "")

    def blob_url(self, digest: Digest) -> str:
        """The URL from which any HTTP client can fetch the blob."""


class ReaderWrapper(RegistryReader):
    """A registry reader that forwards every call to `source`; subclasses override some, to cache, check or count."""

    def __init__(self, source: RegistryReader) -> None:
        self.source = source

    @property
    def url(self) -> str:
        return self.source.url

    @property
    def registry_id(self) -> str:
        return self.source.registry_id

    @property
    def is_mirror(self) -> bool:
        return self.source.is_mirror

    def names(self) -> Iterator[str]:
        return self.source.names()

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        return self.source.read_index(name, cached)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self.source.has(digests)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self.source.open_blob(digest, start)

    def blob_url(self, digest: Digest) -> str:
        return self.source.blob_url(digest)


def layers(reader: RegistryReader) -> Iterator[RegistryReader]:
    """Yield a reader, then each reader that it wraps."""
    yield reader
    if isinstance(reader, ReaderWrapper) and reader.source is not reader:
        yield from layers(reader.source)


def innermost(reader: RegistryReader) -> RegistryReader:
    """Return the registry behind all wrappers of a reader."""
    return list(layers(reader))[-1]


class Push(Protocol):
    """One writer's unit of work. Blobs put here become visible with `publish` at the latest, never half-written.

    Leaving the context without `publish` may leave whole blobs behind, never partial ones nor temporary files.
    """

    id: str
    """16 hex digits, random: who writes. The names of its notes begin with it."""

    condemned: frozenset[BlobKey] = frozenset()
    damaged: frozenset[BlobKey] = frozenset()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """From now on these keys do not count as present, and nothing is written to them."""
        self.condemned = frozenset(condemned)

    def distrust(self, keys: Collection[BlobKey]) -> None:
        """Treat the blobs under these keys as damaged: they do not count as present, and `put` replaces them."""
        self.damaged = frozenset(keys)

    def local_file(self, digest: Digest) -> Path | None:
        """The file on this machine of a blob that is in the registry, or was put before; None if it is elsewhere."""
        return None

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return the blobs that the push need not bring: put before, or present under the key that it would write to."""

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        """Store the stream's bytes, hashing them as they pass; returns digest and size in bytes.

        May be called from several threads, and again with bytes that are there already. IntegrityError if the
        bytes are not the expected ones; then nothing of them stays.
        """

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """See `put`; a file that the caller gives up may be moved. A given `hasher` receives the bytes as they pass."""

    def fetch(
        self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO], path: Path | None = None
    ) -> int:
        """Store a blob from another store; returns its size in bytes. See `put`. A push that was cut off may go on.

        Args:
            size: in bytes, as some document states it.
            open_at: opens a stream over the bytes from an offset on; raises IntegrityError if there are too many.
            path: the blob's file, which nobody changes, if it is on this machine.
        """

    def flush(self) -> None:
        """Make every blob put so far durable and visible. Only for blobs that some log refers to already."""

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """Make every blob put so far durable, then replace the model's index file.

        `expected` is the token of the index file that was read (None: there was none). LostRaceError if it is
        another by now: then the index is as the winner left it, and `publish` may be called again with new bytes.
        When this returns, all of it survives a power cut.
        """


class ObjectStore(Protocol):
    """A store of objects below a registry. Each method is one atomic step for each key, strongly consistent, and may be
    called from several threads.
    """

    url: str
    """The URL as people write it; without secrets."""

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        """A small object and the token for its next swap, or `cached` if it has not changed; None if it is absent."""

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        """A stream over an object from an offset on; None if it is absent. It reads as much as is asked for."""

    def has(self, keys: Iterable[str]) -> set[str]:
        """Return the keys of those objects that exist."""

    def create(self, key: str, source: BinaryIO) -> bool:
        """Write a new object; False, and nothing is written, if it exists.

        The source is read to its end before anything is visible, and errors of reading are raised: then nothing is
        written. A large blob may replace one with equal bytes.
        """
        return self.swap(key, source.read(), None)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        """Replace an object by a small one if its token is the expected one (None: absent); False if it is not.

        A lost response is not a lost race: this returns True if and only if our bytes were written.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored. When this returns, no delete is under way any more."""

    def list(self, prefix: str) -> Iterator[TreeFile]:
        """The objects below a prefix, which ends with a slash or is empty, sorted."""

    def is_empty(self) -> bool:
        """True if there is no object. Scratch of probes does not count."""
        return all(file.path.startswith(PROBE) for file in self.list(""))


class MemoryStore(ObjectStore):
    """Objects by key, which live as long as this Python object."""

    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        data = self.objects.get(key)
        return None if data is None else (data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        data = self.objects.get(key)
        return None if data is None else BytesIO(data[start:])

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self.objects}

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        with self._lock:
            current = self.get(key)
            if (current[1] if current else None) != expected:
                return False
            self.objects[key] = data
            return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[TreeFile]:
        below = sorted(item for item in self.objects.copy().items() if item[0].startswith(prefix))
        return (TreeFile(key, len(data), Digest.of(data).hex) for key, data in below)


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


class RegistryStore(RegistryReader):
    """A registry, here or elsewhere, to read and write: the files of `layout` in an object store.

    By its notes pushers and collectors see each other, see `docs/format.md`. `known_id` is its id if that is known: it is
    trusted until an index file is read, which is checked against it.
    """

    def __init__(self, store: ObjectStore, known_id: str | None = None) -> None:
        self.store = store
        self._known_id = known_id
        self._identity: dict[str, Any] | None = None

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def registry_id(self) -> str:
        return self._known_id or str(self.identity["id"])

    @property
    def is_mirror(self) -> bool:
        return self.identity.get("mirror") is True

    @property
    def identity(self) -> dict[str, Any]:
        """The content of `registry.json`, read once. NotFoundError if there is no registry."""
        if self._identity is not None:  # cached_property would hold a lock of all registries meanwhile
            return self._identity
        stored = self.store.get("registry.json")
        if stored is None:
            hint = "check the path or URL; `reg add`, `reg export`, `reg pull` and a push make a new one"
            if self._known_id:
                hint = f"there was one; if it was deleted for good: reg trust reset {self._known_id}"
            raise NotFoundError(f"there is no registry in {self.url}", hint)
        identity = read_identity(stored[0], self.url)
        if self._known_id not in (None, identity["id"]):
            raise other_registry(self.url, identity["id"], str(self._known_id))
        self._identity = identity
        return identity

    def check_exists(self) -> None:
        """Read which registry this is. NotFoundError if there is none."""
        _ = self.registry_id

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        plain = {BlobKey(digest).path: digest for digest in digests}
        present = self.store.has(plain)
        absent = [digest for path, digest in plain.items() if path not in present]
        return {plain[path] for path in present} | {key.digest for key in self._elsewhere(absent)}

    def _elsewhere(self, digests: Iterable[Digest]) -> list[BlobKey]:
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
        """Open a stream over the blob under exactly this key. MissingBlobError if there is none."""
        stream = self.store.open(key.path)
        if stream is None:
            raise MissingBlobError(key.digest, self.url)
        return stream

    def blob_url(self, digest: Digest) -> str:
        return f"{self.url.partition('?')[0].rstrip('/')}/{BlobKey(digest).path}"

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        before = (cached.data, cached.token) if cached else None
        stored = self.store.get(index_path(name), before)
        return cached if stored is before else IndexFile(*stored) if stored else None

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(path, cached)

    def names(self) -> Iterator[str]:
        return iter(sorted(self.index_tokens()))

    def index_tokens(self) -> dict[str, str]:
        files = (file for file in self.store.list("index/") if file.size is not None)
        return {name: file.token for file in files if (name := model_of(file.path)) is not None}

    def files(self) -> Iterator[TreeFile]:
        """List every file of the tree except `local/`, which belongs to this machine. UnlistedError if it cannot list."""
        return self.store.list("")

    @contextmanager
    def push(self) -> Iterator[Push]:
        """Begin a unit of work. The registry's id is read first: writes must reach the right registry."""
        check_writer(self.identity, self.url)
        yield ObjectPush(self.store)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        """Replace a small file if its token is the expected one (None: absent), durably; False if it is not."""
        check_writer(self.identity, self.url)
        return self.store.swap(path, data, expected)

    def confirm(self, name: str) -> None:
        """Make the present index of a model durable, also if another process wrote it. An object store did so already."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are ignored. When this returns, no delete is under way any more."""
        self.store.delete(paths)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        """Leave a note, visible to every reader of notes after this returns."""
        self.store.swap(note_path(kind, note), data, None)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        """Every note of a kind that was left before this was called and is not removed meanwhile."""
        prefix = note_path(kind, "")
        names = [file.path.removeprefix(prefix) for file in self.store.list(prefix)]
        contents = ((name, self.store.get(prefix + name)) for name in names if NOTE.fullmatch(name))
        return {name: value[0] for name, value in contents if value is not None}

    def remove_note(self, kind: Kind, note: str) -> None:
        """Remove a note; nothing happens if it is gone."""
        self.store.delete([note_path(kind, note)])

    def is_alive(self, note: str) -> bool | None:
        """True if the process that left a note still runs; None if the store cannot know. False is certain."""
        return None


def create_registry(
    store: ObjectStore, registry_id: str | None = None, mirror: bool = False
) -> RegistryStore:
    """Open the registry in a store, or make an empty one, which may be a mirror of that with this id."""
    if store.get("registry.json") is None:
        store.swap("registry.json", new_identity(registry_id, mirror), None)
    return RegistryStore(store)


def open_registry(
    store: ObjectStore, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> RegistryStore:
    """Open the registry in a store; `create` makes one if there is nothing. InputError if something else is there."""
    if create and store.get("registry.json") is None:
        if not store.is_empty() and store.get("registry.json") is None:
            hint = "name a registry, or a place with nothing below it"
            raise InputError(f"{store.url} is not a registry and not empty", hint)
        return create_registry(store, mirror_of, mirror_of is not None)
    registry = RegistryStore(store, known_id)
    registry.check_exists()
    return registry


def memory_remote(
    registry_id: str | None = None, url: str = "memory:", mirror: bool = False
) -> RegistryStore:
    """A fresh registry in memory; see `create_registry`."""
    return create_registry(MemoryStore(url), registry_id, mirror)


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
