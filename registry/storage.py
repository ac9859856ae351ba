"""What a place that holds a registry must be able to do. Every backend keeps the same tree of files.

registry.json               which registry this is
blobs/sha256/ab/<64 hex>    every byte, by digest
index/<name>.jsonl          the one mutable file of a model
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxreg.schema.digest import Digest

LAYOUT_VERSION = 1
CHUNK = 1024 * 1024


def blob_path(digest: Digest) -> str:
    """Where a blob lies in the tree."""
    return f"blobs/sha256/{digest.hex[:2]}/{digest.hex}"


def index_path(name: str) -> str:
    """Where a model's index file lies in the tree."""
    return f"index/{name}.jsonl"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The bytes of an index file, and the token that a swap must bring to replace exactly these bytes."""

    data: bytes
    token: str


class BlobReader(Protocol):
    """Reads blobs. Bytes are handed out as they lie there: whoever reads them checks the digest."""

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        """Which of these blobs are present. One answer for all of them, not one request each."""
        ...

    def open_blob(self, digest: Digest) -> BinaryIO:
        """A stream over the blob's bytes; the caller closes it. NotFoundError where it is absent."""
        ...


class IndexReader(Protocol):
    """Reads index files."""

    @property
    def registry_id(self) -> str:
        """32 hex digits, random, made once. NotFoundError where there is no registry."""
        ...

    def read_index(self, name: str) -> IndexFile | None:
        """A model's index file as it is now; None where the model is unknown."""
        ...

    def names(self) -> Iterator[str]:
        """Every model's name, sorted. Lists the tree: never on the way to one model."""
        ...


class Push(Protocol):
    """One writer's unit of work. Blobs put here become visible with `publish` at the latest, never half-written.

    Leaving the context without `publish` may leave whole blobs behind, never partial ones nor temporary files.
    """

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        """Store the stream's bytes, hashing them as they pass; returns digest and size in bytes.

        May be called from several threads, and again with bytes that are there already. IntegrityError where the
        bytes are not the expected ones; then nothing of them stays.
        """
        ...

    def put_file(self, path: Path) -> tuple[Digest, int]:
        """As `put`, for a file that the caller gives away: it may be moved, and is gone or unchanged afterwards."""
        ...

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """Make every blob put so far durable, then replace the model's index file.

        `expected` is the token of the index file that was read (None: there was none). LostRaceError where it is
        another by now: then the index is as the winner left it, and `publish` may be called again with new bytes.
        When this returns, all of it survives a power cut.
        """
        ...


class Remote(BlobReader, IndexReader, Protocol):
    """A registry, here or elsewhere."""

    @property
    def url(self) -> str:
        """How people name the place; holds no secret."""
        ...

    def blob_url(self, digest: Digest) -> str:
        """Where a client that knows nothing of registries fetches the blob."""
        ...

    def push(self) -> AbstractContextManager[Push]:
        """Begin a unit of work."""
        ...
