"""Events, which are facts about one model, and the lines of a log, which order events.

The id of an event is the SHA-256 of its canonical bytes. Therefore an event has the same id in every registry.

A line belongs to the log of one registry: `{"seq", "prev", "event", "via"?, "sig"?}`. `prev` is the digest of the
previous line. `via` names the registry and the line from which the event was copied. `sig` signs the line and, through
`prev`, all lines before it. A line's digest includes `sig`, so that removing a signature breaks the chain.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Meta, field

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_EVENT_BYTES, MAX_LINE_BYTES, MAX_SIGNATURE_BYTES, MAX_SPEEDS
from onnxreg.schema.core.canonical import Count, Descriptor, Digest, Record, decode_json, text_of
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name, check_registry_id, check_tag
from onnxreg.schema.log.state import STATES, Percent, Salt, Speed, check_held, check_percent

if TYPE_CHECKING:
    from onnxreg.schema.signing.dsse import SignLine

BENCHMARK = "application/vnd.onnxreg.benchmark.v1+json"
UPGRADE = "a newer onnxreg wrote it: upgrade this one"

Time = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")]
Nonce = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Intent = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}-[0-9a-f]{16}\Z")]
Label = Annotated[str, Meta(min_length=1, max_length=200)]
Sentence = Annotated[str, Meta(min_length=1, max_length=2000)]
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,39}")


class Event(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, tag_field="kind"):
    """The base of all events. `name` is the model's name. If an event is too large for a log line, InputError is
    raised, with `shorten` as the hint.
    """

    shorten: ClassVar[str] = "shorten the reason"

    name: str
    time: Time  # for display only
    nonce: Nonce
    actor: Label | None = None  # a claim that nobody checks
    reason: Sentence | None = None

    def __post_init__(self) -> None:
        if self.name != POLICY_LOG:
            check_name(self.name)
        check_time(self.time)
        if (channel := getattr(self, "tag", None)) is not None:
            check_channel(channel)

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @cached_property
    def id(self) -> Digest:
        return Digest.of(self.encode())

    def check_fits(self) -> None:
        """Raise InputError if the event is too large for a log line."""
        if (size := len(self.encode())) > MAX_EVENT_BYTES:
            problem = f"the {self.kind} event on {self.name} would have {size} bytes"
            raise InputError(f"{problem}, a log holds {MAX_EVENT_BYTES}", self.shorten)


class VersionEvent(Event, frozen=True, kw_only=True):
    """The base of events about one version."""

    version: Version
    manifest: Digest


class Publish(VersionEvent, frozen=True, kw_only=True, tag="publish"):
    """A version was published: from now on, its number means this manifest. `size` is the manifest's size in bytes."""

    size: Count


class Tag(VersionEvent, frozen=True, kw_only=True, tag="tag"):
    """A channel moved to a version."""

    tag: str
    expects: Digest | None = None  # the channel's manifest before the move
    policy: Digest | None = None  # the digest of the policy log's last line
    evidence: Digest | None = None  # the blob that says how the version met the policy


class Untag(Event, frozen=True, kw_only=True, tag="untag"):
    """A channel was removed."""

    tag: str
    expects: Digest


class Yank(VersionEvent, frozen=True, kw_only=True, tag="yank"):
    """A version was yanked. Versions with this manifest resolve only by digest, until the yank is taken back."""

    @property
    def because(self) -> str:
        return f": {self.reason}" if self.reason else ""

    @property
    def words(self) -> str:
        """The yank in words, such as `these are the bytes of acme/ner:0.2.1, yanked: leaks names`."""
        return f"these are the bytes of {self.name}:{self.version}, yanked{self.because}"


class Unyank(VersionEvent, frozen=True, kw_only=True, tag="unyank"):
    """A yank was taken back. `yank` is the id of the `Yank` event."""

    yank: Digest


class Attest(Event, frozen=True, kw_only=True, tag="attest"):
    """A statement about a manifest, such as an evaluation or a signature, was added. The statement is a blob.

    For an evaluation, the event repeats the artifact and the verdict, so that the state follows from the log alone.
    """

    manifest: Digest
    statement: Digest
    media_type: Label
    artifact: Digest | None = None
    state: Literal[STATES] | None = None  # type: ignore[valid-type]


class Pin(VersionEvent, frozen=True, kw_only=True, tag="pin"):
    """A version was pinned: no retention policy may expire it."""


class Unpin(VersionEvent, frozen=True, kw_only=True, tag="unpin"):
    """The pin of a version was taken back."""


class GiveUp(VersionEvent, frozen=True, kw_only=True):
    """The base of events after which a version's files may be deleted. `how` becomes the version's status."""

    how: ClassVar[Literal["expired", "purged", "dropped"]]


class Expire(GiveUp, frozen=True, kw_only=True, tag="expire"):
    """A retention policy expired a version. The manifest stays, and the version's number is never used again."""

    how = "expired"


