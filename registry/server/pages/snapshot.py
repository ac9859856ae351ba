"""One model as of one index file: its state, every version, the log, and manifests on demand."""

import json
from collections.abc import Sequence
from functools import cached_property

from onnxreg.registry.gates.production import ChannelStatus, in_production
from onnxreg.registry.gates.proofs import latest_proofs
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.log.lookup import read_blob, read_manifest
from onnxreg.registry.read.versions import version_record
from onnxreg.registry.server.pages import views
from onnxreg.registry.server.pages.views import LogView
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.schema.compare.version_history import HistoryEntry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError, RegError, nearest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.faithfulness import RecordedProof
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.manifest.manifest import Artifact, Manifest

MAX_SUGGESTIONS = 4
"""Similar names in an error."""


class UnknownModelError(NotFoundError):
    """A model or version that does not exist here; `near` are similar ones."""

    def __init__(self, message: str, near: list[Ref]) -> None:
        super().__init__(message, "did you mean one of these?" if near else "")
        self.near = near


def _absent(ref: Ref) -> str:
    """The message for a ref that means no version of its model."""
    if ref.tag is not None:
        return (
            f"There is no {'version' if Version.is_version(ref.tag) else 'channel'} {ref.tag} of {ref.name}"
        )
    if ref.digest is not None:
        return f"There is no version of {ref.name} with the manifest {ref.digest}"
    return f"Every version of {ref.name} is yanked, gone or a pre-release"


class ModelSnapshot:
    """A model, read lazily and once. UnknownModelError if it does not exist."""

    def __init__(self, registry: ServedRegistry, name: str, index: IndexFile | None) -> None:
        if index is None:
            near = nearest(name, registry.names(), most=MAX_SUGGESTIONS)
            raise UnknownModelError(
                f"There is no model {name} here", [Ref(suggestion) for suggestion in near]
            )
        self._registry = registry
        self._index = index
        self.state = registry.state_of(name, index)
        self.token = index.token

    @cached_property
    def entries(self) -> dict[Version, VersionEntry]:
        return lookup.all_versions(self._registry, self.state)

    @cached_property
    def order(self) -> list[Version]:
        """All versions, newest first."""
        return sorted(self.entries, reverse=True)

    @cached_property
    def history(self) -> LogView | IntegrityError:
        """The log with its chain verified, or the error of that."""
        try:
            return LogView(read_ledger(self._registry, self.state.name, self._index))
        except IntegrityError as error:
            return error

    @cached_property
    def sound(self) -> LogView | None:
        """The log, if it is intact."""
        return self.history if isinstance(self.history, LogView) else None

    def log_rows(self, lines: Sequence[LogLine]) -> list[views.LogRow]:
        """Lines of the log, with their signers by the names of this server's trust file."""
        assert self.sound is not None, "lines come from a log that is intact"
        return list(views.log_rows(self._registry, self.state.name, self.sound, lines, load_trust()))

    def in_production(self) -> list[ChannelStatus]:
        """The channels, judged as `resolve` does; none if the log cannot be read."""
        try:
            ledger = read_ledger(self._registry, self.state.name, self._index)
            return list(in_production(self._registry, ledger, load_trust()))
        except IntegrityError:
            return []

    def rows(self, versions: list[Version]) -> list[views.VersionRow]:
        return views.version_rows(
            self.state, {version: self.entries[version] for version in versions}, self.sound
        )

    def find(self, ref: Ref) -> views.VersionRow:
        """Find the version of a ref, even if yanked or gone. UnknownModelError if it does not exist."""
        try:
            located = lookup.find_in(self._registry, self.state, ref, yanked=True, gone=True)
        except MissingBlobError:
            raise
        except NotFoundError as error:
            tags = [*self.state.channels, *map(str, self.order)]
            near = nearest(ref.tag or "", tags, 0.3, MAX_SUGGESTIONS)
            raise UnknownModelError(_absent(ref), [Ref(ref.name, tag) for tag in near]) from error
        return self.rows([located.version])[0]

    def manifest(self, entry: VersionEntry) -> Manifest | None:
        """A version's manifest; None if it was taken down with its files."""
        try:
            data = read_blob(self._registry, entry.manifest)
        except MissingBlobError:
            if entry.gone is None:
                raise
            return None
        return read_manifest(data, entry.manifest, self.state.name)

    def record(self, version: Version) -> HistoryEntry:
        """A version for the history of the model."""
        entry = self.entries[version]
        line = self.sound.at(entry.seq) if self.sound else None
        event = line.event if line else None
        time, actor = (event.time, event.actor) if event else (None, None)
        return version_record(self.state, version, entry, self.manifest(entry), time, actor)

    def proofs(self, entry: VersionEntry, manifest: Manifest | None) -> dict[str, RecordedProof]:
        """The proofs on record of a version, by the paths of its artifacts; empty if the log cannot be read."""
        if manifest is None or not any(artifact.parent for artifact in manifest.artifacts):
            return {}
        try:
            ledger = read_ledger(self._registry, self.state.name, self._index)
            return latest_proofs(ledger, entry.manifest, manifest, Trust())
        except RegError:
            return {}

    def parent_recalls(self, manifest: Manifest | None) -> dict[Digest, dict[str, float]]:
        """The recall of full precision by label, for each artifact whose report states it."""
        artifacts = () if manifest is None else manifest.artifacts
        return {artifact.digest: self._parent_recalls(artifact) for artifact in artifacts}

    def _parent_recalls(self, artifact: Artifact) -> dict[str, float]:
        """Empty without a report about exactly these bytes that can be read."""
        evidence = artifact.certification.evidence
        if evidence is None or evidence.report is None:
            return {}
        try:
            report = json.loads(read_blob(self._registry, evidence.report))
            values = report["fp_parent_per_label_recall"] or {}
            if report["artifact"]["int8_model_digest"] != str(artifact.digest):
                return {}
            return {str(label): float(value) for label, value in values.items() if value is not None}
        except (RegError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def before(self, version: Version) -> Version | None:
        """The next older version."""
        position = self.order.index(version) + 1
        return self.order[position] if position < len(self.order) else None
