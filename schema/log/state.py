"""The state line: the tables of one model, as far as questions need them, computed from the model's log.

`versions` has the newest versions, the versions of channels and rollouts, and the versions changed since the last sealing
(a dropped version too, until the next sealing); the checkpoint, a blob, has all versions up to that sealing. `segments` are
the sealed parts of the log, in order, `SEGMENT_LINES` lines each. `tombstones` are the blobs that were taken down and must
not return. `refused` are the artifacts that a later evaluation refused, in every version with these bytes. `speeds` are
measured latencies by manifest and artifact. The checkpoint has none, so that its bytes are those of earlier builds. Keys of the
state line that a later build added are kept and written back; see `registry.log.log`.

A staged rollout gives the next release of a channel to a share of its devices first; `schema.query.cohort` says which
devices take part. `docs/rollouts.md` is the specification.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Literal

from msgspec import Meta

from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, suggest
from onnxreg.schema.core.ref import Version, check_name, check_path, check_registry_id, check_tag
from onnxreg.schema.log.summary import Speed, VersionSummary, effective_state

SEGMENT_LINES = 64
SUMMARIZED_RELEASES = 4
"""The number of newest versions whose summaries are in the state line, besides the versions of channels."""
MAX_LISTED_VERSIONS = 5
"""The number of versions that an error names at most."""
Percent = Annotated[int, Meta(gt=0, le=100)] | Annotated[float, Meta(gt=0, le=100)]
Salt = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The random text of a rollout, from which its devices are chosen."""


def check_held(paths: tuple[str, ...]) -> None:
    """Raise InputError unless these are the paths of artifacts, sorted and different."""
    if not paths or list(paths) != sorted(set(map(check_path, paths))):
        raise InputError("not a sorted list of different paths")


class Gone(Record, frozen=True):
    """The reason why a version has no files (expired, purged or dropped), and the id of the event that says so."""

    how: Literal["expired", "purged", "dropped"]
    event: Digest


class VersionEntry(Record, frozen=True):
    """One version: its manifest, the manifest's size in bytes, and the number of the line that published the version.

    `yanks` has the ids, ascending, of the yank events in effect on the manifest; a version with any of them is yanked.
    `held` has the paths of the artifacts in this registry; None means all artifacts. `attested` maps an artifact's digest
    to the worst verdict of later evaluations. `deltas` is the digest of the table of deltas.
    """

    manifest: Digest
    size: Count
    seq: Count
    yanks: tuple[Digest, ...] = ()
    pinned: bool = False
    gone: Gone | None = None
    held: tuple[str, ...] | None = None
    attested: dict[Digest, str] = {}
    deltas: Digest | None = None

    def __post_init__(self) -> None:
        if self.held:
            check_held(self.held)

    @property
    def yanked(self) -> bool:
        return bool(self.yanks)

    @property
    def usable(self) -> bool:
        return not self.yanks and self.gone is None

    @property
    def dropped(self) -> bool:
        return self.gone is not None and self.gone.how == "dropped"

    def status(self, summary: VersionSummary | None) -> str:
        """The status in one word for people: expired, purged, dropped, yanked, refused (if one artifact is), pinned,
        partial, or an empty text.

        `summary`: the version's summary with the effective states of its artifacts; None if it is not known.
        """
        if self.gone is not None:
            return self.gone.how
        words = {"yanked": self.yanked, "refused": self.is_refused(summary)}
        words |= {"pinned": self.pinned, "partial": self.held is not None}
        return next((word for word, holds in words.items() if holds), "")

    def is_refused(self, summary: VersionSummary | None) -> bool:
        """True if the manifest or a later evaluation refuses an artifact; `summary` as in `status`."""
        states = {artifact.state for artifact in summary.artifacts} if summary else set()
        return effective_state("", *states, *self.attested.values()) == "refused"


class Channel(Record, frozen=True):
    """The version of a channel, and the number of the line that moved the channel to it.

    `policy` and `evidence` are copied from that line's event, if it has them.
    """

    version: Version
    manifest: Digest
    seq: Count
    policy: Digest | None = None
    evidence: Digest | None = None


class Rollout(Record, frozen=True):
    """The rollout of a channel: the version, the share of the devices in percent, and the number of the latest line about it.

    `where` is an expression over the device document; `policy` and `evidence` are set, as in `Tag`, if a policy governs the
    channel.
    """

    to: Version
    manifest: Digest
    percent: Percent
    salt: Salt
    seq: Count
    where: str | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __post_init__(self) -> None:
        check_percent(self.percent)

    def __str__(self) -> str:
        cohort = f" with {self.where}" if self.where else ""
        return f"{self.to} is being rolled out to {self.percent:g} % of the devices{cohort}"


