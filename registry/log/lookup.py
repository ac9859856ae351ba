"""Read one registry: the names of models, their logs, versions as they were published, and whole small blobs.

Blobs (manifests, segments, checkpoints, operator sets) are always checked against their digests. Imports little.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

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
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    suggest,
)
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.log.summary import ArtifactStates, artifact_states, verdicts_of

if TYPE_CHECKING:
    from onnxreg.registry.log.contents import ArtifactPaths
    from onnxreg.schema.compare.version_history import HistoryEntry
    from onnxreg.schema.delta.delta_format import Delta
    from onnxreg.schema.log.events import Event, Yank
    from onnxreg.schema.log.logline import LogLine
    from onnxreg.schema.log.state import VersionEntry
    from onnxreg.schema.manifest.manifest import Manifest

MAX_LISTED_MODELS = 5
FINISH = "`reg mirror` into it goes on where it was cut off; used offline, `reg index fetch` brings more"
PATTERN = frozenset("*?[")
"""The characters by which a name counts as a pattern."""
Value = TypeVar("Value")


def log_of(
    reader: RegistryReader, name: str, index: IndexFile | None, *more: BlobReader, new: bool = False
) -> Log:
    """The log in an index file; for no file an empty log if `new`, else NotFoundError with similar names.

    `more` are further readers of the log's blobs.
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
    """Apply `question` to a model's log (see `log_of`); if a blob is missing, again to a newer log."""
    return read_consistently(
        reader, name, lambda file: question(log_of(reader, name, file, *more, new=new)), index
    )


def load(reader: RegistryReader, name: str, *more: BlobReader, index: IndexFile | None = None) -> Log:
    """Load and replay a model's log, and check its state; see `consult`."""
    return consult(reader, name, Log.check, *more, index=index)


def open_log(reader: RegistryReader, name: str) -> Log:
    """Open a model's log without checking its state before a table of all versions is used; see `log_of`."""
    return log_of(reader, name, reader.read_index(name))


