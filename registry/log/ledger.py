"""A model's log and state in one registry: read from its index file and sealed segments, extended, written back.

Sealing: a line that would be the 65th of the tail first moves the 64 before it into a segment blob, and the
versions of the state line into the catalog blob. Both follow from the log alone, so that a replay from the
first line gives the same bytes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeVar

from onnxreg.registry.log.lookup import read_catalog
from onnxreg.registry.log.replay import LogReplay, touches
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, InputError, IntegrityError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Drop, Event, Expire, Purge, Tag, Untag, check_channel
from onnxreg.schema.log.logline import Line, LogLine, LogLineHeader, Via, genesis, verify_chain, walk_chain
from onnxreg.schema.log.state import (
    SEGMENT_LINES,
    Channel,
    State,
    VersionEntry,
    entries_to_json,
    known_part,
    newest_of,
    no_channel,
)
from onnxreg.schema.log.summary import completed, summarize
from onnxreg.schema.signing.dsse import Sign, sign_line

EventType = TypeVar("EventType", bound=Event)
Fetch = Callable[[Digest], bytes]
"""Reads a small blob (manifest, catalog, segment) and checks its digest."""
REWRITTEN = "history was rewritten or damaged: compare with a mirror before you trust this registry"


class _Catalog:
    """The versions as they were at a sealing, encoded on demand: of several sealings only the last is
    needed."""

    def __init__(self, entries: Mapping[Version, VersionEntry]) -> None:
        self._entries = dict(entries)

    @cached_property
    def data(self) -> bytes:
        return canonical.encode(entries_to_json(self._entries))

    @cached_property
    def digest(self) -> Digest:
        return Digest.of(self.data)


@dataclass(kw_only=True)
class Ledger(LogReplay):
    """One model's history in memory, and what it amounts to. `tail` are the lines that are not sealed yet.

    `cut` are the segments that sealing made, `more` the keys of the state line that a later build added.
    `documents` are small blobs that new lines name and no store has yet; `fetch_stored` reads a blob that a store has.
    `sign` signs the lines of new events.
    """

    registry: str
    fetch_stored: Fetch
    head: Digest
    seq: int = 0
    segments: list[Digest] = field(default_factory=list)
    listed: Digest | _Catalog | None = None
    tail: list[LogLine] = field(default_factory=list)
    cut: list[bytes] = field(default_factory=list)
    summaries: dict[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    mirrored: bool = False
    documents: dict[Digest, bytes] = field(default_factory=dict)
    sign: Sign | None = None

    @classmethod
    def empty(cls, registry: str, name: str, fetch: Fetch) -> "Ledger":
        """The history of a model that is not there yet."""
        return cls(registry=registry, name=name, fetch_stored=fetch, head=genesis(registry, name))

    @classmethod
    def read(cls, data: bytes, registry: str, name: str, fetch: Fetch) -> "Ledger":
        """Decode an index file; IntegrityError if it is damaged, another model's, or its chain is broken."""
        state, lines = decode_index(data, name)
        if (state.registry, state.name) != (registry, name):
            raise IntegrityError(f"the index of {name} belongs to {state.name} of registry {state.registry}")
        check_tail(state, lines)
        catalog = {} if state.catalog is None else read_catalog(fetch(state.catalog), name)
        entries = {**catalog, **state.versions}
        present = {version: entry for version, entry in entries.items() if not entry.dropped}
        check_channels(state, present)
        touched = {version for line in lines for version in touches(line.event, entries)}
        return cls(
            registry=registry,
            name=name,
            fetch_stored=fetch,
            head=state.head,
            seq=state.seq,
            entries=present,
            recent={version: entry for version, entry in state.versions.items() if version in touched},
            channels=dict(state.channels),
            segments=list(state.segments),
            listed=state.catalog,
            tail=lines,
            tombstones=list(state.tombstones),
            refused=set(state.refused),
            rollouts=dict(state.rollouts),
            summaries=state.summaries,
            more=state.more,
        )

    @property
    def catalog(self) -> Digest | None:
        """The digest of the catalog, which lists the versions that sealing moved out of the state line."""
        return self.listed.digest if isinstance(self.listed, _Catalog) else self.listed

    @property
    def blobs(self) -> list[bytes]:
        """Blobs that a push must bring along: the segments that sealing made, the catalog after the last one, documents."""
        catalog = [self.listed.data] if isinstance(self.listed, _Catalog) else []
        return [*self.cut, *catalog, *self.documents.values()]

    def attach(self, document: bytes) -> Digest:
        """Add a document that a new line names; the commit stores it."""
        digest = Digest.of(document)
        self.documents[digest] = document
        return digest

    def fetch(self, digest: Digest) -> bytes:
        """Read a small blob, attached or stored, and check its digest. NotFoundError or IntegrityError if that fails."""
        return self.documents.get(digest) or self.fetch_stored(digest)

    def lines(self) -> Iterator[LogLine]:
        """The whole log, first line first, the chain verified; IntegrityError at the first break."""
        sealed = (line for segment in self.segments for line in read_segment(self.fetch(segment), self.name))
        return self._chain(chain(sealed, self.tail))

    def skim(self) -> Iterator[LogLineHeader]:
        """Yield the headers of all lines, read only as far as a search needs."""
        segments = (split_segment(self.fetch(segment), self.name) for segment in self.segments)
        sealed = chain.from_iterable(segments)
        return self._chain(skim_lines(chain(sealed, (line.raw for line in self.tail)), self.name))

    def events(self, kind: type[EventType]) -> Iterator[tuple[int, EventType]]:
        """Yield the events of a kind, oldest first, each with the number of its line."""
        for line in self.skim():
            if line.kind == kind.kind and isinstance(event := read_line(line.raw, self.name).event, kind):
                yield line.seq, event

    def verify_chain(self) -> None:
        """Read all lines; IntegrityError at the first one that does not follow the one before."""
        deque(self.skim(), maxlen=0)

    def _chain(self, lines: Iterable[Line]) -> Iterator[Line]:
        first = genesis(self.registry, self.name)
        return walk_chain(lines, self.name, first, REWRITTEN, head=(self.seq, self.head))

    def append(self, event: Event, via: Via | None = None) -> LogLine:
        """Add one event.

        Raise ConflictError if it contradicts what is there (a channel's holder, a rollout), and in a mirror.
        """
        self.check_own()
        self._check_rollouts(event)
        sign = partial(sign_line, self.registry, self.sign) if self.sign else None
        return self.append_line(LogLine.make(self.seq + 1, self.head, event, via, sign))

    def finish(self, event: Tag) -> LogLine:
        """Move a channel to the version that is rolled out to it."""
        self.rollouts.pop(event.tag)
        return self.append(event)

    def _check_rollouts(self, event: Event) -> None:
        """ConflictError if a rollout must end first: nothing else moves its channel or takes its version away."""
        for tag, rollout in self.rollouts.items():
            moves = isinstance(event, Tag | Untag) and event.tag == tag
            if moves or (isinstance(event, Expire | Purge | Drop) and event.version == rollout.to):
                raise ConflictError(
                    f"{rollout.to} is being rolled out to {self.name}:{tag}",
                    Advice("end-rollout", name=self.name, channel=tag),
                )

    def check_own(self) -> None:
        """ConflictError in a mirror: only lines of the registry that it copies are added there."""
        if self.mirrored:
            raise mirror_error(self.registry)

    def append_line(self, line: LogLine) -> LogLine:
        """Add a line that another copy of this log already has; IntegrityError if it does not follow."""
        if (line.seq, line.prev) != (self.seq + 1, self.head):
            raise IntegrityError(f"line {line.seq} of {self.name} does not follow line {self.seq}")
        if line.event.name != self.name:
            raise IntegrityError(f"line {line.seq} of {self.name} is about {line.event.name}")
        if len(self.tail) == SEGMENT_LINES:
            self._seal()
        self.apply(line.event, line.seq)
        self.tail.append(line)
        self.seq, self.head = line.seq, line.digest
        return line

    def _seal(self) -> None:
        """Move the tail into a segment and the recent versions into the catalog."""
        segment = b"".join(line.raw + b"\n" for line in self.tail)
        self.segments.append(Digest.of(segment))
        self.cut.append(segment)
        self.listed = _Catalog(self.entries)
        self.tail, self.recent = [], {}

    def state(self) -> State:
        """Return the state that line 1 must hold now.

        Reads the manifests whose summaries it did not hold before.
        """
        channels = (channel.version for channel in self.channels.values())
        shown = {*newest_of(self.entries), *channels, *(rollout.to for rollout in self.rollouts.values())}
        return State(
            self.registry,
            self.name,
            self.seq,
            self.head,
            self.channels,
            {**{version: self.entries[version] for version in shown}, **self.recent},
            {str(version): self._summary(version, self.entries[version]) for version in sorted(shown)},
            tuple(self.segments),
            self.catalog,
            tuple(self.tombstones),
            tuple(sorted(self.refused)),
            self.rollouts,
            self.more,
        )

    def _summary(self, version: Version, entry: VersionEntry) -> Any:
        summary = self.summaries.get(str(version))
        if isinstance(summary, dict) and summary.get("manifest") == str(entry.manifest):
            return summary
        from onnxreg.registry.log.lookup import read_manifest

        data = self.fetch(entry.manifest)
        return summarize(read_manifest(data, entry.manifest, self.name), entry.manifest, len(data))

    def encode(self) -> bytes:
        """The bytes of the index file."""
        state = canonical.encode(self.state().to_json())
        return b"".join(line + b"\n" for line in (state, *(line.raw for line in self.tail)))


