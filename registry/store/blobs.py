"""Reading small blobs (manifests, segments, catalogs, operator sets) whole, always checked."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from onnxreg.registry.store.abilities import LocalStore
from onnxreg.registry.store.protocol import BlobReader, IndexFile, IndexReader, MissingBlobError
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import EXTENT, IntegrityError, NotFoundError, RegError

Value = TypeVar("Value")

MAX_BLOB_BYTES = 64 * 2**20
"""No catalog, segment or manifest has more bytes."""


def read_blob(source: BlobReader, digest: Digest, max_bytes: int = MAX_BLOB_BYTES) -> bytes:
    """Read a blob. NotFoundError if it is absent, IntegrityError if its digest differs."""
    with host_errors(f"reading blob {digest}"), source.open_blob(digest) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityError(f"blob {digest} is larger than {max_bytes} bytes, which no document is")
    if Digest.of(data) != digest:
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", EXTENT)
    return data


def steady(
    remote: IndexReader,
    name: str,
    read: Callable[[IndexFile | None], Value],
    first: IndexFile | None = None,
) -> Value:
    """Read a model's index file and blobs that it names; start again if one is missing and the index has
    changed.

    A collector may free what a newer index file no longer refers to (a catalog that a sealing replaced, the
    manifest of a dropped version) while somebody still reads by the one before. `first` is an index file that
    was read already.
    """
    index = first or remote.read_index(name)
    while True:
        try:
            return read(index)
        except MissingBlobError:
            index, before = remote.read_index(name), index
            if index == before:
                raise


def fetcher(*sources: BlobReader) -> Callable[[Digest], bytes]:
    """Make a function that reads a blob from the first reader that has a good one, local ones first, and
    caches it."""
    sources = tuple(sorted(sources, key=lambda source: not isinstance(source, LocalStore)))
    cache: dict[Digest, bytes] = {}

    def fetch(digest: Digest) -> bytes:
        if digest not in cache:
            cache[digest] = _first(digest)
        return cache[digest]

    def _first(digest: Digest) -> bytes:
        failed: list[RegError] = []
        for source in sources:
            try:
                return read_blob(source, digest)
            except (IntegrityError, NotFoundError) as error:
                failed.append(error)
        raise next((error for error in failed if isinstance(error, IntegrityError)), failed[-1])

    return fetch


def sealed_lines(fetch: Callable[[Digest], bytes], segments: Sequence[Digest], number: int) -> list[bytes]:
    """Read one sealed part of a log: its lines."""
    return fetch(segments[number]).removesuffix(b"\n").split(b"\n")
