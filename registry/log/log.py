"""One model's log in one registry: read it from an index file, query it, extend it, and write it back.

A `Log` has the lines (each with an event), and the state that follows from them. `Replay` computes the state.

New lines form the *tail*. When it has 64 lines, the next line *seals* them. Then a segment blob stores these lines, and
a checkpoint blob stores the versions and channels that result from them. A replay of the log from its first line gives
the same checkpoint, byte for byte.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import (
    UPGRADE,
    BlobReader,
    MissingBlobError,
    RegistryReader,
    StoredObject,
    UnlistedError,
    other_registry,
)
from onnxreg.registry.system import host_errors
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES, MAX_MACHINES, MAX_SPEEDS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    about,
    listing,
    suggest,
)
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.log import events
from onnxreg.schema.log.events import Attest, Event, LogLine, Via, Yank, check_channel, genesis, walk_chain
from onnxreg.schema.log.state import (
    SEGMENT_LINES,
    Channel,
    Checkpoint,
    Gone,
    Rollout,
    Speeds,
    State,
    VersionEntry,
    VersionSummary,
    newest_of,
    no_channel,
    no_version,
    summarize,
    version_of,
    worst,
)

if TYPE_CHECKING:
    from onnxreg.schema.delta.delta_format import Delta
    from onnxreg.schema.manifest.manifest import Manifest
    from onnxreg.schema.signing.dsse import SignLine

Value = TypeVar("Value")
EventType = TypeVar("EventType", bound=Event)
Fetch = Callable[[Digest], bytes]
"""A function that reads a small blob, such as a manifest, and checks its digest."""
MAX_LISTED_MODELS = 5
FINISH = "`reg mirror` into it goes on where it was cut off; used offline, `reg index fetch` brings more"
PATTERN = frozenset("*?[")
"""A text with one of these characters is a pattern. Any other text is the name of a model."""
REWRITTEN = "history was rewritten or damaged: compare with a mirror before you trust this registry"
RESTORE_ADVICE = "restore it from a mirror (reg verify shows more)"


class LocatedVersion(NamedTuple):
    """The version that a ref means, with its entry and, if the ref names a channel, the channel."""

    name: str
    version: Version
    entry: VersionEntry
    channel: Channel | None = None

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


class StateError(IntegrityError):
    """The state (line 1 of an index file) is malformed, or contradicts the log."""


class MismatchError(IntegrityError):
    """The tag and the digest of a ref name different manifests."""


class Replay:
    """Applies a model's events to tables. At first the tables are empty, or have the content of a checkpoint.

    `versions` has the entries of all versions that were not dropped. `recent` has the entries that changed after the
    checkpoint, including those of dropped versions. `tombstones` are blobs that may not come back. `refused` are the
    artifacts that at least one evaluation refused.
    """

    def __init__(self, name: str, start: Checkpoint, speeds: Speeds | None = None) -> None:
        self.name, self.speeds = name, speeds or {}
        self.versions, self.recent = dict(start.versions), dict[Version, VersionEntry]()
        self.channels, self.rollouts = dict(start.channels), dict(start.rollouts)
        self.tombstones, self.refused = list(start.tombstones), set(start.refused)

    def checkpoint(self) -> Checkpoint:
        tombstones, refused = tuple(self.tombstones), tuple(sorted(self.refused))
        return Checkpoint(dict(self.versions), dict(self.channels), tombstones, refused, dict(self.rollouts))

    def apply(self, event: Event, seq: int) -> None:
        """Apply the event of line `seq`. Raises ConflictError if the event contradicts the tables."""
        match event:
            case events.Publish():
                self._publish(event, seq)
            case events.Tag():
                self._expect(event.tag, event.expects)
                self._present(event)
                channel = Channel(event.version, event.manifest, seq, event.policy, event.evidence)
                self.channels[event.tag] = channel
                self.rollouts.pop(event.tag, None)
            case events.Untag():
                self._expect(event.tag, event.expects)
                self.channels.pop(event.tag, None)
                self.rollouts.pop(event.tag, None)
            case events.Yank() | events.Unyank():  # for all versions with the manifest
                for version in self._published(event.manifest):
                    yanks = {*self.versions[version].yanks}
                    if isinstance(event, events.Yank):
                        yanks.add(event.id)
                        self._end_rollouts(version)
                    else:
                        yanks.discard(event.yank)
                    self._set(version, self.versions[version].replace(yanks=tuple(sorted(yanks))))
            case events.Pin() | events.Unpin():
                self._set(event.version, self._present(event).replace(pinned=isinstance(event, events.Pin)))
            case events.GiveUp():
                self._give_up(event)
            case events.Restore():
                if (entry := self._known(event)).gone != Gone("expired", event.expire):
                    raise ConflictError(f"{self.name}:{event.version} was not given up by that event")
                self._set(event.version, entry.replace(gone=None))
            case events.Hold():
                self._set(event.version, self._present(event).replace(held=event.paths))
            case events.Attest():
                self._attest(event)
            case events.RolloutStep():
                self._roll_out(event, seq)
            case events.Deltas():
                offering = self.versions.get(event.version) if event.table is None else self._present(event)
                if offering is not None:
                    self._set(event.version, offering.replace(deltas=event.table))
            case events.Timing():
                self._time(event, seq)
            case events.Fence() | events.OptionalEvent():
                pass
            case _:
                raise InputError(f"no rule for an event of kind {event.kind}")

    def _publish(self, event: events.Publish, seq: int) -> None:
        entry = self.versions.get(event.version)
        if entry is not None and entry.manifest != event.manifest:
            manifests = f"{entry.manifest.short}... instead of {event.manifest.short}..."
            problem = f"{self.name}:{event.version} is already published, with manifest {manifests}"
            free = max(self.versions, key=lambda version: version.precedence).next_patch()
            raise ConflictError(
                problem, f"a version never changes: publish under another, such as --version {free}"
            )
        if entry is None:
            twins = [self.versions[version] for version in self.by_manifest.get(event.manifest, ())]
            yanks = {yank for twin in twins for yank in twin.yanks}
            attested = twins[-1].attested if twins else {}
            entry = VersionEntry(event.manifest, event.size, seq, tuple(sorted(yanks)), attested=attested)
            self.by_manifest.setdefault(event.manifest, {})[event.version] = None
        self._set(event.version, entry)

    @cached_property
    def by_manifest(self) -> dict[Digest, dict[Version, None]]:
        manifests: dict[Digest, dict[Version, None]] = {}
        for version, entry in self.versions.items():
            manifests.setdefault(entry.manifest, {})[version] = None
        return manifests

    def _published(self, manifest: Digest) -> list[Version]:
        versions = list(self.by_manifest.get(manifest, ()))
        if not versions:
            raise ConflictError(f"manifest {manifest.short}... of {self.name} is not published here")
        return versions

    def _attest(self, event: events.Attest) -> None:
        artifact, state = event.artifact, event.state
        if artifact is not None and state == "refused":
            self.refused.add(artifact)  # in any manifest, even one that is not published here
            versions = [*self.by_manifest.get(event.manifest, ())]
        else:
            versions = self._published(event.manifest)
        if artifact is None or state is None:
            return
        for version in versions:
            attested = self.versions[version].attested
            verdicts = {**attested, artifact: worst((state, attested.get(artifact, state)))}
            self._set(version, self.versions[version].replace(attested=verdicts))

    def _time(self, event: events.Timing, seq: int) -> None:
        self._published(event.manifest)
        table = self.speeds.get(event.manifest, {}).copy()
        for artifact, speed in event.speeds.items():
            others = [item for item in table.get(artifact, ()) if item.machine != speed.machine]
            table[artifact] = (*others, speed.replace(seq=seq))[-MAX_MACHINES:]
        newest = sorted(table, key=lambda artifact: (table[artifact][-1].seq, artifact))[-MAX_SPEEDS:]
        self.speeds[event.manifest] = {artifact: table[artifact] for artifact in newest}

    def indexed_versions(self) -> list[Version]:
        """Return the versions that get a summary in the index file: the newest, and those of channels and rollouts."""
        targets = (channel.version for channel in self.channels.values())
        rolled_out = (rollout.to for rollout in self.rollouts.values())
        return sorted({*newest_of(self.versions), *targets, *rolled_out})

    def seal(self) -> Checkpoint:
        """Make a checkpoint. Forget `recent`, and the measured speeds of versions not in `indexed_versions`."""
        manifests = {self.versions[key].manifest for key in self.indexed_versions() if key in self.versions}
        self.speeds = {key: table for key, table in self.speeds.items() if key in manifests}
        self.recent.clear()
        return self.checkpoint()

    def _roll_out(self, event: events.RolloutStep, seq: int) -> None:
        self._expect(event.tag, event.expects)
        if event.version is None or event.manifest is None or event.percent is None or event.salt is None:
            self.rollouts.pop(event.tag, None)
            return
        if self._present(event).yanked:
            raise ConflictError(f"{self.name}:{event.version} is yanked", "roll out another version")
        self.rollouts[event.tag] = Rollout(
            event.version, event.manifest, event.percent, event.salt, seq, event.where,
            event.policy, event.evidence,
        )  # fmt: skip

    def _end_rollouts(self, version: Version) -> None:
        self.rollouts = {tag: rollout for tag, rollout in self.rollouts.items() if rollout.to != version}

    def _give_up(self, event: events.GiveUp) -> None:
        entry, ref = self._known(event), f"{self.name}:{event.version}"
        holders = [tag for tag, channel in self.channels.items() if channel.version == event.version]
        if holders:
            holds = f"{ref} is what {' and '.join(holders)} means"
            raise ConflictError(holds, "move the channel or `reg untag` it first")
        if isinstance(event, events.Purge):
            self.tombstones += [blob for blob in event.blobs if blob not in self.tombstones]
        elif entry.pinned:
            raise ConflictError(f"{ref} is pinned", f"take the pin back: reg pin {ref} --undo")
        elif entry.gone is not None:
            raise ConflictError(f"{ref} is {entry.gone.how} already", f"`reg log {self.name}` says why")
        elif isinstance(event, events.Drop) and (entry.attested or entry.yanked):
            hint = f"`reg yank {ref}` takes it out of use, with its number; --undo takes a yank back"
            raise ConflictError(f"{ref} is yanked or has an evaluation on record, which stays", hint)
        self._end_rollouts(event.version)
        gone = Gone(event.how, event.id)
        self._set(event.version, entry.replace(pinned=False, held=None, gone=gone, deltas=None))
        if isinstance(event, events.Drop):
            self.by_manifest.get(event.manifest, {}).pop(event.version, None)
            del self.versions[event.version]

    def _set(self, version: Version, entry: VersionEntry) -> None:
        self.versions[version] = self.recent[version] = entry

    def _expect(self, tag: str, expected: Digest | None) -> None:
        channel = self.channels.get(tag)
        if (channel.manifest if channel else None) != expected:
            holder = channel.version if channel else "nothing"
            by_now = f"channel {tag} of {self.name} holds {holder} by now"
            raise ConflictError(by_now, "look at `reg log` and decide again")

    def _known(self, event: events.VersionEvent | events.Deltas | events.RolloutStep) -> VersionEntry:
        entry = None if event.version is None else self.versions.get(event.version)
        if entry is None or entry.manifest != event.manifest:
            raise ConflictError(f"{self.name}:{event.version} is not published here with that manifest")
        return entry

    def _present(self, event: events.VersionEvent | events.Deltas | events.RolloutStep) -> VersionEntry:
        entry = self._known(event)
        if entry.gone is not None:
            gone = f"{self.name}:{event.version} is {entry.gone.how}"
            raise ConflictError(gone, "name a version that is here")
        return entry


class Log:
    """One model's history in memory, and the state that follows from it.

    `state` is line 1 of the index file. The tables of all versions (`versions`, `channels`, ...) are computed at first
    use. They start with the tables in the checkpoint blob, to which the newer lines are applied. IntegrityError is
    raised if the result contradicts `state`.

    `index` is the index file that was read, if any. `tail` are the lines that are not sealed. `documents` are small
    blobs that no store has yet. `fetched` keeps blobs that were read. A `mirrored` log refuses new events.
    """

    def __init__(self, registry: str, name: str, fetch: Fetch, url: str = "") -> None:
        self.registry, self.name, self.url = registry, name, url
        self.fetch_stored = fetch
        self.index: StoredObject | None = None
        self.seq, self.head = 0, genesis(registry, name)
        self.segments: list[Digest] = []
        self.tail: list[LogLine] = []
        self.summaries: dict[Version, VersionSummary] = {}
        self.documents: dict[Digest, bytes] = {}
        self.fetched: dict[Digest, bytes] = {}
        self.sign: SignLine | None = None
        self.mirrored = False
        self._line = b""  # the state line that was read
        self._state, self._is_current = State(registry, name, 0, self.head, {}, {}, {}, ()), True
        self._sealed: Checkpoint | None = None  # the checkpoint of the last sealing since it was read

    # Reading

    @classmethod
    def decode(cls, data: bytes, registry: str, name: str, fetch: Fetch, url: str = "") -> Log:
        """Read an index file. Raises IntegrityError if it is damaged, or belongs to another registry or model."""
        log, label = cls(registry, name, fetch, url), f"the index of {name}{f' in {url}' if url else ''}"
        if not data.endswith(b"\n") or data.count(b"\n") > SEGMENT_LINES + 1:
            raise IntegrityError(f"{label} cannot be read: it is cut short or too long", RESTORE_ADVICE)
        log._line, *lines = data[:-1].split(b"\n")
        with about(f"{label} cannot be read", StateError, RESTORE_ADVICE):
            state = log._state = State.decode(log._line, "its state line")
        with about(f"the log of {name} cannot be read", IntegrityError):
            log.tail = [LogLine.decode(line) for line in lines]
        if state.registry != registry:
            raise other_registry(url or "it", state.registry, registry)
        if state.name != name:
            raise IntegrityError(f"{label} belongs to {state.name}", VERIFY_ADVICE)
        log.segments, log.summaries = list(state.segments), state.summaries
        log.seq, log.head = end = state.seq, state.head
        start = genesis(registry, name) if not log.base else log.tail[0].prev if log.tail else state.head
        for _ in walk_chain(log.tail, name, start, VERIFY_ADVICE, log.base, end):
            pass
        return log

    @classmethod
    def replay(cls, lines: Iterable[LogLine], registry: str, name: str, fetch: Fetch) -> Log:
        """Make a log, and its state, from lines alone. Raise IntegrityError if a line breaks a rule."""
        log = cls(registry, name, fetch)
        with about(f"the log of {name} cannot be read", IntegrityError, VERIFY_ADVICE):
            for line in lines:
                log.append_line(line)
        return log

    @property
    def state(self) -> State:
        """Line 1 of the index file. It is computed again after lines were appended. This may read manifests."""
        if not self._is_current:
            self._state, self._is_current = self._derive(self._replay, is_new=True), True
        return self._state

    @cached_property
    def _replay(self) -> Replay:
        replay = self.replay_from(self._state.checkpoint, self.tail)
        if self._derive(replay) != self._state:
            raise self._contradiction
        return replay

    def replay_from(self, checkpoint: Digest | None, lines: Iterable[LogLine]) -> Replay:
        """Start with the tables of a checkpoint, apply lines to them, and return the result.

        If `checkpoint` is None, the tables are empty at first. Raises IntegrityError if the checkpoint or a line is
        wrong.
        """
        with about(f"the log of {self.name} cannot be read", IntegrityError, VERIFY_ADVICE):
            start = Checkpoint()
            if checkpoint is not None:
                start = Checkpoint.decode(self.fetch(checkpoint), "its checkpoint", MAX_DOCUMENT_BYTES)
            replay = Replay(self.name, start, self._state.speeds_until(self.base))
            for line in lines:
                replay.apply(line.event, line.seq)
        return replay

    @property
    def _contradiction(self) -> StateError:
        return StateError(f"the state of {self.name} is not what its log says", VERIFY_ADVICE)

    def _derive(self, replay: Replay, is_new: bool = False) -> State:
        """Compute the state from a replay. A missing summary is made if `is_new` is set, else StateError is raised."""
        shown, summaries = replay.indexed_versions(), {}
        for version in shown:
            entry, summary = replay.versions.get(version), self.summaries.get(version)
            if entry and summary and (summary.manifest, summary.size) == (entry.manifest, entry.size):
                summaries[version] = summary
            elif entry is None or not is_new:
                raise self._contradiction
            else:
                summaries[version] = self.summarize(entry.manifest)
        tables = replay.checkpoint()
        entries = {version: replay.versions[version] for version in shown} | replay.recent
        return State(
            self.registry, self.name, self.seq, self.head, tables.channels, entries, summaries,
            tuple(self.segments), self.checkpoint, tables.tombstones, tables.refused, tables.rollouts,
            replay.speeds.copy(),
        )  # fmt: skip

    def check(self) -> Log:
        """Replay the tail now, not at first use. Return this log. Raises StateError if the state differs."""
        self._replay  # noqa: B018 -- computed once
        return self

    def prove(self) -> None:
        """Replay the whole log, and summarize the manifests again. Raises StateError if this gives another state."""
        if Log.replay(self.lines(), self.registry, self.name, self.fetch).state != self.state:
            raise self._contradiction

    @property
    def checkpoint(self) -> Digest | None:
        """The digest of the blob that holds the tables as of the last sealed line, or None if no line is sealed."""
        return Digest.of(self._sealed.encode()) if self._sealed else self._state.checkpoint

    @property
    def base(self) -> int:
        """The number of the last sealed line."""
        return len(self.segments) * SEGMENT_LINES

    @property
    def versions(self) -> dict[Version, VersionEntry]:
        return self._replay.versions

    @property
    def channels(self) -> dict[str, Channel]:
        return self._replay.channels

    @property
    def rollouts(self) -> dict[str, Rollout]:
        return self._replay.rollouts

    @property
    def tombstones(self) -> list[Digest]:
        return self._replay.tombstones

    @property
    def refused(self) -> set[Digest]:
        return self._replay.refused

    def channel(self, tag: str) -> Channel:
        """Return a channel. Raises NotFoundError if it does not exist, and InputError if `tag` is a version."""
        if check_channel(tag) not in self.channels:
            raise no_channel(self.name, tag, self.channels)
        return self.channels[tag]

    def lines(self, since: int = 0, until: int | None = None) -> Iterator[LogLine]:
        """Yield the lines after line `since`, up to line `until`. Raise IntegrityError if the chain breaks."""
        number = min(since, self.base) // SEGMENT_LINES
        sealed = (read_segment(self.fetch(segment), self.name) for segment in self.segments[number:])
        lines = chain(chain.from_iterable(sealed), self.tail)
        if (first := next(lines, None)) is None:
            return
        prev, end = first.prev if number else genesis(self.registry, self.name), (self.seq, self.head)
        links = chain([first], lines)
        for line in walk_chain(links, self.name, prev, REWRITTEN, number * SEGMENT_LINES, end):
            if since < line.seq and (until is None or line.seq <= until):
                yield line

    def digest_at(self, seq: int) -> Digest:
        """Return the digest of line `seq`. For 0, return the `prev` of line 1."""
        return self.head if seq == self.seq else next(self.lines(seq)).prev

    def events(self, kind: type[EventType]) -> Iterator[tuple[int, EventType]]:
        """Yield the events of a kind, oldest first, each with the number of its line."""
        for line in self.lines():
            if isinstance(line.event, kind):
                yield line.seq, line.event

    def is_on_record(self, seq: int, event: Attest) -> bool:
        """True if the statement in line `seq` is valid. A refusal is always valid. Other statements are valid until a
        drop has removed all versions that have the same manifest and were published before line `seq`.
        """
        versions = self._replay.by_manifest.get(event.manifest, ())
        return event.state == "refused" or any(self.versions[version].seq < seq for version in versions)

    def statements(self) -> Iterator[tuple[int, Attest]]:
        """Yield the events of the statements on record, oldest first, each with the number of its line."""
        return (item for item in self.events(Attest) if self.is_on_record(*item))

    def yanks_of(self, versions: Iterable[Version]) -> dict[Version, Yank]:
        """Return the oldest yank of each version that is yanked now."""
        yanked = {version: yanks for version in versions if (yanks := self.versions[version].yanks)}
        first: dict[Version, Yank] = {}
        for _, event in self.events(Yank) if yanked else ():
            for version in (item for item, yanks in yanked.items() if event.id in yanks):
                first.setdefault(version, event)
        return first

    def find(self, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
        """Find the version that a ref means. Raises NotFoundError if it does not exist.

        A yanked version is found only if `yanked` is set or the ref has a digest. A version without files is found only
        if `gone` is set. Raises MismatchError if the tag and the digest of the ref name different manifests.
        """
        target = self._by_digest(ref.digest) if ref.digest and ref.tag is None else self._by_tag(ref, yanked)
        if target.entry.gone is not None and not gone:
            raise NotFoundError(
                f"{target.ref} is {target.entry.gone.how}: its files are no longer here",
                f"`reg log {self.name}` there says why; what expired can be brought back from a copy: --restore",
            )
        return target

    def _by_tag(self, ref: Ref, yanked: bool) -> LocatedVersion:
        state, where = self.state, f" in {self.url}" if self.url else ""
        version = state.newest_release() if ref.tag is None else version_of(state, ref.tag)
        if version is None:
            lack = "usable release: each version is yanked or a pre-release" if self.versions else "version"
            raise no_version(self.name, lack, state.versions)
        entry = state.versions.get(version) or self.versions.get(version)
        if entry is None or entry.dropped:
            raise no_version(self.name, f"version {version}{where}", state.versions)
        if ref.digest not in (None, entry.manifest):
            raise MismatchError(
                f"{self.name}:{ref.tag} is {entry.manifest.short}..., not {ref.digest.short if ref.digest else ''}...",
                "the tag and the digest name different manifests",
            )
        if entry.yanked and not yanked and ref.digest is None:
            recent = (line.event for line in self.tail if isinstance(line.event, Yank))  # no segment is read
            reasons = (f": {yank.reason}" for yank in recent if yank.id in entry.yanks and yank.reason)
            hint = f"its digest still gets it: {self.name}@{entry.manifest}"
            raise NotFoundError(f"{self.name}:{version} is yanked{next(reasons, '')}", hint)
        return LocatedVersion(self.name, version, entry, state.channels.get(ref.tag or ""))

    def _by_digest(self, digest: Digest) -> LocatedVersion:
        entries = {version: entry for version, entry in self.versions.items() if entry.manifest == digest}
        if not entries:
            raise no_version(self.name, f"version with the manifest {digest}", self.versions)
        version, entry = max(
            entries.items(), key=lambda item: (item[1].usable, item[1].gone is None, item[0].precedence)
        )
        return LocatedVersion(self.name, version, entry)

    def summary(self, target: LocatedVersion, member: str | None = None) -> VersionSummary:
        """Return the summary of a version, with all verdicts and speeds that were recorded after its publication.

        The summary of a family leaves out most of its members. If `member` is given, the summary has the artifacts of
        this member too.
        """
        summary = self.state.summaries.get(target.version)
        has_member = member is None or (summary is not None and bool(summary.members))
        if summary is None or summary.manifest != target.entry.manifest or not has_member:
            summary = self.summarize(target.entry.manifest, member)
        speeds = self.state.speeds.get(target.entry.manifest, {})
        return summary.with_verdicts(self.state.verdicts(target.entry), speeds)

    def check_unyanked(self, version: Version) -> None:
        """Raise ConflictError if a version is yanked, because no channel may move to it."""
        if version in self.versions and self.versions[version].yanked:
            ref, where = f"{self.name}:{version}", f" in {self.url}" if self.url else ""
            option = f" --remote {self.url}" if self.url else ""
            hint = f"name another version, or take the yank back there: reg yank {ref} --undo{option}"
            raise ConflictError(f"{ref} is yanked{where}: a channel would resolve to nothing", hint)

    def check_summary(self, target: LocatedVersion) -> None:
        """Raise IntegrityError if the index file's summary of a version contradicts the version's manifest."""
        summary, manifest = self.state.summaries.get(target.version), target.entry.manifest
        if summary is not None and summary != self.summarize(manifest):
            raise IntegrityError(
                f"the index of {self.name} says other things of manifest {manifest.short}... than the manifest itself",
                "the index file was tampered with or damaged: run `reg verify` on it",
            )

    def manifest(self, version: Version) -> Manifest:
        return self.read_manifest(self.versions[version].manifest)

    def read_manifest(self, digest: Digest) -> Manifest:
        return read_manifest(self.fetch(digest), digest, self.name)

    def summarize(self, digest: Digest, member: str | None = None) -> VersionSummary:
        """Summarize a manifest, without later verdicts."""
        return summarize(self.read_manifest(digest), digest, len(self.fetch(digest)), member=member)

    def fetch(self, digest: Digest) -> bytes:
        data = self.documents.get(digest) or self.fetched.get(digest)
        if data is None:
            data = self.fetched[digest] = self.fetch_stored(digest)
        return data

    # Writing

    def append(self, event: Event, via: Via | None = None) -> LogLine:
        """Append an event, and sign its line if `sign` is set.

        Raises ConflictError if the event contradicts the model's versions, channels and rollouts, or moves a channel to
        a yanked version. Also raises it if this log is in a mirror.
        """
        self.check_own()
        if isinstance(event, events.Tag):
            self.check_unyanked(event.version)
        for tag, rollout in self.rollouts.items():
            moves = isinstance(event, events.Tag | events.Untag) and event.tag == tag
            if moves or (isinstance(event, events.GiveUp) and event.version == rollout.to):
                raise ConflictError(
                    f"{rollout.to} is being rolled out to {self.name}:{tag}",
                    f"`reg rollout finish {self.name} --channel {tag}` moves the channel, `halt` stops the rollout",
                )
        return self.append_line(LogLine.make(self.seq + 1, self.head, event, via, self.sign))

    def check_own(self) -> None:
        """Raise ConflictError if this log is in a mirror."""
        if self.mirrored:
            raise mirror_error(self.registry)

    def append_line(self, line: LogLine) -> LogLine:
        """Append a line of another copy of this log. Raises IntegrityError if the line does not follow the last one."""
        if (line.seq, line.prev) != (self.seq + 1, self.head):
            raise IntegrityError(f"line {line.seq} of {self.name} does not follow line {self.seq}")
        if line.event.name != self.name:
            raise IntegrityError(f"line {line.seq} of {self.name} is about {line.event.name}")
        replay = self._replay
        if len(self.tail) == SEGMENT_LINES:
            segment = b"".join(sealed.raw + b"\n" for sealed in self.tail)
            self.segments.append(self.attach(segment))
            self._sealed, self.tail = replay.seal(), []
        replay.apply(line.event, line.seq)
        self.tail.append(line)
        self.seq, self.head, self._is_current = line.seq, line.digest, False
        return line

    def attach(self, document: bytes) -> Digest:
        """Add a document to which a new line refers, and return its digest. The next commit stores the document."""
        digest = Digest.of(document)
        self.documents[digest] = document
        return digest

    @property
    def blobs(self) -> list[bytes]:
        """The small blobs that a push of this log must store."""
        return [*self.documents.values(), *([self._sealed.encode()] if self._sealed else [])]

    def encode(self) -> bytes:
        self.check_keys()
        return b"".join(line + b"\n" for line in (self.state.encode(), *(line.raw for line in self.tail)))

    def check_keys(self) -> None:
        """Raise HostError if the index file has fields of a newer onnxreg. `encode` would drop these fields."""
        if self._line and State.decode(self._line).encode() != self._line:
            lost = f"a newer onnxreg wrote the index of {self.name}, with keys that would be lost"
            raise HostError(lost, UPGRADE)


def mirror_error(registry: str) -> ConflictError:
    hint = "change the original, or make a registry of its own from it: reg mirror MIRROR NEW --new-id"
    return ConflictError(f"this is a mirror of registry {registry[:12]}..., and read-only", hint)


@lru_cache(16)
def read_manifest(data: bytes, digest: Digest, name: str) -> Manifest:
    """Decode a model's manifest, with a cache. Raises IntegrityError if it is malformed or belongs to another model."""
    from onnxreg.schema.manifest.manifest import Manifest
    from onnxreg.schema.manifest.manifest import read_manifest as read_any_manifest

    label = f"manifest {digest.short}... of {name}"
    try:
        manifest = read_any_manifest(data, label)
    except InputError as error:
        raise IntegrityError(error.message, error.hint) from error
    if isinstance(manifest, Manifest) and manifest.name == name:
        return manifest
    actual = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
    raise IntegrityError(f"{label} is the manifest of {actual}", "the registry was tampered with or damaged")