def mirror_error(registry: str) -> ConflictError:
    """The refusal of a new event in a mirror."""
    return ConflictError(
        f"this is a mirror of registry {registry[:12]}..., and read-only",
        Advice("mirror-with-new-id"),
    )


def replay(lines: Iterable[LogLine], registry: str, name: str, fetch: Fetch) -> Ledger:
    """The ledger that follows from a log alone."""
    ledger = Ledger.empty(registry, name, fetch)
    for line in lines:
        ledger.append_line(line)
    return ledger


def channel_of(model: Ledger | State, tag: str) -> Channel:
    """Return a channel. Raise NotFoundError if it does not exist, InputError if the tag is a version."""
    if check_channel(tag) not in model.channels:
        raise no_channel(model.name, tag, model.channels)
    return model.channels[tag]


def decode_index(data: bytes, name: str) -> tuple[State, list[LogLine]]:
    """Split an index file into its state and the lines of its tail.

    Raise IntegrityError if it is malformed.
    """
    try:
        if not data.endswith(b"\n") or data.count(b"\n") > SEGMENT_LINES + 1:
            raise InputError("it is cut short or too long")
        first, *lines = data.split(b"\n")
        return State.decode(first), [LogLine.decode(line) for line in lines[:-1]]
    except InputError as error:
        hint = error.advice or Advice("restore-index")
        raise IntegrityError(f"the index of {name} cannot be read: {error.message}", hint) from error


