"""One model as of one index file, for its pages: versions, log and channels, as `reg show` and `reg log` give them."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from onnxreg.registry.gates.production import ChannelStatus, in_production
from onnxreg.registry.gates.statements import latest_proofs, word_of, words
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.read.versions import version_record
from onnxreg.registry.search.listing import total_size
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.registry.trust.signatures import SignatureJudge
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.compare.version_history import HistoryEntry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError, RegError, suggest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.faithfulness import RecordedProof
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest, Publish, RolloutStep, Tag, Untag
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.log.summary import ArtifactState, artifact_states, verdicts_of
from onnxreg.schema.manifest.manifest import Artifact, Manifest

MAX_NAMED = 3
"""Artifacts that a note names."""


class Standing(NamedTuple):
    """A word for the state of a version, the line of the log that set it, the text of its badge, and its artifacts."""

    word: str
    line: LogLine | None = None
    text: str = ""
    artifacts: str = ""


@dataclass(frozen=True)
class VersionRow:
    """One version in a list. `size`: bytes of its present files, None if the index file does not have it."""

    version: Version
    entry: VersionEntry
    channels: Sequence[str]
    size: int | None
    standings: Sequence[Standing]
    published: LogLine
    refused: Collection[Digest]

    @property
    def revision(self) -> str:
        """The name that gets the files: the version, or the manifest's digest if it is yanked."""
        return str(self.entry.manifest if self.entry.yanked else self.version)

    def has_files(self, artifact: Artifact) -> bool:
        """Return True if the files of an artifact are here."""
        paths = self.entry.held
        return self.entry.gone is None and (paths is None or artifact.path in paths)

    def states(self, manifest: Manifest) -> dict[str, ArtifactState]:
        """The state of each artifact, by its path."""
        states = artifact_states(verdicts_of(manifest), self.entry.attested, self.refused)
        return {state.path: state for state in states}

    def best_artifact(self, manifest: Manifest) -> Artifact | None:
        """The smallest certified artifact that is here, else the first that is not refused."""
        states = {path: state.state for path, state in self.states(manifest).items()}
        usable = [
            item
            for item in manifest.entry_artifacts
            if self.has_files(item) and states[item.path] != "refused"
        ]
        certified = [item for item in usable if states[item.path] == "certified"]
        return min(certified, key=lambda item: item.own_size, default=next(iter(usable), None))


class LogRow(NamedTuple):
    """A line of the log: its kind for people, the version that it is about, the version that its channel held before,
    what else it says, and the signer.
    """

    line: LogLine
    word: str
    version: Version | None
    before: Version | None
    words: Sequence[str]
    signer: str