def read_segment(data: bytes, name: str) -> list[LogLine]:
    """Decode the lines of a sealed segment. Raises IntegrityError if a line is malformed or their number is wrong."""
    if not data.endswith(b"\n") or data.count(b"\n") != SEGMENT_LINES:
        raise IntegrityError(f"a segment of the log of {name} does not hold {SEGMENT_LINES} lines", REWRITTEN)
    with about(f"the log of {name} cannot be read", IntegrityError):
        return [LogLine.decode(line) for line in data[:-1].split(b"\n")]


def log_of(
    reader: RegistryReader, name: str, index: StoredObject | None, *more: BlobReader, new: bool = False
) -> Log:
    """Decode a model's log. Its blobs are read from `reader` and `more`.

    If `index` is None, raise NotFoundError with similar names. If `new` is set, return an empty log instead.
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
    index: StoredObject | None = None,
    new: bool = False,
) -> Value:
    """Return `question(log)` for a model's log. If a blob is missing, read a newer index file and try again."""
    return read_consistently(
        reader, name, lambda file: question(log_of(reader, name, file, *more, new=new)), index
    )


def load(reader: RegistryReader, name: str, *more: BlobReader, index: StoredObject | None = None) -> Log:
    """Load a model's log and check its state."""
    return consult(reader, name, Log.check, *more, index=index)


