"""The files of a registry, which are the same in every store, and the protocols of stores.

registry.json               the registry's id, and the versions of the layout that a reader and a writer must support
blobs/sha256/ab/<64 hex>    every blob by digest; `<64 hex>.<generation>` if a collector had condemned the plain key
index/<name>.jsonl          the one mutable file of a model
policy.jsonl                the registry's own log of policies
search/catalog.jsonl.gz     the published catalog, which answers searches (docs/query.md)
gc/intents/<note>           a push in progress
gc/condemned/<note>         keys that a collector is about to delete

A `RegistryReader` can be read. A `RegistryStore` can also be written. Its files are the objects of an `ObjectStore`,
which can create, list and delete objects, and replace one by compare-and-swap. `MemoryStore` is the reference. The
docstrings of protocols are obligations: `tests/conformance` tests that implementations meet them.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple, NoReturn, Protocol, cast

from msgspec import Meta

from onnxreg.registry.store import streams
from onnxreg.registry.store.streams import Hasher, HashingReader
from onnxreg.registry.system import run_parallel
from onnxreg.schema.core.canonical import Digest, Record, decode_json
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    HostError,
    InputError,
    IntegrityError,
    LostRaceError,
    NotFoundError,
    RemoteError,
    about,
)
from onnxreg.schema.core.ref import POLICY_LOG, REGISTRY_ID, Version, is_name

LAYOUT_VERSION = 1
UPGRADE = "upgrade onnxreg, from where you installed it"
GENERATIONS = 8
"""The number of keys (paths) under which a blob may be stored. Readers try the plain key first, then the others."""
Kind = Literal["intents", "condemned"]
"""A note `intents/...` announces a push. A note `condemned/...` lists keys that a collector is about to delete."""
NOTE = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?")
"""The name of a note: 16 hex digits for the writer. An intent has 16 more digits for the attempt."""
CATALOG = "search/catalog.jsonl.gz"
PROBE = "gc/probe-"  # the prefix of the objects that `bucket.prove` creates and deletes to test a store
SPOOL_BYTES = 2 * 2**20
"""A stream of at most this size is buffered in memory before it is stored, a longer stream on disk."""
OpenAt = Callable[[int], BinaryIO]  # a function that opens a stream over a blob's bytes from an offset
Carried = Mapping[str, frozenset[Version]]  # for each model, the versions whose files an archive contains


class BlobKey(NamedTuple):
    """A path at which a blob may be stored. Generation 0 is the plain path, `blobs/sha256/ab/<64 hex>`."""

    digest: Digest
    generation: int = 0

    @property
    def path(self) -> str:
        return f"{blob_path(self.digest)}{f'.{self.generation}' if self.generation else ''}"

    @classmethod
    def of_path(cls, path: str) -> "BlobKey | None":
        digest, _, generation = path.rpartition("/")[2].partition(".")
        is_generation = generation in ("", *map(str, range(1, GENERATIONS)))
        if not is_generation or not re.fullmatch(r"[0-9a-f]{64}", digest):
            return None
        key = cls(Digest(digest), int(generation or 0))
        return key if key.path == path else None


def blob_path(digest: Digest) -> str:
    return f"blobs/sha256/{digest.hex[:2]}/{digest.hex}"


def keys_of(digest: Digest) -> list[BlobKey]:
    """Return every key that a blob may have, the plain key first."""
    return [BlobKey(digest, generation) for generation in range(GENERATIONS)]


def usable_key(digest: Digest, condemned: Collection[BlobKey]) -> BlobKey:
    """Return a blob's first key that is not condemned. Raises LostRaceError if collectors have condemned all keys."""
    for key in keys_of(digest):
        if key not in condemned:
            return key
    hint = "`reg doctor` names the collectors that never ended"
    raise LostRaceError(f"every key of blob {digest.short}... is condemned by some collector", hint)


def note_path(kind: Kind, note: str) -> str:
    return f"gc/{kind}/{note}"


def index_path(name: str) -> str:
    """Return the path of a model's index file, or of the log of policies if `name` is `POLICY_LOG`."""
    return "policy.jsonl" if name == POLICY_LOG else f"index/{name}.jsonl"


def model_of(path: str) -> str | None:
    name = path[len("index/") : -len(".jsonl")]
    return name if path.startswith("index/") and path.endswith(".jsonl") and is_name(name) else None