class ModelPage:
    """A model, read lazily and once. NotFoundError, with similar names, if it does not exist."""

    def __init__(self, registry: ServedRegistry, name: str, index: IndexFile | None) -> None:
        if index is None:
            hint = suggest(name, registry.names(), "the first page lists those that are")
            raise NotFoundError(f"there is no model {name} here", hint)
        self._registry = registry
        self.name, self.log = name, registry.log_of(name, index)
        self.order = sorted(self.log.versions, reverse=True)

    @cached_property
    def lines(self) -> Sequence[LogLine]:
        """Every line of the log, its chain verified."""
        return list(self.log.lines())

    @cached_property
    def _lines_by_event(self) -> Mapping[Digest, LogLine]:
        return {line.event.id: line for line in self.lines}

    @cached_property
    def production(self) -> Sequence[ChannelStatus] | RegError:
        """The channels, judged as `resolve` does, or the reason why they cannot be judged."""
        try:
            return list(in_production(CheckedReader(self._registry, KnownHeads()), self.log, load_trust()))
        except RegError as error:
            return error

    def log_rows(self, before: int | None, count: int) -> list[LogRow]:
        """The last `count` lines before one (None: of the whole log), newest first; signers by this server's trust file.

        An attestation is about the version that published its manifest last, the end of a rollout about its version.
        """
        digests = {line.seq: line.digest for line in self.lines}
        judge = SignatureJudge(load_trust(), self._registry.registry_id, self.name, digests.get)
        publishers: dict[Digest, Version] = {}
        holders: dict[str, Version] = {}
        rollouts: dict[str, Version] = {}
        end = len(self.lines) if before is None else max(0, min(len(self.lines), before - 1))
        rows: list[LogRow] = []
        for line in self.lines[:end]:
            event, former = line.event, None
            version: Version | None = getattr(event, "version", None)
            if isinstance(event, Publish):
                publishers[event.manifest] = event.version
            elif isinstance(event, Attest):
                version = publishers.get(event.manifest)
            elif isinstance(event, Tag | Untag | RolloutStep):
                former = holders.get(event.tag)
                if isinstance(event, Tag):
                    holders[event.tag] = event.version
                elif isinstance(event, Untag):
                    holders.pop(event.tag, None)
                elif version is None:
                    version = rollouts.get(event.tag)
                else:
                    rollouts[event.tag] = version
            if line.seq > end - count:
                texts = words(event, line.seq, self._registry, judge)
                rows.append(LogRow(line, word_of(event), version, former, texts, str(judge.line(line))))
        return rows[::-1]

    def row(self, version: Version) -> VersionRow:
        """A version in the list of the model, with its states, the most serious first."""
        entry, summary = self.log.versions[version], self.log.state.effective_summary(version)
        by_event = self._lines_by_event
        states = [] if entry.gone is None else [Standing(entry.gone.how, by_event.get(entry.gone.event))]
        states += [Standing("yanked", by_event.get(event)) for event in sorted(entry.yanks)]
        if entry.is_refused(summary):
            artifacts = summary.artifacts if summary else ()
            refused, certified = (
                [artifact.path for artifact in artifacts if artifact.state == state]
                for state in ("refused", "certified")
            )
            is_part = 0 < len(refused) < len(artifacts)
            badge = f"{len(refused)} of {len(artifacts)} refused" if is_part else ""
            names = _named(refused) + (f". Certified: {_named(certified)}" if certified else "")
            states.append(Standing("refused", None, badge, names if refused else ""))
        flags = {"partial": entry.held is not None, "pinned": entry.pinned}
        states += [Standing(word) for word, is_set in flags.items() if is_set]
        channels = sorted(tag for tag, channel in self.log.channels.items() if channel.version == version)
        size = None if summary is None else total_size(summary, entry.held)
        published = self.lines[entry.seq - 1]
        return VersionRow(version, entry, channels, size, states, published, self.log.refused)

    def find(self, ref: Ref) -> VersionRow:
        """Find the version of a ref, even if yanked or gone. NotFoundError if it does not exist."""
        return self.row(self.log.find(ref, yanked=True, gone=True).version)

    def manifest(self, version: Version) -> Manifest | None:
        """A version's manifest; None if it was taken down with its files."""
        entry = self.log.versions[version]
        try:
            return self.log.manifest(version)
        except MissingBlobError:
            if entry.gone is None:
                raise
            return None

    def record(self, version: Version) -> HistoryEntry:
        """A version for the history of the model."""
        entry = self.log.versions[version]
        event = self.lines[entry.seq - 1].event
        return version_record(self.log.state, version, entry, self.manifest(version), event.time, event.actor)

    def proofs(self, manifest: Manifest, digest: Digest) -> dict[str, RecordedProof]:
        """The proofs on record of a version, by the paths of its artifacts; empty if one cannot be read."""
        try:
            return latest_proofs(self.log, digest, manifest, Trust())
        except RegError:
            return {}

    def parent_recalls(self, manifest: Manifest | None) -> Mapping[Digest, Mapping[str, float]]:
        """The recall of full precision by label, for each artifact with a report about exactly its bytes that states it."""
        recalls: dict[Digest, dict[str, float]] = {}
        for artifact in () if manifest is None else manifest.artifacts:
            recalls[artifact.digest] = {}
            evidence = artifact.certification.evidence
            if evidence is not None and evidence.report is not None:
                with suppress(RegError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    report = json.loads(read_blob(self._registry, evidence.report))
                    values = (report["fp_parent_per_label_recall"] or {}).items()
                    if report["artifact"]["int8_model_digest"] == str(artifact.digest):
                        figures = {str(label): float(value) for label, value in values if value is not None}
                        recalls[artifact.digest] = figures
        return recalls


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more