def open_log(reader: RegistryReader, name: str) -> Log:
    """Open a model's log. Its state is checked only when a table, such as `versions`, is first used."""
    return log_of(reader, name, reader.read_index(name))


def find(reader: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
    return consult(reader, ref.name, lambda log: log.find(ref, yanked, gone))


def read_consistently(
    reader: RegistryReader,
    name: str,
    read: Callable[[StoredObject | None], Value],
    index: StoredObject | None = None,
) -> Value:
    """Return `read(file)` for a model's index file. If a blob is missing, read a newer index file and try again."""
    index = index or reader.read_index(name)
    while True:
        try:
            return read(index)
        except MissingBlobError:  # a collector may have deleted a blob that only the older file names
            index, before = reader.read_index(name), index
            if index == before:
                raise


def unknown_model(name: str, reader: RegistryReader) -> NotFoundError:
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
    if not names:
        return "it holds no models yet: reg export, reg add, reg pull, or a reg push to it, bring some"
    return f"it holds {listing(names, MAX_LISTED_MODELS, None)}"


def named_copy(copy: RegistryReader) -> str:
    return f"a copy of registry {copy.registry_id[:12]}... that may be incomplete"


def matching(reader: RegistryReader, patterns: Collection[str]) -> list[str]:
    """Return the sorted names of the models that `patterns` name or match. `*` also matches `/`.

    Raise NotFoundError, with similar names, if a pattern matches no model. Plain names are not checked.
    """
    chosen = {check_name(pattern) for pattern in patterns if not PATTERN & set(pattern)}
    globs = [pattern for pattern in patterns if PATTERN & set(pattern)]
    names = list(reader.names()) if globs else []
    for pattern in globs:
        if not (fitting := fnmatch.filter(names, pattern)):
            plain = "".join(char for char in pattern if char not in PATTERN)
            hint = suggest(plain, names, listed(names))
            raise NotFoundError(f"no model matches {pattern} in {reader.url}", hint)
        chosen.update(fitting)
    return sorted(chosen)


def read_blob(source: BlobReader, digest: Digest, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a blob. Raises NotFoundError if it is absent, IntegrityError if it is too large or its digest differs."""
    with host_errors(f"reading blob {digest}"), source.open_blob(digest) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityError(f"blob {digest} is larger than {max_bytes} bytes, which no document is")
    if Digest.of(data) != digest:
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", VERIFY_ADVICE)
    return data


def fetcher(*sources: BlobReader) -> Fetch:
    """Make a function that reads a blob from the first source that has a good copy. Local sources are tried first."""
    ordered = sorted(sources, key=lambda source: not isinstance(source, DirectoryRegistry))

    def fetch(digest: Digest) -> bytes:
        failure: RegError = NotFoundError(f"blob {digest} is not there", VERIFY_ADVICE)
        for source in ordered:
            try:
                return read_blob(source, digest)
            except (IntegrityError, NotFoundError) as error:
                failure = failure if isinstance(failure, IntegrityError) else error
        raise failure

    return fetch


def read_lines(reader: RegistryReader, name: str) -> list[LogLine]:
    """Read and verify a log's lines. `.policy` is the log of policies. Raises NotFoundError if there is no log."""
    if name != POLICY_LOG:
        return list(load(reader, check_name(name)).lines())
    from onnxreg.schema.gates.policy import PolicyLog

    if (index := reader.read_index(POLICY_LOG)) is None:
        raise NotFoundError(f"{reader.url} never had a policy", "`reg policy set` makes one")
    return list(PolicyLog.decode(index.data, reader.registry_id).lines)


def read_deltas(fetch: Fetch, table: Digest | None) -> list[Delta]:
    """Return the deltas in a table, or [] if it is missing or damaged, because deltas are optional."""
    if table is not None:
        from onnxreg.schema.delta.delta_format import decode_table

        with suppress(InputError, IntegrityError, NotFoundError):
            return list(decode_table(fetch(table)))
    return []
