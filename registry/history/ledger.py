"""A model's log and state in one registry: read from its index file, extended, written back.

Sealing: a line that would be the 65th of the tail first moves the 64 before it into a segment blob, and the
versions of the state line into the catalog blob. Both follow from the log alone, so that a replay from the first
line gives the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeVar

from onnxreg.registry.lookup import read_catalog
from onnxreg.registry.manifests import read_manifest
from onnxreg.schema import canonical
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import ConflictError, InputError, IntegrityError
from onnxreg.schema.evaluation import worst
from onnxreg.schema.events import (
    Attest,
    Drop,
    Event,
    Expire,
    Fence,
    Hold,
    Pin,
    Publish,
    Purge,
    Restore,
    Tag,
    Unpin,
    Untag,
    Unyank,
    Yank,
)
from onnxreg.schema.linesig import Sign, sign_line
from onnxreg.schema.logline import LogLine, Skimmed, Via, genesis
from onnxreg.schema.state import SEGMENT, Channel, Entry, Gone, State, entries_to_json, newest_of
from onnxreg.schema.summary import summarize
from onnxreg.schema.version import Version

REWRITTEN = "history was rewritten or damaged: compare with a mirror before you trust this registry"
Chained = TypeVar("Chained", LogLine, Skimmed)
Fetch = Callable[[Digest], bytes]
"""Reads a small blob (manifest, catalog, segment) and checks its digest."""


class _Catalog:
    """The versions as they were at a sealing, encoded once somebody asks: of many sealings in one go only the last is."""

    def __init__(self, entries: Mapping[Version, Entry]) -> None:
        self._entries = dict(entries)

    @cached_property
    def data(self) -> bytes:
        return canonical.encode(entries_to_json(self._entries))

    @cached_property
    def digest(self) -> Digest:
        return Digest.of(self.data)


@dataclass
class Ledger:
    """One model's history in memory: `entries` are its versions, `tail` the lines that are not sealed yet.

    A version that was dropped is none of them. `cut` are the segments that sealing made. `sign` signs the lines of new events.
    """

    registry: str
    name: str
    fetch: Fetch
    head: Digest
    seq: int = 0
    entries: dict[Version, Entry] = field(default_factory=dict)
    recent: dict[Version, Entry] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    segments: list[Digest] = field(default_factory=list)
    listed: Digest | _Catalog | None = None
    tail: list[LogLine] = field(default_factory=list)
    cut: list[bytes] = field(default_factory=list)
    tombstones: list[Digest] = field(default_factory=list)
    refused: set[Digest] = field(default_factory=set)
    summaries: dict[str, Any] = field(default_factory=dict)
    mirrored: bool = False
    sign: Sign | None = None

    @classmethod
    def empty(cls, registry: str, name: str, fetch: Fetch) -> "Ledger":
        """The history of a model that is not there yet."""
        return cls(registry, name, fetch, genesis(registry, name))

    @classmethod
    def read(cls, data: bytes, registry: str, name: str, fetch: Fetch) -> "Ledger":
        """Decode an index file; IntegrityError where it is damaged, another model's, or its chain is broken."""
        state, lines = decode_index(data, name)
        if (state.registry, state.name) != (registry, name):
            raise IntegrityError(f"the index of {name} belongs to {state.name} of registry {state.registry}")
        _check_tail(state, lines)
        catalog = {} if state.catalog is None else read_catalog(fetch(state.catalog), name)
        entries = {**catalog, **state.versions}
        held = {version: entry for version, entry in entries.items() if not entry.dropped}
        _check_channels(state, held)
        ledger = cls(registry, name, fetch, state.head, state.seq, held)
        touched = {version for line in lines for version in _touches(line.event, entries)}
        ledger.recent = {version: entry for version, entry in state.versions.items() if version in touched}
        ledger.channels = dict(state.channels)
        ledger.segments, ledger.listed, ledger.tail = list(state.segments), state.catalog, lines
        ledger.summaries, ledger.tombstones = state.summaries, list(state.tombstones)
        ledger.refused = set(state.refused)
        return ledger

    @property
    def catalog(self) -> Digest | None:
        """Where the versions are listed that sealing moved out of the state line."""
        return self.listed.digest if isinstance(self.listed, _Catalog) else self.listed

    @property
    def blobs(self) -> list[bytes]:
        """The segments that sealing made and the catalog after the last one: what a push must bring along."""
        return [*self.cut, self.listed.data] if isinstance(self.listed, _Catalog) else self.cut

    def lines(self) -> Iterator[LogLine]:
        """The whole log, first line first, the chain verified; IntegrityError at the first break."""
        sealed = (line for segment in self.segments for line in read_segment(self.fetch(segment), self.name))
        return self._chained(chain(sealed, self.tail))

    def skim(self) -> Iterator[Skimmed]:
        """As `lines`, each read only as far as a search needs."""
        segments = (split_segment(self.fetch(segment), self.name) for segment in self.segments)
        sealed = chain.from_iterable(segments)
        return self._chained(skim_lines(chain(sealed, (line.raw for line in self.tail)), self.name))

    def _chained(self, lines: Iterable[Chained]) -> Iterator[Chained]:
        prev, seq = genesis(self.registry, self.name), 0
        for line in lines:
            seq += 1
            if line.seq != seq or line.prev != prev or line.name != self.name:
                raise IntegrityError(f"the log of {self.name} is broken at line {seq}", REWRITTEN)
            prev = line.digest
            yield line
        if (seq, prev) != (self.seq, self.head):
            raise IntegrityError(f"the log of {self.name} does not end in the head that its state names")

    def append(self, event: Event, via: Via | None = None) -> LogLine:
        """Add one event. ConflictError where it contradicts what is there (a channel's holder), and in a mirror."""
        self.check_own()
        sign = partial(sign_line, self.registry, self.sign) if self.sign else None
        return self.append_line(LogLine.make(self.seq + 1, self.head, event, via, sign))

    def check_own(self) -> None:
        """ConflictError in a mirror: only lines of the registry that it copies are added there."""
        if self.mirrored:
            raise mirror_error(self.registry)

    def append_line(self, line: LogLine) -> LogLine:
        """Add a line that another copy of this log already has; IntegrityError where it does not follow."""
        if (line.seq, line.prev) != (self.seq + 1, self.head):
            raise IntegrityError(f"line {line.seq} of {self.name} does not follow line {self.seq}")
        if line.event.name != self.name:
            raise IntegrityError(f"line {line.seq} of {self.name} is about {line.event.name}")
        if len(self.tail) == SEGMENT:
            self._seal()
        self._apply(line.event, line.seq)
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

    def _apply(self, event: Event, seq: int) -> None:
        match event:
            case Publish():
                self._publish(event, seq)
            case Tag():
                self._expect(event.tag, event.expects)
                self._present(event.version, event.manifest)
                self.channels[event.tag] = Channel(
                    event.version, event.manifest, seq, event.policy, event.evidence
                )
            case Untag():
                self._expect(event.tag, event.expects)
                del self.channels[event.tag]
            case Yank():
                entry = self._known(event.version, event.manifest)
                self._set(event.version, replace(entry, yanks=entry.yanks | {event.id}))
            case Unyank():
                entry = self._known(event.version, event.manifest)
                self._set(event.version, replace(entry, yanks=entry.yanks - {event.yank}))
            case Pin() | Unpin():
                entry = self._present(event.version, event.manifest)
                self._set(event.version, replace(entry, pinned=isinstance(event, Pin)))
            case Expire() | Purge() | Drop():
                self._give_up(event)
            case Restore():
                self._restore(event)
            case Hold():
                entry = self._present(event.version, event.manifest)
                self._set(event.version, replace(entry, held=event.paths))
            case Attest():
                self._attest(event)
            case Fence():
                pass
            case _:
                raise InputError(f"no rule for an event of kind {event.kind}")

    def _attest(self, event: Attest) -> None:
        """Every version with that manifest takes over the verdict, where it is worse than those before.

        A refusal is one of the bytes, whichever manifest names them: also one that is not published here.
        """
        about = [version for version, entry in self.entries.items() if entry.manifest == event.manifest]
        if event.artifact is not None and event.state == "refused":
            self.refused.add(event.artifact)
        elif not about:
            raise ConflictError(f"manifest {event.manifest.short}... of {self.name} is not published here")
        if event.artifact is None or event.state is None:
            return
        for version in about:
            entry = self.entries[version]
            state = worst((event.state, entry.attested.get(event.artifact, event.state)))
            self._set(version, replace(entry, attested={**entry.attested, event.artifact: state}))

    def _give_up(self, event: Expire | Purge | Drop) -> None:
        """A version loses its files. Nobody may depend on it: no channel, and no pin unless it is taken down."""
        entry = self._known(event.version, event.manifest)
        holders = [tag for tag, channel in self.channels.items() if channel.version == event.version]
        if holders:
            raise ConflictError(
                f"{self.name}:{event.version} is what {' and '.join(holders)} means",
                "move the channel or `reg untag` it first",
            )
        if isinstance(event, Purge):
            self.tombstones += [blob for blob in event.blobs if blob not in self.tombstones]
        elif entry.pinned:
            raise ConflictError(f"{self.name}:{event.version} is pinned", "take the pin back: reg pin --undo")
        elif entry.gone is not None:
            raise ConflictError(
                f"{self.name}:{event.version} is {entry.gone.how} already", f"`reg log {self.name}` says why"
            )
        elif entry.attested and isinstance(event, Drop):
            raise ConflictError(
                f"{self.name}:{event.version} was evaluated since, and that stays on record",
                "`reg yank` takes it out of use, with its number",
            )
        how = {Expire: "expired", Purge: "purged", Drop: "dropped"}[type(event)]
        self._set(event.version, replace(entry, pinned=False, held=None, gone=Gone(how, event.id)))
        if isinstance(event, Drop):
            del self.entries[event.version]

    def _restore(self, event: Restore) -> None:
        entry = self._known(event.version, event.manifest)
        if entry.gone != Gone("expired", event.expire):
            raise ConflictError(f"{self.name}:{event.version} was not given up by that event")
        self._set(event.version, replace(entry, gone=None))

    def _publish(self, event: Publish, seq: int) -> None:
        found = self.entries.get(event.version)
        if found is not None and found.manifest != event.manifest:
            raise ConflictError(
                f"{self.name}:{event.version} is already published, with manifest {found.manifest.short}... "
                f"instead of {event.manifest.short}...",
                "a version never changes: publish under another version",
            )
        if found is None:
            equal = (entry.attested for entry in self.entries.values() if entry.manifest == event.manifest)
            found = Entry(event.manifest, event.size, seq, attested=next(equal, {}))
        self._set(event.version, found)

    def _set(self, version: Version, entry: Entry) -> None:
        self.entries[version] = self.recent[version] = entry

    def _expect(self, tag: str, expected: Digest | None) -> None:
        held = self.channels.get(tag)
        if (held.manifest if held else None) != expected:
            raise ConflictError(
                f"channel {tag} of {self.name} holds {held.version if held else 'nothing'} by now",
                "look at `reg log` and decide again",
            )

    def _known(self, version: Version, manifest: Digest) -> Entry:
        entry = self.entries.get(version)
        if entry is None or entry.manifest != manifest:
            raise ConflictError(
                f"{self.name}:{version} with manifest {manifest.short}... is not published here"
            )
        return entry

    def _present(self, version: Version, manifest: Digest) -> Entry:
        entry = self._known(version, manifest)
        if entry.gone is not None:
            raise ConflictError(f"{self.name}:{version} is {entry.gone.how}", "name a version that is here")
        return entry

    def state(self) -> State:
        """What the state line must say now; reads the manifests whose summaries it did not hold before."""
        newest = newest_of(self.entries)
        shown = {*newest, *(channel.version for channel in self.channels.values())}
        return State(
            self.registry,
            self.name,
            self.seq,
            self.head,
            self.channels,
            {**{version: self.entries[version] for version in shown}, **self.recent},
            self.catalog,
            newest,
            {str(version): self._summary(version, self.entries[version]) for version in sorted(shown)},
            tuple(self.segments),
            tuple(self.tombstones),
            tuple(sorted(self.refused)),
        )

    def _summary(self, version: Version, entry: Entry) -> Any:
        held = self.summaries.get(str(version))
        if isinstance(held, dict) and held.get("manifest") == str(entry.manifest):
            return held
        data = self.fetch(entry.manifest)
        return summarize(read_manifest(data, entry.manifest, self.name), entry.manifest, len(data))

    def encode(self) -> bytes:
        """The bytes of the index file."""
        state = canonical.encode(self.state().to_json())
        return b"".join(line + b"\n" for line in (state, *(line.raw for line in self.tail)))


