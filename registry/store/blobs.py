"""Reading small blobs (manifests, segments, catalogs, operator sets) whole, always checked.

A manifest's bytes are checked, its content is not trusted; pydantic is imported only to validate one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from onnxreg.registry.store.protocol import BlobReader, IndexFile, IndexReader, LocalStore, MissingBlobError
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    Advice,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
)
from onnxreg.schema.log.summary import completed, summarize

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest

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
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", VERIFY_ADVICE)
    return data


def read_consistently(
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


def read_manifest(data: bytes, digest: Digest, name: str) -> "Manifest":
    """Decode the manifest of a model. IntegrityError if it is not a manifest, of another model, or of an unknown version."""
    from onnxreg.schema.manifest.manifest import Manifest
    from onnxreg.schema.manifest.manifest import read_manifest as read_any_manifest

    label = f"manifest {digest.short}... of {name}"
    try:
        manifest = read_any_manifest(data, label)
    except InputError as error:
        raise IntegrityError(error.message, error.advice) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        actual_name = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{label} is the manifest of {actual_name}", "the registry was tampered with or damaged"
        )
    return manifest


def read_plain_manifest(data: bytes, digest: Digest, name: str) -> "Manifest":
    """The same for a verb that prints it: a tenth of a second earlier; see `plain_manifest`."""
    from onnxreg.schema.manifest.plain_manifest import plain_manifest

    try:
        manifest = plain_manifest(data)
    except (InputError, ValueError):
        return read_manifest(data, digest, name)
    return manifest if manifest.name == name else read_manifest(data, digest, name)


def check_summary(summary: Any, data: bytes, digest: Digest, name: str) -> None:
    """Compare the summary in an index file with the manifest's bytes. IntegrityError if they differ.

    Keys of the summary that this build does not know are not compared, nor those that an older build did not write.
    """
    derived = summarize(read_manifest(data, digest, name), digest, len(data))
    try:
        is_same = completed(summary, derived) == derived
    except InputError:
        is_same = False
    if not is_same:
        raise IntegrityError(
            f"the index of {name} says other things of manifest {digest.short}... than the manifest itself",
            Advice("verify-index"),
        )
