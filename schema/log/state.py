"""The state line: what is true of one model now. It always equals a replay of the model's log.

    {"registry", "name", "seq", "head", "channels", "versions", "catalog"?, "newest", "summaries", "segments",
     "tombstones"?, "refused"?, "rollouts"?}

`versions` holds the newest versions, those that channels hold, and those touched since the last sealing; all
that were sealed are in the catalog, a blob. A version that was dropped is here until the next sealing,
so that the catalog's older entry of it does not count. `newest` lists the newest usable versions, by SemVer
precedence; it is written for older readers and never read. `segments` are the sealed parts of the log, in
order, `SEGMENT_LINES` lines each. Keys at this level that a later build added are kept in `more` and written
back. `tombstones` are the blobs that were taken down and must not come back. `refused` are the artifacts that
a later evaluation refused: in every version that has these bytes. `rollouts` are the channels of which some
devices get the next release already.

A staged rollout gives the next release of a channel to a share of its devices first; `schema.query.cohort` says which
devices take part. `docs/rollouts.md` is the specification.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import (
    array_of,
    count,
    flag,
    items,
    mapping,
    nullable,
    number,
    optional,
    pick,
    record,
    required,
    sorted_paths,
    table_of,
    text,
)
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, suggest
from onnxreg.schema.core.ref import Version, check_name, check_registry_id, check_tag
from onnxreg.schema.log.summary import VersionSummary, effective_state, known_summary

SEGMENT_LINES = 64
SUMMARIZED_RELEASES = 4
"""The newest versions that have their summaries in the state line, beside the channel holders."""
MAX_LISTED_VERSIONS = 5
"""The most versions that an error names."""
GONE = ("expired", "purged", "dropped")
"""The ways in which a version loses its files: by a retention policy, by a takedown, or dropped."""

_SALT = re.compile(r"[0-9a-f]{32}")


class Gone(NamedTuple):
    """The reason for which the files of a version are gone, and the id of the event that says so."""

    how: str
    event: Digest

    @classmethod
    def read(cls, value: Any) -> "Gone":
        return _GONE(value)


def _how(value: Any) -> str:
    how = text(value)
    if how not in GONE:
        raise InputError(f"a version is gone in an unknown way: {how[:40]!r}", "upgrade this onnxreg")
    return how


_GONE = record(Gone, {"how": _how, "event": Digest.parse})


class VersionEntry(NamedTuple):
    """One version: its manifest, the manifest's size in bytes, the line that published it.

    `yanks` are the ids of the yank events of its manifest that were not taken back; a version is yanked while there
    are any.
    `held` are the paths of the artifacts that are here, if these are not all (None). `attested` has the
    worst verdict of later evaluations on an artifact, by the artifact's digest. `deltas` is the table of its deltas.
    """

    manifest: Digest
    size: int
    seq: int
    yanks: frozenset[Digest] = frozenset()
    pinned: bool = False
    gone: Gone | None = None
    held: tuple[str, ...] | None = None
    attested: Mapping[Digest, str] = {}
    deltas: Digest | None = None

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
        """One word for people: gone in some way, yanked, refused (an artifact is), pinned, partial, or
        nothing.

        `summary`: the version's, if it is known, with the effective states of its artifacts.
        """
        if self.gone is not None:
            return self.gone.how
        words = {
            "yanked": self.yanked,
            "refused": self.is_refused(summary),
            "pinned": self.pinned,
            "partial": self.held is not None,
        }
        return next((word for word, holds in words.items() if holds), "")

    def is_refused(self, summary: VersionSummary | None) -> bool:
        """Return True if an artifact is refused, by the manifest or later; see `status`."""
        states = {artifact.state for artifact in summary.artifacts} if summary else set()
        return effective_state("", *states, *self.attested.values()) == "refused"

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"manifest": str(self.manifest), "size": self.size, "seq": self.seq}
        if self.yanks:
            value["yanks"] = sorted(map(str, self.yanks))
        if self.pinned:
            value["pinned"] = True
        if self.gone is not None:
            value["gone"] = {"how": self.gone.how, "event": str(self.gone.event)}
        if self.held is not None:
            value["held"] = list(self.held)
        if self.attested:
            value["attested"] = {str(artifact): state for artifact, state in self.attested.items()}
        if self.deltas is not None:
            value["deltas"] = str(self.deltas)
        return value

    @classmethod
    def read(cls, value: Any) -> "VersionEntry":
        return _ENTRY(value)


_ENTRY = record(
    VersionEntry,
    {"manifest": Digest.parse, "size": count, "seq": count},
    {
        "yanks": lambda value: frozenset(items(value, Digest.parse)),
        "pinned": flag,
        "gone": nullable(Gone.read),
        "held": nullable(sorted_paths),
        "attested": table_of(Digest.parse, text),
        "deltas": nullable(Digest.parse),
    },
)


class Channel(NamedTuple):
    """The version that a channel holds, and the line that moved it there.

    `policy`, `evidence`: those of that event, if any.
    """

    version: Version
    manifest: Digest
    seq: int
    policy: Digest | None = None
    evidence: Digest | None = None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "version": str(self.version),
            "manifest": str(self.manifest),
            "seq": self.seq,
        }
        proof = {"policy": self.policy, "evidence": self.evidence}
        return value | {key: str(digest) for key, digest in proof.items() if digest is not None}

    @classmethod
    def read(cls, value: Any) -> "Channel":
        return _CHANNEL(value)


_CHANNEL = record(
    Channel,
    {"version": lambda value: Version.parse(text(value)), "manifest": Digest.parse, "seq": count},
    {"policy": nullable(Digest.parse), "evidence": nullable(Digest.parse)},
)


class Rollout(NamedTuple):
    """The rollout of a channel: to which version, for which share of the devices, and the line that said so last.

    `where` is an expression over the device document; `policy` and `evidence` are those of a promotion if the channel
    is governed.
    """

    to: Version
    manifest: Digest
    percent: float
    salt: str
    seq: int
    where: str | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __str__(self) -> str:
        cohort = f" with {self.where}" if self.where else ""
        return f"{self.to} is being rolled out to {self.percent:g} % of the devices{cohort}"

    def to_json(self) -> dict[str, Any]:
        value = {
            "to": str(self.to),
            "manifest": str(self.manifest),
            "percent": self.percent,
            "salt": self.salt,
            "seq": self.seq,
            "where": self.where,
            "policy": None if self.policy is None else str(self.policy),
            "evidence": None if self.evidence is None else str(self.evidence),
        }
        return {key: item for key, item in value.items() if item is not None}

    @classmethod
    def read(cls, value: Any) -> "Rollout":
        """Read the state line's value. InputError if it is malformed."""
        return _ROLLOUT(value)


