"""What the pages show of a model, a version and a difference. Plain data for the templates; nothing is read here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxreg.registry.search import listing
from onnxreg.registry.server.pages.log_view import LogView
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.manifest.draft import NOT_EVALUATED
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest

RECALL = "character_recall/"


@dataclass(frozen=True)
class VersionStanding:
    """A word for what became of a version, and the line of the log that says so, where one alone does."""

    word: str
    line: LogLine | None = None


@dataclass(frozen=True)
class VersionRow:
    """One version in a list. `size`: bytes of what is held, None where the index file does not know it."""

    version: Version
    entry: VersionEntry
    channels: Sequence[str]
    size: int | None
    standings: Sequence[VersionStanding]
    published: LogLine | None


@dataclass(frozen=True)
class ChannelRow:
    """What a channel holds, and the line that moved it there."""

    tag: str
    version: Version
    line: LogLine | None


@dataclass(frozen=True)
class LogRow:
    """A line of the log. `version`: whom it is about; `before`: what the channel held, where a channel moves."""

    line: LogLine
    version: Version | None
    before: Version | None


@dataclass(frozen=True)
class Recall:
    """The measured recall of one label, 0 to 1, on so many spans."""

    label: str
    value: float
    samples: int | None
    verdict: str


def standings(entry: VersionEntry, history: LogView | None) -> list[VersionStanding]:
    """All that became of a version, the gravest first."""

    def said(event: Digest) -> LogLine | None:
        return None if history is None else history.of(event)

    found = [] if entry.gone is None else [VersionStanding(entry.gone.how, said(entry.gone.event))]
    found += [VersionStanding("yanked", said(event)) for event in sorted(entry.yanks)]
    found += [VersionStanding("partial")] if entry.held is not None else []
    return found + ([VersionStanding("pinned")] if entry.pinned else [])


def version_rows(
    state: State, entries: Mapping[Version, VersionEntry], history: LogView | None
) -> list[VersionRow]:
    """Some versions of a model, newest first."""
    told = listing.versions_json(state, entries)["versions"]
    rows = []
    for item in told:
        version = Version.parse(item["version"])
        entry = entries[version]
        published = None if history is None else history.at(entry.seq)
        size = item.get("size")
        rows.append(VersionRow(version, entry, item["channels"], size, standings(entry, history), published))
    return rows


def channel_rows(state: State, history: LogView | None) -> list[ChannelRow]:
    return [
        ChannelRow(tag, channel.version, None if history is None else history.at(channel.seq))
        for tag, channel in sorted(state.channels.items())
    ]


def log_rows(lines: Sequence[LogLine], entries: Mapping[Version, VersionEntry]) -> Iterator[LogRow]:
    """Lines of a log, each with the versions that it is about."""
    by_manifest = {entry.manifest: version for version, entry in entries.items()}
    for line in lines:
        expected: Digest | None = getattr(line.event, "expects", None)
        manifest: Digest | None = getattr(line.event, "manifest", None)
        version = getattr(line.event, "version", None) or (by_manifest.get(manifest) if manifest else None)
        yield LogRow(line, version, by_manifest.get(expected) if expected else None)


def recalls(artifact: Artifact) -> list[Recall]:
    """The measured recall of every label, in the order of the manifest."""
    return [
        Recall(check.name.removeprefix(RECALL), check.value, check.samples, check.verdict)
        for check in artifact.checks
        if check.name.startswith(RECALL) and check.value is not None
    ]


def reasons(artifact: Artifact) -> Sequence[str]:
    """Why a verdict is what it is, where somebody measured."""
    told = artifact.certification.reasons
    return () if told == NOT_EVALUATED.reasons else told


def all_files(manifest: Manifest) -> list[FileEntry]:
    """Sidecars, then companions."""
    return [entry for artifact in manifest.artifacts for entry in artifact.files] + list(manifest.files)


@dataclass(frozen=True)
class VersionView:
    """One of two versions that are compared."""

    ref: Ref
    manifest: Manifest
    row: VersionRow


@dataclass(frozen=True)
class ArtifactPair:
    """The artifacts of one path on both sides; None where a side has none."""

    path: str
    old: Artifact | None
    new: Artifact | None

    @property
    def is_comparable(self) -> bool:
        """Whether both were measured on one suite, as far as is known: else one value tells nothing of the other."""
        evidence = (side.certification.evidence for side in (self.old, self.new) if side is not None)
        return len({each.suite for each in evidence if each is not None and each.suite is not None}) < 2

    def recalls(self) -> list[tuple[str, Recall | None, Recall | None]]:
        """Every label that was measured on a side, with what was measured there."""
        old, new = (
            {item.label: item for item in recalls(side)} if side else {} for side in (self.old, self.new)
        )
        return [(label, old.get(label), new.get(label)) for label in dict.fromkeys([*old, *new])]


def artifact_pairs(before: Manifest, after: Manifest) -> list[ArtifactPair]:
    """The artifacts of both, those of one path side by side."""
    old, new = ({item.path: item for item in side.artifacts} for side in (before, after))
    return [ArtifactPair(path, old.get(path), new.get(path)) for path in dict.fromkeys([*old, *new])]


@dataclass(frozen=True)
class ComparisonView:
    """Two versions, side by side."""

    old: VersionView
    new: VersionView
    diff: ManifestDiff

    def pairs(self) -> list[ArtifactPair]:
        return artifact_pairs(self.old.manifest, self.new.manifest)