def find(reader: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
    """The version that a ref means; see `Log.find` for the arguments and errors."""
    return consult(reader, ref.name, lambda log: log.find(ref, yanked, gone))


def read_consistently(
    reader: RegistryReader,
    name: str,
    read: Callable[[IndexFile | None], Value],
    index: IndexFile | None = None,
) -> Value:
    """Read a model's index file and blobs that it names; start again if a blob is missing and the index file changed.

    A collector may delete blobs that the newest index file does not name (a replaced checkpoint, the manifest of a
    dropped version) while a reader still uses an older index file.
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
    """The error for a missing model, with the most similar names. In a copy, it adds that the copy may be incomplete."""
    is_copy = reader.is_mirror  # NotFoundError if the registry is gone
    location = f"{reader.url}, {named_copy(reader)}" if is_copy else reader.url
    hint = "check the name: that place does not list its models"
    with suppress(UnlistedError):
        names = list(reader.names())
        hint = suggest(name, names, FINISH if is_copy else listed(names))
    if Version.is_version(name):
        hint = f"a version follows its model: NAME:{name}"
    return NotFoundError(f"there is no model {name} in {location}", hint)


def listed(names: Sequence[str]) -> str:
    """The first names of a registry's models, for the hint of an error."""
    if not names:
        return "it holds no models yet: reg export, reg add, reg pull, or a reg push to it, bring some"
    more = f" and {len(names) - MAX_LISTED_MODELS} more" if len(names) > MAX_LISTED_MODELS else ""
    return f"it holds {', '.join(names[:MAX_LISTED_MODELS])}{more}"


def named_copy(copy: RegistryReader) -> str:
    """Name a mirror, an archive or a tracking copy in an error about a missing model."""
    return f"a copy of registry {copy.registry_id[:12]}... that may be incomplete"


def matching(reader: RegistryReader, patterns: Collection[str]) -> list[str]:
    """The models that these names and patterns mean, sorted; in a pattern `*` also matches a `/`.

    Raise NotFoundError, with similar names, if a pattern matches no model. Names are not checked to exist.
    """
    chosen = {check_name(pattern) for pattern in patterns if not PATTERN & set(pattern)}
    globs = [pattern for pattern in patterns if PATTERN & set(pattern)]
    names = list(reader.names()) if globs else []
    for pattern in globs:
        if not (fitting := fnmatch.filter(names, pattern)):
            plain = "".join(char for char in pattern if char not in PATTERN)
            hint = suggest(plain, names, listed(names), 0.4)
            raise NotFoundError(f"no model matches {pattern} in {reader.url}", hint)
        chosen.update(fitting)
    return sorted(chosen)


def read_blob(source: BlobReader, digest: Digest, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a whole blob. Raise NotFoundError if it is absent; IntegrityError if it is too large or its digest differs."""
    with host_errors(f"reading blob {digest}"), source.open_blob(digest) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityError(f"blob {digest} is larger than {max_bytes} bytes, which no document is")
    if Digest.of(data) != digest:
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", VERIFY_ADVICE)
    return data


def fetcher(*sources: BlobReader) -> Fetch:
    """A function that reads a blob from the first source with a good copy, local sources first, and caches the blob."""
    ordered = sorted(sources, key=lambda source: not isinstance(source, DirectoryRegistry))

    @cache
    def fetch(digest: Digest) -> bytes:
        failure: RegError = NotFoundError(f"blob {digest} is not there", VERIFY_ADVICE)
        for source in ordered:
            try:
                return read_blob(source, digest)
            except (IntegrityError, NotFoundError) as error:
                failure = failure if isinstance(failure, IntegrityError) else error
        raise failure

    return fetch


@dataclass(frozen=True)
class Release:
    """A version with its manifest and the manifest's exact bytes `data`; `new` is true if this call published the version.

    `held` are the paths of the artifacts that the registry has (None: all), `states` the states of all artifacts, `index` is
    the index file that was read. After publishing, `yank` is the version's yank, and `newer` another newest version.
    """

    name: str
    version: Version
    digest: Digest
    manifest: Manifest
    data: bytes
    new: bool = False
    held: ArtifactPaths = None
    states: ArtifactStates = ()
    index: IndexFile | None = None
    yank: Yank | None = None
    newer: Version | None = None

    @classmethod
    def of(cls, log: Log, version: Version, entry: VersionEntry) -> Release:
        """The release of a version of a log. Raise IntegrityError or NotFoundError if its manifest cannot be read."""
        manifest, data = log.read_manifest(entry.manifest), log.fetch(entry.manifest)
        state = log.state
        timed = state.speeds.get(entry.manifest, {})
        states = artifact_states(verdicts_of(manifest), entry.attested, state.refused, timed)
        return cls(
            log.name, version, entry.manifest, manifest, data,
            held=entry.held, states=states, index=log.index,
        )  # fmt: skip

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_version(reader: RegistryReader, ref: Ref) -> Release:
    """Read and verify a version's manifest, even if its files expired. Raise NotFoundError or IntegrityError."""

    def read(log: Log) -> Release:
        located = log.find(ref, gone=True)
        return Release.of(log, located.version, located.entry)

    return consult(reader, ref.name, read)


def read_lines(reader: RegistryReader, name: str) -> list[LogLine]:
    """Read a model's whole log (`.policy`: the log of policies) and verify its chain. Raise NotFoundError if missing."""
    if name != POLICY_LOG:
        return list(load(reader, check_name(name)).lines())
    from onnxreg.schema.gates.policy import PolicyLog

    index = reader.read_index(POLICY_LOG)
    if index is None:
        raise NotFoundError(f"{reader.url} never had a policy", "`reg policy set` makes one")
    return list(PolicyLog.decode(index.data, reader.registry_id).lines)


def read_history(reader: RegistryReader, name: str, limit: int) -> list[HistoryEntry]:
    """Read the newest versions of a model, newest first; the log's chain is verified."""
    log = load(reader, check_name(name))
    events = {line.seq: line.event for line in log.lines()}
    newest = sorted(log.versions, reverse=True)[:limit]
    return [version_record(log, version, events[log.versions[version].seq]) for version in newest]


def version_record(log: Log, version: Version, event: Event) -> HistoryEntry:
    """The history record of a version that `event` published. Raise NotFoundError or IntegrityError for its manifest."""
    from onnxreg.schema.compare.version_history import HistoryEntry, HistoryRow

    state, entry, manifest = log.state, log.versions[version], None
    try:
        manifest = log.read_manifest(entry.manifest)
    except MissingBlobError:
        if entry.gone is None:
            raise
    row = HistoryRow(
        version=str(version),
        manifest=entry.manifest,
        time=event.time,
        actor=event.actor,
        status=entry.status(state.effective_summary(version)),
        channels=tuple(sorted(tag for tag, item in state.channels.items() if item.version == version)),
    )
    verdicts, timed = verdicts_of(manifest) if manifest else (), state.speeds.get(entry.manifest, {})
    states = artifact_states(verdicts, entry.attested, state.refused, timed)
    return HistoryEntry(row, manifest, states)


def read_deltas(fetch: Fetch, table: Digest | None) -> list[Delta]:
    """The deltas of a table; none if the table cannot be read, since deltas are optional and `verify` reports damage."""
    if table is not None:
        from onnxreg.schema.delta.delta_format import decode_table

        with suppress(InputError, IntegrityError, NotFoundError):
            return list(decode_table(fetch(table)))
    return []