class Restore(VersionEvent, frozen=True, kw_only=True, tag="restore"):
    """The files of an expired version were restored. `expire` is the id of the `Expire` event."""

    expire: Digest


class Purge(GiveUp, frozen=True, kw_only=True, tag="purge"):
    """A version was taken down. The `blobs`, such as a leaked file, must never return to this model."""

    how = "purged"
    blobs: tuple[Digest, ...]


class Drop(GiveUp, frozen=True, kw_only=True, tag="drop"):
    """A version that was never sent to another registry was withdrawn. Its number can be used again."""

    how = "dropped"


class Hold(VersionEvent, frozen=True, kw_only=True, tag="hold"):
    """This registry has only some artifacts of a version, at `paths`. The event is never sent to another registry."""

    shorten: ClassVar[str] = "it names every artifact here: take the whole version, or fewer artifacts"
    paths: tuple[str, ...] | None = None  # sorted; None: all artifacts

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paths is not None:
            check_held(self.paths)


class Fence(Event, frozen=True, kw_only=True, tag="fence"):
    """The garbage collector changed the head of a log. Therefore the push with this `intent` fails and starts again."""

    intent: Intent


class PolicyEvent(Event, frozen=True, kw_only=True, tag="policy"):
    """The policy of the registry was replaced. Only the policy log has this event."""

    rules: list[dict[str, Any]]


class OptionalEvent(Event, frozen=True, kw_only=True):
    """The base of events that a reader need not know. The reader keeps the line and the `blobs` of an unknown event."""

    optional: Literal[True] = field(default_factory=lambda: True)  # a factory's defaults are always written
    blobs: tuple[Descriptor, ...] = field(default_factory=lambda: ())
    supersedes: tuple[Digest, ...] = ()  # ids of events whose blobs are no longer needed

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ascending([blob.digest for blob in self.blobs], "blobs")
        _check_ascending(self.supersedes, "supersedes")


class Deltas(OptionalEvent, frozen=True, kw_only=True, tag="deltas"):
    """The deltas of a version were replaced. `blobs` are the table of deltas and the deltas that it lists."""

    version: Version
    manifest: Digest
    table: Digest | None = None  # None: no deltas

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table is not None and all(blob.digest != self.table for blob in self.blobs):
            raise InputError("the table of a deltas event is not one of its blobs")


class RolloutStep(OptionalEvent, frozen=True, kw_only=True, tag="rollout"):
    """A rollout of a channel began, widened or stopped. The channel does not move.

    `expects` is the manifest of the channel's version. `version` is None if the rollout stopped. `policy` and
    `evidence` are as in `Tag`. The only blob of the event is `evidence`.
    """

    tag: str
    expects: Digest
    version: Version | None = None
    manifest: Digest | None = None
    percent: Percent | None = None
    salt: Salt | None = None
    where: Sentence | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = (self.version, self.manifest, self.percent, self.salt)
        if any(part is None for part in parts) != all(part is None for part in parts):
            raise InputError("a rollout event says only a part of its rollout")
        if self.percent is not None:
            check_percent(self.percent)
        if {blob.digest for blob in self.blobs} != {self.evidence} - {None}:
            raise InputError("the blob of a rollout event is not its evidence")