def percent(value: Any) -> float:
    """A share in percent: more than 0, at most 100, with at most two decimals."""
    share = number(value)
    if not 0 < share <= 100 or round(share * 100) != round(share * 100, 6):
        raise InputError(
            f"not a percentage: {str(value)[:40]}",
            "write a number from 0.01 to 100 with at most two decimals",
        )
    return int(share) if share == int(share) else share


def salt(value: Any) -> str:
    """The random text of a rollout: 32 hex digits."""
    if not isinstance(value, str) or not _SALT.fullmatch(value):
        raise InputError("the salt of a rollout is not 32 lower-case hex digits")
    return value


_ROLLOUT = record(
    Rollout,
    {
        "to": lambda value: Version.parse(text(value)),
        "manifest": Digest.parse,
        "percent": percent,
        "salt": salt,
        "seq": count,
    },
    {"where": nullable(text), "policy": nullable(Digest.parse), "evidence": nullable(Digest.parse)},
)


@dataclass(frozen=True)
class State:
    """The decoded state line. Summaries stay JSON until they are asked for, and are read once."""

    registry: str
    name: str
    seq: int
    head: Digest
    channels: dict[str, Channel]
    versions: dict[Version, VersionEntry]
    summaries: dict[str, Any]
    segments: tuple[Digest, ...]
    catalog: Digest | None = None
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)
    _read: dict[Version, VersionSummary | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "registry": self.registry,
            "name": self.name,
            "seq": self.seq,
            "head": str(self.head),
            "channels": {tag: channel.to_json() for tag, channel in self.channels.items()},
            "versions": entries_to_json(self.versions),
            "newest": [str(version) for version in self.newest],
            "summaries": self.summaries,
            "segments": [str(segment) for segment in self.segments],
        }
        if self.catalog is not None:
            value["catalog"] = str(self.catalog)
        if self.tombstones:
            value["tombstones"] = [str(blob) for blob in self.tombstones]
        if self.refused:
            value["refused"] = [str(artifact) for artifact in self.refused]
        if self.rollouts:
            value["rollouts"] = {tag: rollout.to_json() for tag, rollout in self.rollouts.items()}
        return {**self.more, **value}

    @classmethod
    def decode(cls, line: bytes) -> "State":
        """Read a state line; InputError if it is malformed."""
        value = mapping(canonical.decode(line, "its state line"))
        return _STATE({**value, "more": {key: item for key, item in value.items() if key not in STATE_KEYS}})

    def verdicts(self, entry: VersionEntry | None) -> Mapping[Digest, str]:
        """The verdicts of later evaluations on artifacts. A refusal wins.

        `entry`: None if the version's is in the catalog; then only refusals are known.
        """
        attested = {} if entry is None else entry.attested
        return {**attested, **dict.fromkeys(self.refused, "refused")} if self.refused else attested

    def effective_summary(self, version: Version) -> VersionSummary | None:
        """The summary of a version, if the state line holds it, with what later evaluations say of its
        artifacts."""
        summary = self.summary(version)
        return None if summary is None else summary.after(self.verdicts(self.versions.get(version)))

    def summary(self, version: Version) -> VersionSummary | None:
        """The summary of a version, if the state line holds it. Raise InputError if it is malformed."""
        if version not in self._read:
            self._read[version] = optional(self.summaries.get(str(version)), VersionSummary.read)
        return self._read[version]

    @cached_property
    def newest(self) -> tuple[Version, ...]:
        """The newest usable versions. They follow from `versions`, which always holds them."""
        return newest_of(self.versions)

    def newest_release(self) -> Version | None:
        """The newest version that is neither yanked nor a pre-release."""
        return next((version for version in self.newest if not version.is_prerelease), None)