def mirror_error(registry: str) -> ConflictError:
    """What a mirror says to whoever wants to make an event in it."""
    return ConflictError(
        f"this is a mirror of registry {registry[:12]}..., and read-only",
        "change the original, or make a registry of its own from it: reg mirror MIRROR NEW --new-id",
    )


def replay(lines: Iterable[LogLine], registry: str, name: str, fetch: Fetch) -> Ledger:
    """The ledger that follows from a log alone."""
    ledger = Ledger.empty(registry, name, fetch)
    for line in lines:
        ledger.append_line(line)
    return ledger


def decode_index(data: bytes, name: str) -> tuple[State, list[LogLine]]:
    """Split an index file into its state and the lines of its tail. IntegrityError where it is malformed."""
    try:
        if not data.endswith(b"\n") or data.count(b"\n") > SEGMENT + 1:
            raise InputError("it is cut short or too long")
        first, *rest = data.split(b"\n")
        return State.decode(first), [LogLine.decode(line) for line in rest[:-1]]
    except InputError as error:
        hint = error.hint or "restore it from a mirror (reg verify shows more)"
        raise IntegrityError(f"the index of {name} cannot be read: {error.message}", hint) from error


def read_segment(data: bytes, name: str) -> Sequence[LogLine]:
    """The lines of a sealed segment. IntegrityError where it is malformed."""
    return [read_line(line, name) for line in split_segment(data, name)]