def is_same(index: bytes, replayed: bytes) -> bool:
    """Compare an index file with the one that follows from its log; True if both say the same.

    Keys of the state line that this build does not know are not compared: a later build wrote them. Nor are keys of
    summaries that an older build did not write.
    """
    (first, _, lines), (expected, _, tail) = index.partition(b"\n"), replayed.partition(b"\n")
    try:
        state = known_part(canonical.decode_canonical(first, "state line"))
        derived = canonical.decode(expected, "state line")
        state["summaries"] = {
            version: completed(summary, derived["summaries"].get(version, summary))
            for version, summary in state["summaries"].items()
        }
        return lines == tail and canonical.encode(state) == canonical.encode(derived)
    except InputError:
        return False


def read_segment(data: bytes, name: str) -> Sequence[LogLine]:
    """The lines of a sealed segment. Raise IntegrityError if it is malformed."""
    return [read_line(line, name) for line in split_segment(data, name)]


def split_segment(data: bytes, name: str) -> list[bytes]:
    """The raw lines of a sealed segment. Raise IntegrityError if there are not as many as a segment has."""
    if not data.endswith(b"\n") or data.count(b"\n") != SEGMENT_LINES:
        raise IntegrityError(f"a segment of the log of {name} does not hold {SEGMENT_LINES} lines", REWRITTEN)
    return data.split(b"\n")[:-1]


def read_line(raw: bytes, name: str) -> LogLine:
    """One line of a model's log. Raise IntegrityError if it is malformed."""
    try:
        return LogLine.decode(raw)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.advice) from error


def skim_lines(lines: Iterable[bytes], name: str) -> Iterator[LogLineHeader]:
    """Skim the lines of a model's log. Raise IntegrityError if one is malformed."""
    try:
        yield from map(LogLineHeader.read, lines)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.advice) from error


def check_tail(state: State, lines: Sequence[LogLine]) -> None:
    """Raise IntegrityError if the lines do not follow each other up to the head that the state names."""
    seq = len(state.segments) * SEGMENT_LINES
    prev = lines[0].prev if lines else state.head
    verify_chain(lines, state.name, prev, REWRITTEN, seq, (state.seq, state.head))


def check_channels(state: State, entries: Mapping[Version, VersionEntry]) -> None:
    """Raise IntegrityError if a channel holds what no version is."""
    for tag, channel in state.channels.items():
        entry = entries.get(channel.version)
        if entry is None or entry.manifest != channel.manifest:
            raise IntegrityError(
                f"channel {tag} of {state.name} holds {channel.version}, which is not published", REWRITTEN
            )
