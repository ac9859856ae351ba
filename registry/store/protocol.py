"""Protocols of a registry's place: `RegistryReader`, `RegistryStore`, `Push`; and `ObjectStore`, from which `object_store`
makes a registry. Their docstrings are the obligations of an implementation (`tests/conformance` tries them).

`layout` is the tree of files that each place keeps.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from onnxreg.registry.store.layout import PROBE, BlobKey, Kind, note_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, NotFoundError, RemoteError
from onnxreg.schema.core.ref import Version

CHUNK_BYTES = 1024 * 1024
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


class Hasher(Protocol):
    """The part of a `hashlib.sha256()` object that is used here."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class BlobReader(Protocol):
    """Read blobs. Bytes are returned as they are stored: the caller checks the digest."""

    @property
    def url(self) -> str:
        """The URL or path as people write it; without secrets."""
        ...

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of these blobs that are present: one answer for all of them, not one request each."""
        ...

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open a stream over the blob's bytes from an offset; the caller closes it. MissingBlobError if it is absent."""
        ...


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
        ...

    @property
    def is_mirror(self) -> bool:
        """True if it is a verbatim copy of the registry with its id: no event is made in it."""
        ...

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """A model's index file as it is now; None if the model is unknown.

        `cached` is the file as read before: if it has not changed, a store may return it instead of sending it again.
        """
        ...

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file past caches in between, and past a commit that was pinned before."""
        return self.read_index(name)

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        """A small file of the tree, such as the catalog, and the token for its next swap; None if it is absent.

        `cached` is an earlier result, which may be returned again if the file has not changed; it may be a token
        without the bytes. At a store with caches in between, or that reads at a pinned commit, `cached` None means:
        as it is now.
        """
        return None

    def names(self) -> Iterator[str]:
        """List every model's name, sorted. Never called on the way to one model. UnlistedError if the store cannot list."""
        ...

    def index_tokens(self) -> dict[str, str]:
        """A token of each model's index file that changes with the file; "" if the store knows none."""
        return dict.fromkeys(self.names(), "")

    def blob_url(self, digest: Digest) -> str:
        """The URL from which any HTTP client can fetch the blob."""
        ...


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
        ...

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        """Store the stream's bytes, hashing them as they pass; returns digest and size in bytes.

        May be called from several threads, and again with bytes that are there already. IntegrityError if the
        bytes are not the expected ones; then nothing of them stays.
        """
        ...

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """Store a file that the caller gives up: it may be moved, and is gone or unchanged afterwards. See `put`.

        A given `hasher` receives the bytes as they pass.
        """
        ...

    def fetch(
        self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO], path: Path | None = None
    ) -> int:
        """Store a blob from another store; returns its size in bytes. See `put`. A push that was cut off may go on.

        Args:
            size: in bytes, as some document states it.
            open_at: opens a stream over the bytes from an offset on; raises IntegrityError if there are too many.
            path: the blob's file, which nobody changes, if it is on this machine.
        """
        ...

    def flush(self) -> None:
        """Make every blob put so far durable and visible. Only for blobs that some log refers to already."""
        ...

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """Make every blob put so far durable, then replace the model's index file.

        `expected` is the token of the index file that was read (None: there was none). LostRaceError if it is
        another by now: then the index is as the winner left it, and `publish` may be called again with new bytes.
        When this returns, all of it survives a power cut.
        """
        ...


class RegistryStore(RegistryReader, Protocol):
    """A registry, here or elsewhere, to read and write.

    Its notes are small files by which pushers and collectors see each other; see `docs/format.md`. Its files can be
    listed, and blobs deleted, for the collector, verify and the doctor alone.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """The content of `registry.json`, read once. NotFoundError if there is no registry."""
        ...

    @property
    def registry_id(self) -> str:
        return str(self.identity["id"])

    @property
    def is_mirror(self) -> bool:
        return self.identity.get("mirror") is True

    def check_exists(self) -> None:
        """Read which registry this is. NotFoundError if there is none."""
        _ = self.registry_id

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        """Replace a small file if its token is the expected one (None: absent), durably; False if it is not."""
        ...

    def push(self) -> AbstractContextManager[Push]:
        """Begin a unit of work."""
        ...

    def confirm(self, name: str) -> None:
        """Make the present index of a model durable, also if another process wrote it."""
        ...

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        """Leave a note, visible to every reader of notes after this returns."""
        ...

    def notes(self, kind: Kind) -> dict[str, bytes]:
        """Every note of a kind that was left before this was called and is not removed meanwhile."""
        ...

    def remove_note(self, kind: Kind, note: str) -> None:
        """Remove a note; nothing happens if it is gone."""
        self.discard([note_path(kind, note)])

    def is_alive(self, note: str) -> bool | None:
        """True if the process that left a note still runs; None if the store cannot know. False is certain."""
        ...

    def files(self) -> Iterator[TreeFile]:
        """List every file of the tree except `local/`, which belongs to this machine. UnlistedError if it cannot list."""
        ...

    def open_key(self, key: BlobKey) -> BinaryIO:
        """Open a stream over the blob under exactly this key. MissingBlobError if there is none."""
        ...

    def delete(self, keys: Iterable[BlobKey]) -> None:
        """Delete blobs; missing keys are ignored. When this returns, no delete is under way any more."""
        ...

    def discard(self, paths: Iterable[str]) -> None:
        """Delete files that do not belong to the registry; missing files are ignored. For the doctor only."""
        ...


class ObjectStore(Protocol):
    """A store of objects below a registry. Each method is one atomic step for each key, strongly consistent, and may be
    called from several threads.
    """

    url: str
    """The URL as people write it; without secrets."""

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        """A small object and the token that a swap must bring to replace it; None if it is absent.

        `cached` is an earlier result: it may be returned again, without a transfer, if the object has not changed.
        """
        ...

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        """A stream over an object from an offset on; None if it is absent. It reads as much as is asked for."""
        ...

    def has(self, keys: Iterable[str]) -> set[str]:
        """Return the keys of those objects that exist."""
        ...

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
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored. When this returns, no delete is under way any more."""
        ...

    def list(self, prefix: str) -> Iterator[TreeFile]:
        """The objects below a prefix, which ends with a slash or is empty, sorted."""
        ...

    def is_empty(self) -> bool:
        """True if there is no object. Scratch of probes does not count."""
        return all(file.path.startswith(PROBE) for file in self.list(""))