class Timing(OptionalEvent, frozen=True, kw_only=True, tag="timing"):
    """The speeds of a version's artifacts were measured. The only blob of the event is the benchmark document."""

    manifest: Digest
    speeds: Annotated[dict[Digest, Speed], Meta(min_length=1, max_length=MAX_SPEEDS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.blobs) != 1:
            raise InputError("a timing event does not name one benchmark document")


class UnknownEvent(OptionalEvent, frozen=True, kw_only=True):
    """An optional event of a kind that only later builds know. It has no effect, but its line and blobs are kept."""

    value: dict[str, Any]  # the whole event

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    def to_json(self) -> dict[str, Any]:
        return self.value

    @classmethod
    def keep(cls, value: dict[str, Any]) -> "UnknownEvent":
        """Read an event of an unknown kind. Raise InputError if the event is not optional."""
        kind = value.get("kind")
        if value.get("optional") is not True or not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise InputError(f"it holds an event of unknown kind {str(kind)[:40]!r}", UPGRADE)
        if "blobs" not in value:
            raise InputError(f"it holds an optional event of kind {kind} without blobs")
        common = {key: item for key, item in value.items() if key in cls.__struct_fields__}
        return cls.read({**common, "value": value, "kind": cls.__name__})


_OfVersion = Publish | Tag | Yank | Unyank | Pin | Unpin | Expire | Restore | Purge | Drop | Hold
ModelEvent = _OfVersion | Untag | Attest | Fence | Deltas | RolloutStep | Timing
KINDS: dict[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in ModelEvent.__args__}


def check_time(time: str) -> None:
    """Raise InputError for an impossible time, such as the 30th of February."""
    try:
        datetime.fromisoformat(time)
    except ValueError:
        raise InputError(f"not a time: {time[:40]!r}") from None


def check_channel(tag: str) -> str:
    """Return the name of a channel unchanged. Raise InputError if the name is malformed or a version."""
    if Version.is_version(check_tag(tag)):
        hint = "a version never moves; name a channel, such as stable"
        raise InputError(f"{tag} is a version, not a channel", hint)
    return tag


def _check_ascending(digests: Sequence[Digest], label: str) -> None:
    if list(digests) != sorted(set(digests)):
        raise InputError(f"the {label} of an optional event are not in ascending order, each once")


# These may have floats or non-ASCII keys, which msgspec may write unlike RFC 8785.
_WITH_FLOATS = PolicyEvent | RolloutStep | Timing | UnknownEvent


class Via(Record, frozen=True, forbid_unknown_fields=True):
    """The origin of a copied line: the registry, the number and digest that the line has there, and the time of
    copying.
    """

    registry: str
    seq: Count
    head: Digest
    time: Time | None = None

    def __post_init__(self) -> None:
        check_registry_id(self.registry)
        if self.time is not None:
            check_time(self.time)


class _Links(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a line, without its event."""

    seq: Count
    prev: Digest
    via: Via | None = None
    sig: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SIGNATURE_BYTES)] | None = None


class LogLine(_Links, frozen=True, kw_only=True, dict=True):
    """One line of a registry's log of one model."""

    event: ModelEvent | PolicyEvent

    @cached_property
    def raw(self) -> bytes:
        """The canonical bytes of the line, without the newline."""
        if isinstance(self.event, _WITH_FLOATS):
            return self.encode()
        return msgspec.json.encode(self, enc_hook=text_of, order="sorted")

    @cached_property
    def digest(self) -> Digest:
        return Digest.of(self.raw)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"event": self.event.to_json()}

    @property
    def time(self) -> str:
        """The time at which the line was written to this log, by the writer's clock."""
        return (self.via and self.via.time) or self.event.time

    @classmethod
    def make(
        cls, seq: int, prev: Digest, event: Event, via: Via | None = None, sign: "SignLine | None" = None
    ) -> "LogLine":
        """Make a line. The line's `sig` is the result of `sign`, if given. Raise InputError if the line is too long."""
        line = cls(seq=seq, prev=prev, event=cast("ModelEvent", event), via=via)
        if sign is not None:
            line = line.replace(sig=sign(line.to_json()))
        if len(line.raw) > MAX_LINE_BYTES:
            problem = f"the {event.kind} event on {event.name} is longer than {MAX_LINE_BYTES} bytes"
            raise InputError(problem, event.shorten)
        return cls.decode(line.raw)

    @classmethod
    def decode(cls, data: bytes, label: str = "log line", max_bytes: int = MAX_LINE_BYTES) -> "LogLine":
        """Read a line. Raise InputError if it is not canonical, or has an unknown key or an unknown required event."""
        canonical.check_size(data, label, max_bytes)
        try:
            line = decode_json(data, cls, label)
        except InputError as error:
            line = _unknown(data, label, error)
        if line.raw != data:
            raise InputError(f"{label} is not canonical JSON")
        return line


def _unknown(data: bytes, label: str, error: InputError) -> LogLine:
    """Read a line with an optional event of an unknown kind, after the usual decoding failed with `error`.

    Raise `error` if the event is missing or of a known kind. Raise another InputError if the event is not optional.
    """
    value = canonical.decode(data, label)
    event = value.pop("event", None) if isinstance(value, dict) else None
    if not isinstance(event, dict) or event.get("kind") in (*KINDS, "policy"):
        raise error
    links, unknown_event = _Links.read(value), cast("ModelEvent", UnknownEvent.keep(event))
    return LogLine(seq=links.seq, prev=links.prev, event=unknown_event, via=links.via, sig=links.sig)


def walk_chain(
    lines: Iterable[LogLine],
    name: str,
    prev: Digest,
    hint: str,
    seq: int = 0,
    head: tuple[int, Digest] | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of a log. Check that each line has the digest of the line before it.

    `seq` and `prev` are the number and the digest of the line before the first. Raise IntegrityError at the first
    break, or if the last line's number and digest are not `head`.
    """
    for line in lines:
        seq += 1
        if (line.seq, line.prev, line.event.name) != (seq, prev, name):
            log = "policy.jsonl" if name == POLICY_LOG else f"the log of {name}"
            raise IntegrityError(f"{log} is broken at line {seq}", hint)
        prev = line.digest
        yield line
    if head is not None and (seq, prev) != head:
        raise IntegrityError(f"the log of {name} does not end in the head that its state names", hint)


def genesis(registry: str, name: str) -> Digest:
    """Return the `prev` of a log's first line: a digest of the registry and the model."""
    return Digest.of(canonical.encode({"name": name, "registry": registry}))
