"""Versions as they were published: one with its manifest, the log of a model, and all versions of it for its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import consult, load
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError, RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.log.state import State
from onnxreg.schema.log.summary import ArtifactStates, artifact_states, verdicts_of

if TYPE_CHECKING:
    from onnxreg.registry.log.contents import ArtifactPaths
    from onnxreg.schema.compare.version_history import HistoryEntry
    from onnxreg.schema.log.events import Event, Yank
    from onnxreg.schema.log.logline import LogLine
    from onnxreg.schema.manifest.manifest import Manifest


@dataclass(frozen=True)
class Release:
    """A version with its manifest and the manifest's exact bytes `data`; `new` if this call published it.

    `held` are the paths of the artifacts that the registry has, if not all; `states` has one for each artifact. `index`
    is the index file that it was read from, if it was read. Of a version that was published, or was there already,
    `yank` is its yank, and `newer` the newest version if that is another one.
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

    @property
    def may_be_attested(self) -> bool:
        """False if its log has no attestation; a log with sealed segments may have some in them."""
        if self.index is None:
            return True
        data = self.index.data
        return b'"kind":"attest"' in data or bool(State.decode(data.partition(b"\n")[0]).segments)

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_version(reader: RegistryReader, ref: Ref) -> Release:
    """Read a version's manifest, verified; an expired version too. NotFoundError, IntegrityError."""

    def read(log: Log) -> Release:
        located = log.find(ref, gone=True)
        entry = located.entry
        manifest = log.read_manifest(entry.manifest)
        return Release(
            log.name,
            located.version,
            entry.manifest,
            manifest,
            log.fetch(entry.manifest),
            held=entry.held,
            states=artifact_states(verdicts_of(manifest), entry.attested, log.state.refused),
            index=log.index,
        )

    return consult(reader, ref.name, read)


def read_log(reader: RegistryReader, name: str) -> list[LogLine]:
    """Read a model's whole log, or with `.policy` that of policies, and verify its chain. NotFoundError if there is none."""
    if name != POLICY_LOG:
        return list(load(reader, check_name(name)).lines())
    from onnxreg.schema.gates.policy import PolicyLog

    index = reader.read_index(POLICY_LOG)
    if index is None:
        raise NotFoundError(f"{reader.url} never had a policy", "`reg policy set` makes one")
    return list(PolicyLog.decode(index.data, reader.registry_id).lines)


def read_history(reader: RegistryReader, name: str, limit: int) -> list[HistoryEntry]:
    """Read the newest versions of a model, newest first; the log's chain is verified.

    Raises NotFoundError if the model is unknown, IntegrityError if its log or a manifest is damaged.
    """
    log = load(reader, check_name(name))
    events = {line.seq: line.event for line in log.lines()}
    newest = sorted(log.versions, reverse=True)[:limit]
    return [version_record(log, version, events[log.versions[version].seq]) for version in newest]


def version_record(log: Log, version: Version, event: Event) -> HistoryEntry:
    """The record of a version; `event` published it. NotFoundError or IntegrityError if its manifest cannot be read."""
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
    states = artifact_states(verdicts_of(manifest) if manifest else (), entry.attested, state.refused)
    return HistoryEntry(row, manifest, states)
