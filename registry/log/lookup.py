"""Reading one registry: names, logs, and small blobs whole.

Blobs (manifests, segments, checkpoints, operator sets) are always checked: the bytes of a manifest, not its content. Light:
pydantic is imported only to validate a manifest.
"""

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from onnxreg.registry.log import log as _log
from onnxreg.registry.log import manifests
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    LocalStore,
    MissingBlobError,
    RegistryReader,
    UnlistedError,
)
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    IntegrityError,
    NotFoundError,
    RegError,
    suggest,
)
from onnxreg.schema.core.ref import Ref, Version, check_name

LocatedVersion = _log.LocatedVersion
read_manifest, check_summary = manifests.read_manifest, manifests.check_summary
MismatchError = _log.MismatchError
EMPTY = "it holds no models yet: reg export, reg add, reg pull, or a reg push to it, bring some"
MAX_LISTED_MODELS = 5
"""The most models that a hint names."""

FINISH = "`reg mirror` into it goes on where it was cut off; used offline, `reg fetch-index` brings more"
PATTERN = frozenset("*?[")
"""The characters that make a name a pattern."""
Value = TypeVar("Value")

MAX_BLOB_BYTES = 64 * 2**20
"""No catalog, segment or manifest has more bytes."""


def log_of(reader: RegistryReader, name: str, index: IndexFile | None, *more: BlobReader) -> Log:
    """The log in an index file that was read. NotFoundError, with the nearest names, if there is none.

    `more` are further places where its blobs may be read.
    """
    if index is None:
        raise unknown_model(name, reader)
    return Log.decode(index.data, reader.registry_id, name, fetcher(reader, *more), reader.url)


def read_log(reader: RegistryReader, name: str) -> Log:
    """A model's log. NotFoundError, with the nearest names, if the model is unknown."""
    return log_of(reader, name, reader.read_index(name))


def unknown_model(name: str, remote: RegistryReader) -> NotFoundError:
    """The error for a model that is not there; the hint has the nearest names that are.

    A copy may just be unfinished.
    """
    is_copy = remote.is_mirror  # NotFoundError if the registry is gone
    if Version.is_version(name):
        return NotFoundError(
            f"there is no model {name} in {remote.url}", f"a version follows its model: NAME:{name}"
        )
    location = f"{remote.url}, {named_copy(remote)}" if is_copy else remote.url
    try:
        names = list(remote.names())
    except UnlistedError:
        hint: str = "check the name: that place does not list its models"
    else:
        hint = suggest(name, names, FINISH if is_copy else _few(names))
    return NotFoundError(f"there is no model {name} in {location}", hint)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_MODELS} more" if len(names) > MAX_LISTED_MODELS else ""
    return f"it holds {', '.join(names[:MAX_LISTED_MODELS])}{more}" if names else EMPTY


def named_copy(copy: RegistryReader) -> str:
    """The words for a mirror, an archive or a tracking copy in an error about a missing model."""
    return f"a copy of registry {copy.registry_id[:12]}... that may be incomplete"


def matching(remote: RegistryReader, patterns: Collection[str]) -> list[str]:
    """The models that these names and patterns mean, sorted; in a pattern `*` also matches a `/`.

    NotFoundError, with the nearest names, if a pattern means none. A name may be that of no model.
    """
    exact = {check_name(pattern) for pattern in patterns if not PATTERN & set(pattern)}
    chosen = set(exact)
    all_names = list(remote.names()) if len(exact) < len(patterns) else []
    for pattern in set(patterns) - exact:
        names = {name for name in all_names if fnmatchcase(name, pattern)}
        if not names:
            plain = "".join(char for char in pattern if char not in PATTERN)
            raise NotFoundError(
                f"no model matches {pattern} in {remote.url}", suggest(plain, all_names, _few(all_names), 0.4)
            )
        chosen |= names
    return sorted(chosen)


def find(reader: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
    """The version that a ref means; errors as of `Log.find`."""
    return read_consistently(
        reader, ref.name, lambda index: log_of(reader, ref.name, index).find(ref, yanked, gone)
    )


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
    remote: RegistryReader,
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