WORTHLESS_NAME = (
    r"\.DS_Store|\._.*|\.AppleDouble|Thumbs\.db|desktop\.ini|@eaDir|\.nfs[0-9a-f]+|\.fuse_hidden.*"
)
"""Names of system files that may be deleted: caches, which the system makes again, and leftovers of deleted files."""
_SYSTEM_NAME = (
    rf"{WORTHLESS_NAME}|\.Spotlight-V100|\.Trashes|\.fseventsd|System Volume Information|\$RECYCLE\.BIN|#recycle"
    r"|[.#]snapshot|lost\+found|\.Trash-\d+|\.git.*|\.st(folder|ignore|versions)|\.dropbox.*"
)


def is_system_path(path: str, name: str = _SYSTEM_NAME) -> bool:
    """True for a file that a system or a tool (Finder, Explorer, a NAS, NFS, FUSE, git) writes into any folder."""
    return any(re.fullmatch(name, part, re.IGNORECASE) for part in path.split("/"))


class Identity(Record, frozen=True):
    """The content of `registry.json`: the registry's id, and the layouts that readers and writers must support."""

    id: Annotated[str, Meta(pattern=rf"\A{REGISTRY_ID.pattern}\Z")]
    layout: Literal["onnxreg"]
    min_reader: int
    min_writer: int = LAYOUT_VERSION
    mirror: bool = False


