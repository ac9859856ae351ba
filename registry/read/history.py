"""The versions of a model with their manifests, for its history."""

from onnxreg.registry.log import lookup
from onnxreg.registry.read.versions import read_log
from onnxreg.registry.store.blobs import read_blob, read_manifest
from onnxreg.registry.store.protocol import MissingBlobError, RegistryReader
from onnxreg.schema.compare.version_history import HistoryEntry
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import artifact_states, verdicts_of
from onnxreg.schema.manifest.manifest import Manifest


def read_history(reader: RegistryReader, name: str, limit: int) -> list[HistoryEntry]:
    """Read the newest versions of a model, newest first; the log's chain is verified.

    Raises NotFoundError if the model is unknown, IntegrityError if its log or a manifest is damaged.
    """
    state, entries = lookup.read_versions(reader, name)
    lines = {line.seq: line for line in read_log(reader, name)}
    records = []
    for version in sorted(entries, reverse=True)[:limit]:
        event = lines[entries[version].seq].event
        manifest = _read(reader, name, entries[version])
        records.append(version_record(state, version, entries[version], manifest, event.time, event.actor))
    return records


def _read(reader: RegistryReader, name: str, entry: VersionEntry) -> Manifest | None:
    """A version's manifest; None if it was taken down."""
    try:
        return read_manifest(read_blob(reader, entry.manifest), entry.manifest, name)
    except MissingBlobError:
        if entry.gone is None:
            raise
        return None


def version_record(
    state: State,
    version: Version,
    entry: VersionEntry,
    manifest: Manifest | None,
    time: str | None,
    actor: str | None,
) -> HistoryEntry:
    """The record of a version that was read."""
    channels = tuple(sorted(tag for tag, channel in state.channels.items() if channel.version == version))
    verdicts = verdicts_of(manifest) if manifest else ()
    states = artifact_states(verdicts, entry.attested, state.refused)
    status = entry.status(lookup.held_summary(state, version))
    return HistoryEntry(str(version), entry.manifest, time, actor, status, channels, manifest, states)