def check_percent(share: float) -> float:
    """Return a share in percent unchanged; raise InputError unless 0 < share <= 100 with at most two decimals."""
    if not 0 < share <= 100 or round(share * 100) != round(share * 100, 6):
        hint = "write a number from 0.01 to 100 with at most two decimals"
        raise InputError(f"not a percentage: {str(share)[:40]}", hint)
    return share


Speeds = dict[Digest, dict[Digest, tuple[Speed, ...]]]
"""For each manifest and artifact the newest speed on each class of machine, in the order of their lines."""


class Checkpoint(Record, frozen=True):
    """The tables of a model after a sealed line: a blob that sealing writes. Later lines update these tables.

    `versions` has every version but the dropped ones.
    """

    versions: dict[Version, VersionEntry] = {}
    channels: dict[str, Channel] = {}
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: dict[str, Rollout] = {}


class State(Record, frozen=True, dict=True):
    """The state line; see the module."""

    registry: str
    name: str
    seq: Count
    head: Digest
    channels: dict[str, Channel]
    versions: dict[Version, VersionEntry]
    summaries: dict[Version, VersionSummary]
    segments: tuple[Digest, ...]
    checkpoint: Digest | None = None
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: dict[str, Rollout] = {}
    speeds: Speeds = {}

    def __post_init__(self) -> None:
        check_registry_id(self.registry)
        check_name(self.name)
        for tag in (*self.channels, *self.rollouts):
            check_tag(tag)

    def verdicts(self, entry: VersionEntry | None) -> Mapping[Digest, str]:
        """The verdict of later evaluations on each artifact, by digest. A refusal wins.

        `entry`: the version's entry, or None if only the checkpoint has it; then only refusals are known.
        """
        attested = {} if entry is None else entry.attested
        return {**attested, **dict.fromkeys(self.refused, "refused")} if self.refused else attested

    def effective_summary(self, version: Version) -> VersionSummary | None:
        """The summary of a version with the effective states of its artifacts; None if the state line lacks the summary."""
        summary = self.summaries.get(version)
        if summary is None:
            return None
        verdicts = self.verdicts(self.versions.get(version))
        return summary.after(verdicts, self.speeds.get(summary.manifest, {}))

    def speeds_until(self, seq: int) -> Speeds:
        """The speeds of the lines up to line `seq`."""
        tables: Speeds = {}
        for manifest, table in self.speeds.items():
            for artifact, speeds in table.items():
                if earlier := tuple(speed for speed in speeds if speed.seq <= seq):
                    tables.setdefault(manifest, {})[artifact] = earlier
        return tables

    @cached_property
    def newest(self) -> tuple[Version, ...]:
        """The newest usable versions, computed from `versions`, which always includes them."""
        return newest_of(self.versions)

    def newest_release(self) -> Version | None:
        """The newest usable version that is not a pre-release; None if there is none."""
        return next((version for version in self.newest if not version.is_prerelease), None)


def newest_of(
    entries: Mapping[Version, VersionEntry], count: int = SUMMARIZED_RELEASES
) -> tuple[Version, ...]:
    """The newest usable versions: the first `count` releases, and up to `count` of the pre-releases above these.

    Versions are sorted by SemVer precedence, then by the number of the publishing line; never by time.
    """
    ranked = [(version.precedence, entry.seq, version) for version, entry in entries.items() if entry.usable]
    usable = [version for *_, version in sorted(ranked, key=itemgetter(0, 1), reverse=True)]
    releases = [version for version in usable if not version.is_prerelease][:count]
    above = usable[: usable.index(releases[0])] if releases else usable
    return tuple(above[:count] + releases)


def version_of(state: State, tag: str) -> Version:
    """The version that a tag means, known or not. Raise NotFoundError if the tag is neither a version nor a channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels and tag[:1].isdigit():
        raise no_version(state.name, f"version {tag}", state.versions, "a version has three numbers; ")
    if tag not in state.channels:
        bare = f"; without a tag the newest is meant: {state.name}"
        raise no_channel(state.name, tag, state.channels, bare)
    return state.channels[tag].version


def no_version(
    name: str, subject: str, entries: Mapping[Version, VersionEntry], rule: str = ""
) -> NotFoundError:
    """The error for a model that lacks `subject`, such as `version 9.0.0`.

    The hint is `rule`, followed by the newest versions among `entries`.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)
    shown = newest[:MAX_LISTED_VERSIONS]
    names = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in shown]
    are = "its only version is" if len(names) == 1 else "its newest are"
    return NotFoundError(f"{name} has no {subject}", f"{rule}{are} {', '.join(names)}" if names else "")


def no_channel(name: str, tag: str, channels: Collection[str], more: str = "") -> NotFoundError:
    """The error for a model that lacks this channel; `more` follows the list of the model's channels in the hint."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has no channels yet"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed + more))
