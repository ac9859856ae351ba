"""What a place that holds a registry must be able to do, as protocols; `layout` is the tree of files that each keeps."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

from onnxreg.registry.store.layout import BlobKey, Kind
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import EXTENT, NotFoundError, RemoteError

CHUNK = 1024 * 1024
MAX_DOCUMENT = 64 * 2**20
"""An index file, or another document that is read at once, with more bytes than this is refused."""


class IndexFile(NamedTuple):
    """The bytes of an index file, and the token that a swap must bring to replace exactly these bytes."""

    data: bytes
    token: str


class MissingBlobError(NotFoundError):
    """A blob that some document named is not there: lost, or freed since the document was read."""

    def __init__(self, digest: Digest, where: str) -> None:
        super().__init__(f"blob {digest} is not in {where}", EXTENT)


class UnlistedError(RemoteError):
    """A place does not tell which files it has: only what is asked for by name is to be had there."""


class TreeFile(NamedTuple):
    """A file of the tree: its path there and its size in bytes, None where it is no regular file."""

    path: str
    size: int | None


class Hasher(Protocol):
    """What `hashlib.sha256()` gives, as far as it is used here."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class Piece(NamedTuple):
    """A part of a blob, from one offset up to another."""

    start: int
    stop: int
    digest: Digest


class BlobReader(Protocol):
    """Reads blobs. Bytes are handed out as they lie there: whoever reads them checks the digest."""

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Which of these blobs are present. One answer for all of them, not one request each."""
        ...

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """A stream over the blob's bytes from an offset on; the caller closes it. MissingBlobError where it is absent."""
        ...


class IndexReader(Protocol):
    """Reads index files."""

    @property
    def registry_id(self) -> str:
        """32 hex digits, random, made once. NotFoundError where there is no registry."""
        ...

    @property
    def is_mirror(self) -> bool:
        """Whether it is a verbatim copy of the registry with its id: no event is made in it."""
        ...

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        """A model's index file as it is now; None where the model is unknown.

        One that was read before is `known`: where it is the same still, a place may say so instead of sending it.
        """
        ...

    def names(self) -> Iterator[str]:
        """Every model's name, sorted. Lists the tree: never on the way to one model. UnlistedError where none can."""
        ...


@runtime_checkable
class RefreshableReader(Protocol):
    """A place whose `read_index` may be behind: there are caches in between, or it reads at a commit that is pinned."""

    def read_fresh(self, name: str) -> IndexFile | None:
        """As `read_index`, as it is there now."""
        ...


class RegistryReader(BlobReader, IndexReader, Protocol):
    """A registry to read from."""

    @property
    def url(self) -> str:
        """How people name the place; holds no secret."""
        ...

    def blob_url(self, digest: Digest) -> str:
        """Where a client that knows nothing of registries fetches the blob."""
        ...


class IncomingBlob(Protocol):
    """A blob that lies elsewhere, for a push to fetch."""

    @property
    def digest(self) -> Digest: ...

    @property
    def size(self) -> int:
        """In bytes, as some document states it."""
        ...

    def open(self, start: int) -> BinaryIO:
        """A stream over its bytes from an offset on; the caller closes it. IntegrityError where there are too many."""
        ...

    @property
    def path(self) -> Path | None:
        """The file that it is on this machine, which nobody changes; None where it lies elsewhere."""
        ...

    def pieces(self) -> Sequence[Piece]:
        """Its parts, in order, where their digests are known: so that a bad one is found. Else none."""
        ...


class Push(Protocol):
    """One writer's unit of work. Blobs put here become visible with `publish` at the latest, never half-written.

    Leaving the context without `publish` may leave whole blobs behind, never partial ones nor temporary files.
    """

    @property
    def id(self) -> str:
        """16 hex digits, random: who writes. The names of its notes begin with it."""
        ...

    @property
    def last_step(self) -> str:
        """What `publish` does, in the words of a progress line: `committing`."""
        ...

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """From now on these keys do not count as present, and nothing is written to them."""
        ...

    def distrust(self, keys: Collection[BlobKey]) -> None:
        """What lies under these keys is damaged: it does not count as present, and `put` replaces it."""
        ...

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Which of these blobs the push need not bring: put before, or present under the key it would write to."""
        ...

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        """Store the stream's bytes, hashing them as they pass; returns digest and size in bytes.

        May be called from several threads, and again with bytes that are there already. IntegrityError where the
        bytes are not the expected ones; then nothing of them stays.
        """
        ...

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """As `put`, for a file that the caller gives away: it may be moved, and is gone or unchanged afterwards.

        A `hasher` that the caller wants something else from sees the bytes as they pass.
        """
        ...

    def fetch(self, blob: IncomingBlob) -> int:
        """Store a blob from elsewhere; returns its size in bytes. As `put`, but what a push that was cut off had fetched
        of it need not be fetched again, and of bytes that were garbled on their way only the bad ones may be."""
        ...

    def flush(self) -> None:
        """Make every blob put so far durable and visible. Only for blobs that some log refers to already."""
        ...

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """Make every blob put so far durable, then replace the model's index file.

        `expected` is the token of the index file that was read (None: there was none). LostRaceError where it is
        another by now: then the index is as the winner left it, and `publish` may be called again with new bytes.
        When this returns, all of it survives a power cut.
        """
        ...


class NoteStore(Protocol):
    """Small files by which pushers and collectors see each other; see `docs/format.md`."""

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        """Leave a note, visible to whoever reads notes after this returned."""
        ...

    def notes(self, kind: Kind) -> dict[str, bytes]:
        """Every note of a kind that was left before this was called and is not removed meanwhile."""
        ...

    def remove_note(self, kind: Kind, note: str) -> None:
        """Take a note away; nothing happens where it is gone."""
        ...

    def is_alive(self, note: str) -> bool | None:
        """Whether the process that left a note still runs. None where the place cannot tell; False is certain."""
        ...


class CollectableStore(Protocol):
    """A place whose files can be listed and blobs deleted. For the collector and for verify alone."""

    def files(self) -> Iterator[TreeFile]:
        """Every file of the tree, but for what is this machine's own (`local/`). UnlistedError where none can."""
        ...

    def open_key(self, key: BlobKey) -> BinaryIO:
        """A stream over the blob that lies under exactly this key. MissingBlobError where there is none."""
        ...

    def delete(self, keys: Iterable[BlobKey]) -> None:
        """Delete blobs; a key that is gone already is as good. When this returns, no delete is under way any more."""
        ...

    def discard(self, paths: Iterable[str]) -> None:
        """Delete files that are no part of the registry; one that is gone already is as good. For the doctor alone."""
        ...


class RegistryStore(RegistryReader, NoteStore, CollectableStore, Protocol):
    """A registry, here or elsewhere."""

    def confirm(self, name: str) -> None:
        """What the index of a model says now survives a power cut when this returns, whoever wrote it."""
        ...

    def push(self) -> AbstractContextManager[Push]:
        """Begin a unit of work."""
        ...
