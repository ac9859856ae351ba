"""The hash-chained lines that put events in order.

A line is one registry's statement that the event came next: `{"seq", "prev", "event", "via"?, "sig"?}`. `prev` is the
digest of the previous line (of `genesis` for the first line), `via` says from which registry's log the event was taken, and
`sig` is a signature over the line without `sig` (`dsse.sign_line`). A line's digest covers its `sig` too, so removing a
signature changes the chain.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated, Any, cast

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_LINE_BYTES, MAX_SIGNATURE_BYTES
from onnxreg.schema.core.canonical import Count, Record, decode_json, text_of
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG, check_registry_id
from onnxreg.schema.log.events import (
    KINDS,
    Event,
    ModelEvent,
    PolicyEvent,
    RolloutStep,
    Time,
    Timing,
    UnknownEvent,
    check_time,
)
from onnxreg.schema.signing.dsse import SignLine, signed_bytes

_WITH_FLOATS = PolicyEvent | RolloutStep | Timing | UnknownEvent
"""The events that may have a float or a non-ASCII key, which msgspec does not write as RFC 8785 demands."""


class Via(Record, frozen=True, forbid_unknown_fields=True):
    """The origin of a line: the other registry's id, the line's number and digest in its log, and the arrival time here."""

    registry: str
    seq: Count
    head: Digest
    time: Time | None = None

    def __post_init__(self) -> None:
        check_registry_id(self.registry)
        if self.time is not None:
            check_time(self.time)


class _Links(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a line other than its event."""

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
    def name(self) -> str:
        return self.event.name

    @property
    def time(self) -> str:
        """The time at which this registry says that it wrote the line."""
        return (self.via and self.via.time) or self.event.time

    @classmethod
    def make(
        cls, seq: int, prev: Digest, event: Event, via: Via | None = None, sign: SignLine | None = None
    ) -> "LogLine":
        """Make a line of a registry's log; `sign`, if given, makes its `sig`. Raise InputError if the line is too long."""
        line = cls(seq=seq, prev=prev, event=cast("ModelEvent", event), via=via)
        if sign is not None:
            line = line.replace(sig=sign(line.to_json()))
        if len(line.raw) > MAX_LINE_BYTES:
            raise InputError(
                f"the {event.kind} event on {event.name} is longer than {MAX_LINE_BYTES} bytes", event.shorten
            )
        return cls.decode(line.raw)

    @classmethod
    def decode(cls, data: bytes, label: str = "log line", max_bytes: int = MAX_LINE_BYTES) -> "LogLine":
        """Read one line. Raise InputError unless its bytes are canonical and its kind and keys are known."""
        canonical.check_size(data, label, max_bytes)
        try:
            line = decode_json(data, cls, label)
        except InputError as error:
            line = _unknown(data, label, error)
        if line.raw != data:
            raise InputError(f"{label} is not canonical JSON")
        return line

    def signed_bytes(self, registry: str) -> bytes:
        """The bytes of this line that its signature covers in the log of a registry."""
        return signed_bytes(registry, self.to_json())


def _unknown(data: bytes, label: str, error: InputError) -> LogLine:
    """Read a line with an optional event of an unknown kind. Raise `error` for a known kind, InputError if not optional."""
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
    """Yield the lines after line `seq`, whose digest is `prev`; each line must name the digest of the line before it.

    Raise IntegrityError at the first break, and if the last line is not `head` (its number and digest).
    """
    for line in lines:
        seq += 1
        if (line.seq, line.prev, line.name) != (seq, prev, name):
            log = "policy.jsonl" if name == POLICY_LOG else f"the log of {name}"
            raise IntegrityError(f"{log} is broken at line {seq}", hint)
        prev = line.digest
        yield line
    if head is not None and (seq, prev) != head:
        raise IntegrityError(f"the log of {name} does not end in the head that its state names", hint)


def genesis(registry: str, name: str) -> Digest:
    """The digest that the first line of a log has as `prev`: it binds the chain to one registry and model."""
    return Digest.of(canonical.encode({"name": name, "registry": registry}))