read_entries = table_of(Version.parse, _ENTRY)
"""The version table of a state line or catalog. Raise InputError if it is malformed."""
_STATE = record(
    State,
    {
        "registry": lambda value: check_registry_id(text(value)),
        "name": lambda value: check_name(text(value)),
        "seq": count,
        "head": Digest.parse,
        "channels": table_of(check_tag, _CHANNEL),
        "versions": read_entries,
        "summaries": mapping,
        "segments": array_of(Digest.parse),
    },
    {
        "catalog": nullable(Digest.parse),
        "tombstones": array_of(Digest.parse),
        "refused": array_of(Digest.parse),
        "rollouts": table_of(check_tag, Rollout.read),
        "more": mapping,
    },
)
STATE_KEYS = frozenset(item.name for item in fields(State)) - {"more", "_read"} | {"newest"}
ENTRY_KEYS = frozenset(VersionEntry._fields)


def known_part(value: Any) -> dict[str, Any]:
    """The JSON of a state line without the keys that this build does not know.

    Raise InputError if it is malformed.
    """
    part = pick(value, STATE_KEYS)
    tables: Mapping[str, Callable[[Any], Any]] = {
        "channels": lambda channel: pick(channel, Channel._fields),
        "versions": lambda entry: pick(entry, ENTRY_KEYS),
        "summaries": known_summary,
    }
    for key, read in tables.items():
        part[key] = {name: read(item) for name, item in mapping(required(part, key)).items()}
    return part


def entries_to_json(entries: Mapping[Version, VersionEntry]) -> dict[str, Any]:
    return {str(version): entry.to_json() for version, entry in entries.items()}


def newest_of(
    entries: Mapping[Version, VersionEntry], count: int = SUMMARIZED_RELEASES
) -> tuple[Version, ...]:
    """The newest usable versions: the first `count` releases, and as many of the pre-releases above them.

    Order is by SemVer precedence, then by the line that published them; never by clock.
    """
    ranked = [(version.precedence, entry.seq, version) for version, entry in entries.items() if entry.usable]
    usable = [version for *_, version in sorted(ranked, key=itemgetter(0, 1), reverse=True)]
    releases = [version for version in usable if not version.is_prerelease][:count]
    above = usable[: usable.index(releases[0])] if releases else usable
    return tuple(above[:count] + releases)


def version_of(state: State, tag: str) -> Version:
    """The version that a tag means, known or not. Raise NotFoundError if it is neither a version nor a channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels and Version.nearest(tag):
        raise no_version(state.name, f"version {tag}", state.versions, "a version has three numbers; ")
    if tag not in state.channels:
        raise no_channel(
            state.name, tag, state.channels, f"; without a tag the newest is meant: {state.name}"
        )
    return state.channels[tag].version


def no_version(
    name: str, subject: str, entries: Mapping[Version, VersionEntry], rule: str = ""
) -> NotFoundError:
    """The error for a model that has no `subject`, such as `version 9.0.0`.

    After the `rule` the newest of its entries are named.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)[
        :MAX_LISTED_VERSIONS
    ]
    names = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in newest]
    return NotFoundError(
        f"{name} has no {subject}", f"{rule}{_newest(names)} {', '.join(names)}" if names else ""
    )


def _newest(names: Sequence[str]) -> str:
    return "its only version is" if len(names) == 1 else "its newest are"


def no_channel(name: str, tag: str, channels: Collection[str], more: str = "") -> NotFoundError:
    """The error for a model that has no such channel; `more` goes behind the list of those that it has."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has no channels yet"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed + more))