def new_identity(registry_id: str | None = None, mirror: bool = False) -> bytes:
    """Return the bytes of a new `registry.json`, by default with a random id."""
    value = {
        "id": registry_id or os.urandom(16).hex(),
        "layout": "onnxreg",
        **dict.fromkeys(("layout_version", "min_reader", "min_writer"), LAYOUT_VERSION),
        **({"mirror": True} if mirror else {}),
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def other_registry(url: str, actual_id: str, known_id: str) -> IntegrityError:
    problem = f"{url} holds another registry than before: id {actual_id[:12]}..., was {known_id[:12]}..."
    return IntegrityError(problem, f"find out who changed it; if that is meant: reg trust reset {known_id}")


def read_identity(data: bytes, url: str) -> Identity:
    """Decode `registry.json`. Raises HostError if this build is too old, IntegrityError if the file is damaged."""
    hint = "restore it from a backup, or copy a mirror's and write false for its `mirror`"
    with about(f"registry.json of {url} is damaged", IntegrityError, hint):
        identity = decode_json(data, Identity, "it")
    if identity.min_reader > LAYOUT_VERSION:
        message = f"{url} has layout {identity.min_reader}, this onnxreg reads up to {LAYOUT_VERSION}"
        raise HostError(message, UPGRADE)
    return identity


def check_writer(identity: Identity, url: str) -> None:
    """Raise HostError if this build is too old to write to the registry."""
    if identity.min_writer > LAYOUT_VERSION:
        raise HostError(f"{url} is written by a newer onnxreg only", UPGRADE)


class StoredObject(NamedTuple):
    """The bytes of a small object, such as an index file, and a token: a text that changes with the bytes."""

    data: bytes
    token: str


class MissingBlobError(NotFoundError):
    """A document names a blob that is absent: the blob was lost, or deleted after the document was read."""

    def __init__(self, digest: Digest, location: str) -> None:
        super().__init__(f"blob {digest} is not in {location}", VERIFY_ADVICE)


class UnlistedError(RemoteError):
    """The store cannot list its files. It can only read files by name."""


class TreeFile(NamedTuple):
    """A file of the tree: path, size in bytes (None: not a regular file) and token ("": unknown)."""

    path: str
    size: int | None
    token: str = ""


class BlobReader(Protocol):
    """Reads blobs. The bytes are not checked. The caller must compare the digest."""

    url: str
    """The URL or path as users write it, without secrets."""

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return the digests whose blobs are present. One call for many digests is faster than many calls."""

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open a blob from an offset on. The caller closes the stream. Raises MissingBlobError if it is absent."""


class RegistryReader(BlobReader, Protocol):
    """A registry to read from."""

    carried: Carried | None = None
    """The versions whose files this registry has, or None if it has the files of all versions."""

    @property
    def location(self) -> str:
        """A text that identifies the place of the registry, such as the URL or an absolute path."""
        return self.url

    @property
    def registry_id(self) -> str:
        """The registry's id: 32 random hex digits, made once. Raises NotFoundError if there is no registry."""

    @property
    def is_mirror(self) -> bool:
        """True for an exact copy of another registry, with the same id. Events are never added to a mirror itself."""

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        """Return a model's current index file, or `cached` if it is still current. Return None for an unknown model."""

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        """Return a small file of the tree, such as the catalog, or None if it is absent.

        `cached` is an earlier result, or only its token with empty bytes. It may be returned if the file has not
        changed. Without `cached`, the newest file is read, never a copy in a web cache or an older commit.
        """
        return None

    def names(self) -> Iterator[str]:
        """List the sorted names of all models. Raises UnlistedError if the store cannot list its files."""

    def index_tokens(self) -> dict[str, str]:
        """Return the token of each model's index file. It changes with the file. "" means that the store has none."""
        return dict.fromkeys(self.names(), "")

    def blob_url(self, digest: Digest) -> str:
        """Return the URL of a blob. In a remote, it is the URL of the plain key, even if the blob has another key."""


class ReaderWrapper(RegistryReader):
    """A registry reader that forwards its calls to the reader `source`. Subclasses cache, check or count reads."""

    def __init__(self, source: RegistryReader) -> None:
        self.source, self.url = source, source.url

    @property
    def registry_id(self) -> str:
        return self.source.registry_id

    @property
    def is_mirror(self) -> bool:
        return self.source.is_mirror

    def names(self) -> Iterator[str]:
        return self.source.names()

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
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
    if isinstance(reader, ReaderWrapper):
        yield from layers(reader.source)


def innermost(reader: RegistryReader) -> RegistryReader:
    return list(layers(reader))[-1]


class Sink(Protocol):
    """A place that takes blobs from another store."""

    def local_file(self, digest: Digest) -> Path | None:
        """Return the path of a file on this machine with the blob's bytes, or None if there is no such file."""
        return None

    def fetch(self, digest: Digest, size: int, open_at: OpenAt, path: Path | None = None) -> int:
        """Copy a blob from another store, and return its size in bytes. An interrupted download may be resumed.

        `size` is the expected size in bytes. If the other store is on this machine, `path` is the blob's file in that
        store. The sink may read this file even after `fetch`, so nobody may change it.
        """


class Push(Sink, Protocol):
    """Adds blobs to a registry, then an index file.

    A blob is never visible in part. It is visible when `publish` returns, and may be visible earlier. If a push ends
    without `publish`, whole blobs may remain, but no partial blobs and no temporary files.
    """

    id: str
    """The id of the writer: 16 random hex digits. The names of the writer's notes begin with this id."""

    condemned: frozenset[BlobKey] = frozenset()
    damaged: frozenset[BlobKey] = frozenset()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """Treat these keys as empty from now on, and write nothing to them, because a collector may delete them."""
        self.condemned = frozenset(condemned)

    def distrust(self, keys: Collection[BlobKey]) -> None:
        """Treat the blobs under these keys as damaged: `has` ignores them, and `put` replaces them."""
        self.damaged = frozenset(keys)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return the digests that need not be put: those put before, and those with a key that is not condemned."""

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        """Store a stream, and return its digest and its size in bytes. Several threads may call `put`.

        If the bytes do not have the digest `expected`, raise IntegrityError and store nothing.
        """

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """Store a file as `put` does. The file may be moved instead of copied. `hasher` also receives the bytes."""

    def flush(self) -> None:
        """Make all blobs from earlier calls of `put` durable and visible. Each blob must already be in a log."""

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """Make durable all blobs that were put up to now, then replace the model's index file.

        When `publish` returns, the blobs and the index file survive a power cut. `expected` is the token of the index
        file that the caller read, or None if there was none. If another writer has changed the file since, raise
        LostRaceError and do not replace it. `publish` may be called again with new bytes.
        """


class ObjectStore(Protocol):
    """A store of objects by key. Each method is atomic and consistent for each key. Threads may share a store."""

    url: str

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        """Return a small object with its token, or `cached` if it has not changed. Return None if it is absent."""

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        """Open an object at an offset, or return None if it is absent. A read returns as many bytes as requested."""

    def has(self, keys: Iterable[str]) -> set[str]:
        """Return the keys whose objects exist."""
        key_list = list(keys)
        present = run_parallel(self.exists, key_list)
        return {key for key, is_present in zip(key_list, present, strict=True) if is_present}

    def exists(self, key: str) -> bool:
        return bool(self.has([key]))

    def create(self, key: str, source: BinaryIO) -> bool:
        """Write a new object. If the object exists, write nothing and return False.

        There is one exception: a large blob that exists may be overwritten with the same bytes. The object becomes
        visible only when `source` was read to its end. If reading fails, nothing is written.
        """
        return self.swap(key, source.read(), None)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        """Replace a small object if its token is `expected` (None: it does not exist). Return True on success.

        The result is right even if a server did the swap but its answer was lost.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, and ignore missing ones. When `delete` returns, no deletion is in progress any more."""

    def list(self, prefix: str) -> Iterator[TreeFile]:
        """List the objects below a prefix, sorted by key. The prefix ends with a slash or is empty."""

    def is_empty(self) -> bool:
        """True if the store has no objects, except objects of a trial (`PROBE`)."""
        return all(file.path.startswith(PROBE) for file in self.list(""))


class MemoryStore(ObjectStore):
    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        data = self.objects.get(key)
        return None if data is None else StoredObject(data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        data = self.objects.get(key)
        return None if data is None else BytesIO(data[start:])

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self.objects}

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        with self._lock:
            current = self.get(key)
            if (current.token if current else None) != expected:
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
    """An `ObjectStore` that refuses to write. The error has `description` in its message, and `instead` as its hint."""

    description: str
    instead: str

    def create(self, key: str, source: BinaryIO) -> bool:
        self.refuse(f"writing {key}")

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.refuse(f"writing {key}")

    def delete(self, keys: Iterable[str]) -> None:
        self.refuse("deleting")

    def refuse(self, doing: str) -> NoReturn:
        """Raise RemoteError. `doing` is the start of the message, such as "deleting"."""
        raise RemoteError(f"{doing} at {self.url}: {self.description} is only read", self.instead)


class RegistryStore(RegistryReader):
    """A registry, local or remote, whose files are in an object store. It can be read and written.

    `known_id` is the registry's id, if the caller knows it. Then `registry.json` is not read until another of its
    fields is needed.
    """

    note_kinds: Collection[Kind] = ("intents", "condemned")  # that this store keeps

    def __init__(self, store: ObjectStore, known_id: str | None = None) -> None:
        self.store, self.url = store, store.url
        self._known_id = known_id
        self._identity: Identity | None = None

    @property
    def registry_id(self) -> str:
        return self._known_id or self.identity.id

    @property
    def is_mirror(self) -> bool:
        return self.identity.mirror

    @property
    def identity(self) -> Identity:
        """The content of `registry.json`, which is read once. Raises NotFoundError if there is no registry."""
        if self._identity is not None:  # cached_property would lock all registries meanwhile
            return self._identity
        stored = self.store.get("registry.json")
        if stored is None:
            hint = "check the path or URL; `reg add` and `reg export` make one here, `reg push` elsewhere"
            if self._known_id:
                hint = f"there was one; if it was deleted for good: reg trust reset {self._known_id}"
            raise NotFoundError(f"there is no registry in {self.url}", hint)
        identity = read_identity(stored.data, self.url)
        if self._known_id not in (None, identity.id):
            raise other_registry(self.url, identity.id, str(self._known_id))
        self._identity = identity
        return identity

    def check_exists(self) -> None:
        """Raise NotFoundError if the registry is missing. If the id is already known, this does nothing."""
        _ = self.registry_id

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        plain = {BlobKey(digest).path: digest for digest in digests}
        present = {plain[path] for path in self.store.has(plain)}
        return present | {key.digest for key in self._elsewhere({*plain.values()} - present)}

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
        """Open the blob under exactly this key. Raises MissingBlobError if there is none."""
        stream = self.store.open(key.path)
        if stream is None:
            raise MissingBlobError(key.digest, self.url)
        return stream

    def blob_url(self, digest: Digest) -> str:
        return f"{self.url.partition('?')[0].rstrip('/')}/{BlobKey(digest).path}"

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(index_path(name), cached)

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(path, cached)

    def names(self) -> Iterator[str]:
        return iter(sorted(self.index_tokens()))

    def index_tokens(self) -> dict[str, str]:
        files = (file for file in self.store.list("index/") if file.size is not None)
        return {name: file.token for file in files if (name := model_of(file.path)) is not None}

    def files(self) -> Iterator[TreeFile]:
        """List the files of the tree, except `local/`. Raises UnlistedError if the store cannot list."""
        return self.store.list("")

    @contextmanager
    def push(self) -> Iterator[Push]:
        """A context with a push to this registry. Raises HostError if this build is too old to write to it."""
        check_writer(self.identity, self.url)
        yield ObjectPush(self.store)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        """Replace a small file of the tree durably, under the rules of `ObjectStore.swap`."""
        check_writer(self.identity, self.url)
        return self.store.swap(path, data, expected)

    def confirm(self, name: str) -> None:
        """Make a model's current index file durable, even if another process wrote it. By default, do nothing."""

    def delete(self, paths: Iterable[str]) -> None:
        self.store.delete(paths)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        """Write a note. From then on, pushers and collectors see it."""
        if kind in self.note_kinds:
            self.store.swap(note_path(kind, note), data, None)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        """Return the contents of the notes of a kind, by name. A note that comes or goes meanwhile may be absent."""
        prefix = note_path(kind, "")
        files = self.store.list(prefix) if kind in self.note_kinds else ()
        names = [file.path.removeprefix(prefix) for file in files]
        contents = ((name, self.store.get(prefix + name)) for name in names if NOTE.fullmatch(name))
        return {name: note.data for name, note in contents if note is not None}

    def remove_note(self, kind: Kind, note: str) -> None:
        if kind in self.note_kinds:
            self.store.delete([note_path(kind, note)])

    def is_alive(self, note: str) -> bool | None:
        """True if the process that wrote a note still runs, False if it certainly ended, None if this is unknown."""
        return None


def create_registry(
    store: ObjectStore, registry_id: str | None = None, mirror: bool = False
) -> RegistryStore:
    """Open the registry in a store. If it is missing, create it with this id (default: random)."""
    store.swap("registry.json", new_identity(registry_id, mirror), None)
    return RegistryStore(store)


def open_registry(
    store: ObjectStore, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> RegistryStore:
    """Open the registry in a store. If `create` is set and the store is empty, create the registry.

    Raises InputError if the store has other files.
    """
    if create and store.get("registry.json") is None:
        if not store.is_empty() and store.get("registry.json") is None:
            hint = "name a registry, or a place with nothing below it"
            raise InputError(f"{store.url} is not a registry and not empty", hint)
        return create_registry(store, mirror_of, mirror_of is not None)
    registry = RegistryStore(store, known_id)
    registry.check_exists()
    return registry


class ObjectPush(Push):
    def __init__(self, store: ObjectStore) -> None:
        self.id = os.urandom(8).hex()
        self._store = store

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        keys = {digest: usable_key(digest, self.condemned) for digest in digests}
        paths = {key.path: digest for digest, key in keys.items() if key not in self.damaged}
        return {paths[path] for path in self._store.has(paths)}

    def put(self, source: BinaryIO, expected: Digest | None = None, length: int = 0) -> tuple[Digest, int]:
        """Store a blob as `Push.put` does. `length` is the size in bytes, or 0 if it is unknown."""
        if expected is None or (key := usable_key(expected, self.condemned)) in self.damaged:
            return self._put_spooled(source, expected)
        checked = HashingReader(source, expected, length)
        self._store.create(key.path, cast(BinaryIO, checked))
        return expected, checked.size

    def _put_spooled(
        self, source: BinaryIO, expected: Digest | None, hasher: Hasher | None = None
    ) -> tuple[Digest, int]:
        from tempfile import SpooledTemporaryFile

        with SpooledTemporaryFile(SPOOL_BYTES) as spool:
            digest, size = streams.pump(source, cast(BinaryIO, spool), hasher=hasher)
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

    def fetch(self, digest: Digest, size: int, open_at: OpenAt, path: Path | None = None) -> int:
        with open_at(0) as stream:
            return self.put(stream, digest, size)[1]

    def flush(self) -> None:
        """Do nothing: `put` has uploaded the blobs already."""

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        if not self._store.swap(index_path(name), index, expected):
            raise LostRaceError(f"the index of {name} changed meanwhile")
