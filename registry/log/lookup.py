"""Reading one registry: the names of models, their logs, and small blobs whole.

Blobs (manifests, segments, checkpoints, operator sets) are always checked against their digests. Light, for `resolve`.
"""

import fnmatch
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

from onnxreg.registry.log.log import Fetch, LocatedVersion, Log
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    MissingBlobError,
    RegistryReader,
    UnlistedError,
)
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, IntegrityError, NotFoundError, suggest
from onnxreg.schema.core.ref import Ref, Version, check_name

EMPTY = "it holds no models yet: reg export, reg add, reg pull, or a reg push to it, bring some"
MAX_LISTED_MODELS = 5
"""The most models that a hint names."""
FINISH = "`reg mirror` into it goes on where it was cut off; used offline, `reg index fetch` brings more"
PATTERN = frozenset("*?[")
"""The characters that make a name a pattern."""
Value = TypeVar("Value")


def log_of(
    reader: RegistryReader, name: str, index: IndexFile | None, *more: BlobReader, new: bool = False
) -> Log:
    """The log in an index file that was read. NotFoundError, with the nearest names, if there is no file.

    Args:
        more: further places where its blobs may be read.
        new: without a file, the log is empty.
    """
    if index is None and not new:
        raise unknown_model(name, reader)
    fetch = fetcher(reader, *more)
    if index is None:
        return Log(reader.registry_id, name, fetch, reader.url)
    log = Log.decode(index.data, reader.registry_id, name, fetch, reader.url)
    log.index = index
    return log


def consult(
    reader: RegistryReader,
    name: str,
    question: Callable[[Log], Value],
    *more: BlobReader,
    index: IndexFile | None = None,
    new: bool = False,
) -> Value:
    """Ask a model's log, and if it names a blob that a newer index file no longer names, the newer log. See `log_of`.

    `index` is an index file that was read already.
    """
    return read_consistently(
        reader, name, lambda file: question(log_of(reader, name, file, *more, new=new)), index
    )


def load(reader: RegistryReader, name: str, *more: BlobReader, index: IndexFile | None = None) -> Log:
    """A model's log, replayed and compared with its state; see `consult`."""
    return consult(reader, name, Log.check, *more, index=index)


def read_log(reader: RegistryReader, name: str) -> Log:
    """A model's log, whose state is believed until a table of all versions is asked for; see `log_of`."""
    return log_of(reader, name, reader.read_index(name))


def find(reader: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
    """The version that a ref means; errors as of `Log.find`."""
    return consult(reader, ref.name, lambda log: log.find(ref, yanked, gone))


def read_consistently(
    reader: RegistryReader,
    name: str,
    read: Callable[[IndexFile | None], Value],
    index: IndexFile | None = None,
) -> Value:
    """Read a model's index file and blobs that it names; start again if one is missing and the index has changed.

    A collector may free what a newer index file no longer refers to (a checkpoint that a sealing replaced, the manifest
    of a dropped version) while somebody still reads by the one before.
    """
    index = index or reader.read_index(name)
    while True:
        try:
            return read(index)
        except MissingBlobError:
            index, before = reader.read_index(name), index
            if index == before:
                raise


def unknown_model(name: str, reader: RegistryReader) -> NotFoundError:
    """The error for a model that is not there; the hint has the nearest names that are. A copy may just be unfinished."""
    hint, location = "check the name: that place does not list its models", reader.url
    if reader.is_mirror:  # NotFoundError if the registry is gone
        location += f", {named_copy(reader)}"
    with suppress(UnlistedError):
        names = list(reader.names())
        hint = suggest(name, names, FINISH if reader.is_mirror else listed(names))
    if Version.is_version(name):
        hint = f"a version follows its model: NAME:{name}"
    return NotFoundError(f"there is no model {name} in {location}", hint)


def listed(names: Sequence[str]) -> str:
    """The first names of the models of a registry, for a hint."""
    more = f" and {len(names) - MAX_LISTED_MODELS} more" if len(names) > MAX_LISTED_MODELS else ""
    return f"it holds {', '.join(names[:MAX_LISTED_MODELS])}{more}" if names else EMPTY


def named_copy(copy: RegistryReader) -> str:
    """The words for a mirror, an archive or a tracking copy in an error about a missing model."""
    return f"a copy of registry {copy.registry_id[:12]}... that may be incomplete"


def matching(reader: RegistryReader, patterns: Collection[str]) -> list[str]:
    """The models that these names and patterns mean, sorted; in a pattern `*` also matches a `/`.

    NotFoundError, with the nearest names, if a pattern means none. A name may be that of no model.
    """
    chosen, names = set[str](), None
    for pattern in patterns:
        if not PATTERN & set(pattern):
            chosen.add(check_name(pattern))
            continue
        names = list(reader.names()) if names is None else names
        if not (fitting := fnmatch.filter(names, pattern)):
            plain = "".join(char for char in pattern if char not in PATTERN)
            raise NotFoundError(
                f"no model matches {pattern} in {reader.url}", suggest(plain, names, listed(names), 0.4)
            )
        chosen.update(fitting)
    return sorted(chosen)


def read_blob(source: BlobReader, digest: Digest, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a blob. NotFoundError if it is absent, IntegrityError if its digest differs."""
    with host_errors(f"reading blob {digest}"), source.open_blob(digest) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityError(f"blob {digest} is larger than {max_bytes} bytes, which no document is")
    if Digest.of(data) != digest:
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", VERIFY_ADVICE)
    return data


def fetcher(*sources: BlobReader) -> Fetch:
    """A function that reads a blob once, from the first reader with a good copy; local readers are asked first."""
    ordered = sorted(sources, key=lambda source: not isinstance(source, DirectoryRegistry))
    blobs: dict[Digest, bytes] = {}

    def fetch(digest: Digest) -> bytes:
        failure: IntegrityError | NotFoundError | None = None
        for source in ordered if digest not in blobs else ():
            try:
                blobs[digest] = read_blob(source, digest)
                return blobs[digest]
            except (IntegrityError, NotFoundError) as error:
                failure = failure if isinstance(failure, IntegrityError) else error
        if failure is not None:
            raise failure
        return blobs[digest]

    return fetch
