"""The hash-chained lines that put events in order.

A line is one registry's statement that the event came next: `{"seq", "prev", "event", "via"?, "sig"?}`, where
`prev` is the digest of the line before (of `genesis` for the first), `via` says which registry's log it was
taken from, and `sig` is a signature over the line without it (`dsse.sign_line`). A line's digest covers its `sig`
too: to strip it changes the chain.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import check_keys, count, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG, check_registry_id
from onnxreg.schema.log.events import KINDS, MAX_EVENT_BYTES, Event, PolicyEvent, check_time, decode_event
from onnxreg.schema.signing.dsse import SignLine, signed_bytes

MAX_LINE_BYTES = MAX_EVENT_BYTES + 1024
"""An event, its number, its links and a common signature."""
MAX_SIGNATURE_BYTES = 16 * 1024
_EVENT, _PREV = b'{"event":', b',"prev":"'


@dataclass(frozen=True, slots=True)
class Via:
    """The origin of a line: registry id, its number there, and its digest there; and the time of its arrival here."""

    registry: str
    seq: int
    head: Digest
    time: str | None = None

    def to_json(self) -> dict[str, Any]:
        time = {} if self.time is None else {"time": self.time}
        return {"registry": self.registry, "seq": self.seq, "head": str(self.head), **time}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a registry's log of one model. `raw` are its exact bytes, without the newline."""

    seq: int
    prev: Digest
    event: Event
    via: Via | None
    raw: bytes
    sig: str | None = None

    @property
    def digest(self) -> Digest:
        return Digest.of(self.raw)

    @property
    def name(self) -> str:
        return self.event.name

    @property
    def time(self) -> str:
        """The time at which it was written here, as claimed."""
        return (self.via and self.via.time) or self.event.time

    @classmethod
    def make(
        cls, seq: int, prev: Digest, event: Event, via: Via | None = None, sign: SignLine | None = None
    ) -> "LogLine":
        """A line of a registry's log; `sign`, if given, makes its `sig`."""
        value: dict[str, Any] = {"seq": seq, "prev": str(prev), "event": event.to_json()}
        if via is not None:
            value["via"] = via.to_json()
        if sign is not None:
            value["sig"] = sign(value)
        raw = canonical.encode(value)
        if len(raw) > MAX_LINE_BYTES:
            raise InputError(
                f"the {event.kind} event on {event.name} is longer than {MAX_LINE_BYTES} bytes", event.shorten
            )
        return cls.decode(raw)

    @classmethod
    def decode(cls, raw: bytes) -> "LogLine":
        """Read one line strictly: canonical bytes, known kind, known keys. InputError otherwise."""
        value = canonical.decode_canonical(raw, "log line", max_bytes=MAX_LINE_BYTES)
        if not isinstance(value, dict):
            raise InputError("log line is not an object")
        check_keys(value, {"seq", "prev", "event"}, {"via", "sig"}, "log line")
        return cls(
            count(value["seq"]),
            Digest.parse(value["prev"]),
            decode_event(value["event"]),
            _via(value["via"]) if "via" in value else None,
            raw,
            _signature(value["sig"]) if "sig" in value else None,
        )

    def signed_bytes(self, registry: str) -> bytes:
        """The bytes that its signature covers in the log of a registry."""
        return signed_bytes(registry, json.loads(self.raw))


@dataclass(frozen=True, slots=True)
class LogLineHeader:
    """The fields by which a long log is searched, read at a tenth of the cost of `LogLine.decode`."""

    seq: int
    prev: Digest
    name: str
    kind: str
    manifest: str
    event_id: Digest
    raw: bytes

    @property
    def digest(self) -> Digest:
        return Digest.of(self.raw)

    def event(self) -> dict[str, Any]:
        """The JSON value of its event."""
        value: dict[str, Any] = json.loads(self.raw)["event"]
        return value

    @classmethod
    def read(cls, raw: bytes) -> "LogLineHeader":
        """Read a canonical line: its event is the bytes before `,"prev":`. Raise InputError if that cannot
        be.

        An event of an unknown kind must be optional, as in `decode_event`.
        """
        end = raw.rfind(_PREV)
        try:
            value = json.loads(raw)
            event = value["event"]
            prev, manifest = Digest.parse(value["prev"]), str(event.get("manifest", ""))
            name, kind = str(event["name"]), str(event["kind"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"log line is not one: {error}"[:200]) from error
        if end < 0 or not raw.startswith(_EVENT):
            raise InputError("log line is not canonical JSON")
        if kind not in KINDS and kind != PolicyEvent.kind:
            decode_event(event)
        event_id = Digest.of(raw[len(_EVENT) : end])
        return cls(count(value.get("seq")), prev, name, kind, manifest, event_id, raw)


Line = TypeVar("Line", LogLine, LogLineHeader)


def walk_chain(
    lines: Iterable[Line],
    name: str,
    prev: Digest,
    hint: str | Advice,
    seq: int = 0,
    head: tuple[int, Digest] | None = None,
) -> Iterator[Line]:
    """Yield the lines after line `seq`, whose digest is `prev`; each must follow the one before it.

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


def verify_chain(
    lines: Iterable[Line],
    name: str,
    prev: Digest,
    hint: str | Advice,
    seq: int = 0,
    head: tuple[int, Digest] | None = None,
) -> None:
    """Read all lines of `walk_chain`; IntegrityError at the first break."""
    deque(walk_chain(lines, name, prev, hint, seq, head), maxlen=0)


def genesis(registry: str, name: str) -> Digest:
    """The digest that the first line of a log names as the line before: it ties the chain to one model.

    Ids and names are plain ASCII without quotes, so `json` writes canonical bytes too, and the first
    `resolve` stays light.
    """
    return Digest.of(json.dumps({"name": name, "registry": registry}, separators=(",", ":")).encode())


def _via(value: Any) -> Via:
    if not isinstance(value, dict):
        raise InputError("via is not an object")
    check_keys(value, {"registry", "seq", "head"}, {"time"}, "via")
    registry, head = check_registry_id(text(value["registry"])), Digest.parse(value["head"])
    time = check_time(value["time"]) if "time" in value else None
    return Via(registry, count(value["seq"]), head, time)


def _signature(value: Any) -> str:
    if not 0 < len(text(value)) <= MAX_SIGNATURE_BYTES:
        raise InputError(f"sig is a text of 1 to {MAX_SIGNATURE_BYTES} characters")
    return text(value)
