"""View models of a model, a version and a difference: plain data for the templates; nothing is read here."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxreg.registry.gates.statements import StatementReader, word_of
from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.search import listing
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import SignatureJudge
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview, overview
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.table import Delta
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest, Publish, RolloutStep, Tag, Untag
from onnxreg.schema.log.logline import LogLine, LogLineHeader
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import (
    RECALL,
    ArtifactState,
    ArtifactStates,
    VersionSummary,
    artifact_states,
    verdicts_of,
)
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.parts import Check
from onnxreg.schema.manifest.vocabulary import LOSS, UNJUDGED


class LogView:
    """Every line of a ledger. IntegrityError if the chain is broken."""

    def __init__(self, ledger: Ledger) -> None:
        self._lines = list(ledger.skim())
        self._seq_by_event = {line.event_id: line.seq for line in self._lines}

    def __len__(self) -> int:
        return len(self._lines)

    def published(self, manifest: Digest, until: int) -> Version | None:
        """The version that published a manifest last before a line, or else first."""
        named = str(manifest)
        seqs = [line.seq for line in self._lines if line.kind == Publish.kind and line.manifest == named]
        seq = max((seq for seq in seqs if seq < until), default=min(seqs, default=0))
        line = self.at(seq)
        return line.event.version if line is not None and isinstance(line.event, Publish) else None

    @property
    def headers(self) -> Sequence[LogLineHeader]:
        return self._lines

    @cached_property
    def held_before(self) -> Mapping[int, Version]:
        """The version that the channel of a line held before it, by the line's number."""
        holders: dict[str, Version] = {}
        before: dict[int, Version] = {}
        for header in self._lines:
            if header.kind in (Tag.kind, Untag.kind, RolloutStep.kind):
                event = _decoded(header).event
                assert isinstance(event, Tag | Untag | RolloutStep), "its kind says so"
                holder = holders.pop(event.tag, None)
                if holder is not None:
                    before[header.seq] = holder
                after = event.version if isinstance(event, Tag) else holder
                if after is not None and not isinstance(event, Untag):
                    holders[event.tag] = after
        return before

    @cached_property
    def halted(self) -> Mapping[int, Version]:
        """The version whose rollout a line ended, by the line's number."""
        begun: dict[str, Version] = {}
        halted: dict[int, Version] = {}
        for header in self._lines:
            if header.kind == RolloutStep.kind:
                event = _decoded(header).event
                assert isinstance(event, RolloutStep), "its kind says so"
                if event.version is not None:
                    begun[event.tag] = event.version
                elif event.tag in begun:
                    halted[header.seq] = begun[event.tag]
        return halted

    @property
    def head(self) -> Digest:
        return self._lines[-1].digest

    def at(self, seq: int) -> LogLine | None:
        """A line by its number, which begins at 1."""
        return _decoded(self._lines[seq - 1]) if 1 <= seq <= len(self._lines) else None

    def of(self, event: Digest) -> LogLine | None:
        """The line with an event, by the event's id."""
        return self.at(self._seq_by_event.get(event, 0))

    def before(self, seq: int | None, count: int) -> Sequence[LogLine]:
        """The last `count` lines before one (None: of the whole log), newest first."""
        end = len(self._lines) if seq is None else max(0, min(len(self._lines), seq - 1))
        return [_decoded(line) for line in reversed(self._lines[max(0, end - count) : end])]


def _decoded(line: LogLineHeader) -> LogLine:
    try:
        return LogLine.decode(line.raw)
    except InputError as error:
        raise IntegrityError(
            f"line {line.seq} of the log cannot be read: {error.message}", error.advice
        ) from error


NO_PARENTS: Mapping[str, float] = {}
MAX_NAMED = 3
"""Artifacts that a note names."""


@dataclass(frozen=True)
class VersionStanding:
    """A word for the state of a version, and the line of the log that set it, if it is only one.

    `badge` is the text of its badge, `artifacts` are the artifacts that it is about.
    """

    word: str
    line: LogLine | None = None
    badge: str = ""
    artifacts: str = ""

    @property
    def text(self) -> str:
        return self.badge or self.word


@dataclass(frozen=True)
class VersionRow:
    """One version in a list. `size`: bytes of its present files, None if the index file does not have it."""

    version: Version
    entry: VersionEntry
    channels: Sequence[str]
    size: int | None
    standings: Sequence[VersionStanding]
    published: LogLine | None
    refused: Collection[Digest]

    @property
    def revision(self) -> str:
        """The name that gets the files: the version, or the manifest's digest if it is yanked."""
        return str(self.entry.manifest if self.entry.yanked else self.version)

    def has_files(self, artifact: Artifact) -> bool:
        """Return True if the files of an artifact are here."""
        paths = self.entry.held
        return self.entry.gone is None and (paths is None or artifact.path in paths)

    def best_artifact(self, manifest: Manifest) -> Artifact | None:
        """The smallest certified artifact that is here, else the first that is not refused."""
        states = self.states(manifest)
        present = [item for item in manifest.entry_artifacts if self.has_files(item)]
        sound = [item for item in present if states[item.path].state != "refused"]
        certified = [item for item in sound if states[item.path].state == "certified"]
        return min(certified, key=lambda item: item.own_size, default=next(iter(sound), None))

    def states(self, manifest: Manifest) -> dict[str, ArtifactState]:
        """The state of each artifact, by its path."""
        return {
            artifact.path: artifact
            for artifact in artifact_states(verdicts_of(manifest), self.entry.attested, self.refused)
        }


@dataclass(frozen=True)
class LogRow:
    """A line of the log: its kind for people, the version that it is about, the version that its channel held before,
    what else it says, and the signer.
    """

    line: LogLine
    word: str
    version: Version | None
    before: Version | None
    words: Sequence[str]
    signer: str