def split_segment(data: bytes, name: str) -> list[bytes]:
    """The raw lines of a sealed segment. IntegrityError where there are not as many as a segment has."""
    if not data.endswith(b"\n") or data.count(b"\n") != SEGMENT:
        raise IntegrityError(f"a segment of the log of {name} does not hold {SEGMENT} lines", REWRITTEN)
    return data.split(b"\n")[:-1]


def _check_channels(state: State, entries: Mapping[Version, Entry]) -> None:
    """IntegrityError where a channel holds what no version is."""
    for tag, channel in state.channels.items():
        held = entries.get(channel.version)
        if held is None or held.manifest != channel.manifest:
            raise IntegrityError(
                f"channel {tag} of {state.name} holds {channel.version}, which is not published", REWRITTEN
            )


def read_line(raw: bytes, name: str) -> LogLine:
    """One line of a model's log. IntegrityError where it is malformed."""
    try:
        return LogLine.decode(raw)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.hint) from error


def skim_lines(lines: Iterable[bytes], name: str) -> Iterator[Skimmed]:
    """Skim the lines of a model's log. IntegrityError where one is malformed."""
    try:
        yield from map(Skimmed.read, lines)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.hint) from error


def _touches(event: Event, entries: Mapping[Version, Entry]) -> Sequence[Version]:
    """The versions whose entries an event writes."""
    match event:
        case (
            Publish() | Yank() | Unyank() | Pin() | Unpin() | Expire() | Purge() | Drop() | Restore() | Hold()
        ):
            return [event.version]
        case Attest() if event.state is not None:
            return [version for version, entry in entries.items() if entry.manifest == event.manifest]
        case _:
            return []


def _check_tail(state: State, lines: Sequence[LogLine]) -> None:
    """IntegrityError where the lines do not follow each other up to the head that the state names."""
    seq = len(state.segments) * SEGMENT
    prev = lines[0].prev if lines else state.head
    for line in lines:
        seq += 1
        if (line.seq, line.prev, line.event.name) != (seq, prev, state.name):
            raise IntegrityError(f"the log of {state.name} is broken at line {seq}", REWRITTEN)
        prev = line.digest
    if (seq, prev) != (state.seq, state.head):
        raise IntegrityError(
            f"the log of {state.name} does not end in the head that its state names", REWRITTEN
        )