@dataclass(frozen=True)
class Recall:
    """The measured recall of one label, 0 to 1, on so many spans; `parent` is that of full precision, if it is known."""

    label: str
    value: float
    samples: int | None
    verdict: str
    parent: float | None = None

    @property
    def loss(self) -> float | None:
        """The recall that was lost; below 0 if it was won."""
        return None if self.parent is None else self.parent - self.value


def standings(
    entry: VersionEntry, summary: VersionSummary | None, history: LogView | None
) -> list[VersionStanding]:
    """The states of a version, the most serious first."""

    def line_of(event: Digest) -> LogLine | None:
        return None if history is None else history.of(event)

    rows = [] if entry.gone is None else [VersionStanding(entry.gone.how, line_of(entry.gone.event))]
    rows += [VersionStanding("yanked", line_of(event)) for event in sorted(entry.yanks)]
    rows += [_refusal(summary)] if entry.is_refused(summary) else []
    rows += [VersionStanding("partial")] if entry.held is not None else []
    return rows + ([VersionStanding("pinned")] if entry.pinned else [])


def _refusal(summary: VersionSummary | None) -> VersionStanding:
    """The refused artifacts and the certified ones by name; without names if the index file has no summary."""
    artifacts = summary.artifacts if summary else ()
    refused, certified = (
        [artifact.path for artifact in artifacts if artifact.state == state]
        for state in ("refused", "certified")
    )
    if not refused:
        return VersionStanding("refused")
    badge = "refused" if len(refused) == len(artifacts) else f"{len(refused)} of {len(artifacts)} refused"
    names = _named(refused) + (f". Certified: {_named(certified)}" if certified else "")
    return VersionStanding("refused", None, badge, names)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more


def version_rows(
    state: State, entries: Mapping[Version, VersionEntry], history: LogView | None
) -> list[VersionRow]:
    """Some versions of a model, newest first."""
    listed = listing.versions_json(state, entries)["versions"]
    rows = []
    for item in listed:
        version = Version.parse(item["version"])
        entry = entries[version]
        published = None if history is None else history.at(entry.seq)
        size = item.get("size")
        words = standings(entry, lookup.held_summary(state, version), history)
        rows.append(VersionRow(version, entry, item["channels"], size, words, published, state.refused))
    return rows


def log_rows(
    reader: RegistryReader, name: str, history: LogView, lines: Sequence[LogLine], trust: Trust
) -> Iterator[LogRow]:
    """Lines of a log as their events say it. An attestation is about the version that published its manifest last."""
    statements = StatementReader(reader, name, history.headers, trust)
    digests = {header.seq: header.digest for header in history.headers}
    judge = SignatureJudge(trust, reader.registry_id, name, digests.get)
    for line in lines:
        event = line.event
        version = history.published(event.manifest, line.seq) if isinstance(event, Attest) else None
        yield LogRow(
            line,
            word_of(event),
            version or getattr(event, "version", None) or history.halted.get(line.seq),
            history.held_before.get(line.seq),
            statements.words(event, line.seq),
            str(judge.line(line)),
        )


def recalls(artifact: Artifact, parents: Mapping[str, float] = NO_PARENTS) -> list[Recall]:
    """The measured recall of every label, in the order of the manifest. `parents`: that of full precision."""
    checks = {
        check.name.removeprefix(RECALL): check
        for check in artifact.checks
        if check.name.startswith(RECALL) and check.value is not None
    }
    return [
        Recall(label, check.value, check.samples, check.verdict, parents.get(label))
        for label, check in checks.items()
        if check.value is not None
    ]


def largest_loss(artifact: Artifact) -> Check | None:
    """The check of the largest loss of recall, whose limit is that of every label."""
    return next((check for check in artifact.checks if check.name == LOSS), None)


def reasons(artifact: Artifact) -> Sequence[str]:
    """The reasons of a verdict, if somebody measured."""
    texts = artifact.certification.reasons
    return () if texts == UNJUDGED else texts


def all_files(manifest: Manifest) -> list[FileEntry]:
    """Sidecars, then companions."""
    return [entry for artifact in manifest.artifacts for entry in artifact.files] + list(manifest.files)


def absent_files(row: VersionRow, manifest: Manifest) -> set[str]:
    """The paths of the sidecars of artifacts that are not here."""
    present = {entry.path for entry in manifest.files}
    present |= {entry.path for item in manifest.artifacts if row.has_files(item) for entry in item.files}
    return {entry.path for entry in all_files(manifest)} - present


@dataclass(frozen=True)
class UpdateRow:
    """A delta that a version offers, and its file."""

    file: FileEntry
    delta: Delta

    def seconds(self, megabits: int) -> float:
        """The time that the delta takes at a rate in Mbit/s."""
        return self.delta.size * 8 / (megabits * 1e6)


def update_rows(deltas: Iterable[Delta], manifest: Manifest) -> list[UpdateRow]:
    """The deltas that a version offers of its files, the smallest first."""
    files = {file.digest: file for file in manifest.all_files()}
    return [UpdateRow(files[delta.new], delta) for delta in deltas if delta.new in files]


@dataclass(frozen=True)
class VersionView:
    """One of two versions that are compared."""

    ref: Ref
    manifest: Manifest
    row: VersionRow

    @property
    def states(self) -> ArtifactStates:
        return tuple(self.row.states(self.manifest).values())


@dataclass(frozen=True)
class ComparisonView:
    """Two versions, side by side."""

    old: VersionView
    new: VersionView
    diff: ManifestDiff

    @cached_property
    def screen(self) -> DiffOverview:
        return overview(self.old, self.new, self.diff)
