"""Events: self-contained facts about one model. `logline` puts them in order.

An event's id is the SHA-256 of its canonical bytes, so that it is recognised in any registry's log.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import (
    check_keys,
    count,
    flag,
    items,
    mapping,
    required,
    sorted_paths,
    text,
)
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name, check_tag
from onnxreg.schema.log.state import percent, salt
from onnxreg.schema.log.summary import STATES
from onnxreg.schema.signing.dsse import read_sig

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_NONCE = re.compile(r"[0-9a-f]{32}")
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,39}")
_INTENT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")
MAX_EVENT_BYTES = 63 * 1024
"""Bytes, in canonical JSON."""
MAX_APPROVALS = 64
"""Signatures of one policy."""
UPGRADE = "a newer onnxreg wrote it: upgrade this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The fields of every event.

    `time` is RFC 3339 UTC in seconds, for display only; `actor` is as claimed.
    """

    kind: ClassVar[str]
    shorten: ClassVar[str] = "shorten the reason"
    """The hint for an event that does not fit into a line."""

    name: str
    time: str
    nonce: str
    actor: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON value; fields that are None are left out."""
        value: dict[str, Any] = {"kind": self.kind}
        for field in fields(self):
            item = getattr(self, field.name)
            if isinstance(item, tuple):
                value[field.name] = [str(part) for part in item]
            elif item is not None:
                value[field.name] = str(item) if isinstance(item, Digest | Version) else item
        return value

    @property
    def id(self) -> Digest:
        return Digest.of(canonical.encode(self.to_json()))

    def check_fits(self) -> None:
        """Raise InputError if no line of a log can hold it."""
        if (size := len(canonical.encode(self.to_json()))) > MAX_EVENT_BYTES:
            raise InputError(
                f"the {self.kind} event on {self.name} would have {size} bytes, a log holds {MAX_EVENT_BYTES}",
                self.shorten,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Event):
    """A version came to be: it names its manifest for ever. `size` is the manifest's, in bytes."""

    kind: ClassVar[str] = "publish"
    version: Version
    manifest: Digest
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag(Event):
    """A channel moved to a version. `expects` is the manifest it held before (absent: none).

    Where the channel is governed, `policy` is the line of the policy log that was in force, and `evidence`
    the blob that says how the version met it.
    """

    kind: ClassVar[str] = "tag"
    tag: str
    version: Version
    manifest: Digest
    expects: Digest | None = None
    policy: Digest | None = None
    evidence: Digest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untag(Event):
    """A channel was taken away."""

    kind: ClassVar[str] = "untag"
    tag: str
    expects: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Yank(Event):
    """A version no longer resolves; its digest still gets it. With `every`, so does no version with its manifest,
    of whichever number, until the yank is taken back. Each new yank has it.
    """

    kind: ClassVar[str] = "yank"
    version: Version
    manifest: Digest
    every: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unyank(Event):
    """One yank was taken back: `yank` is the id of its event, so that the order of arrival does not
    matter."""

    kind: ClassVar[str] = "unyank"
    version: Version
    manifest: Digest
    yank: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest(Event):
    """Somebody states something about a manifest: an evaluation, a signature. The statement is a blob.

    An evaluation repeats which artifact it is about and its verdict, so that a state follows from the log
    alone.
    """

    kind: ClassVar[str] = "attest"
    manifest: Digest
    statement: Digest
    media_type: str
    artifact: Digest | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Event):
    """No retention policy expires this version."""

    kind: ClassVar[str] = "pin"
    version: Version
    manifest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpin(Event):
    """A pin was taken back."""

    kind: ClassVar[str] = "unpin"
    version: Version
    manifest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(Event):
    """A retention policy gave up the files of a version.

    Its manifest stays, and its number is never given again.
    """

    kind: ClassVar[str] = "expire"
    version: Version
    manifest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Event):
    """The files of an expired version were brought back: `expire` is the id of the event that gave them
    up."""

    kind: ClassVar[str] = "restore"
    version: Version
    manifest: Digest
    expire: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Event):
    """A version was taken down, and `blobs` must never come back into this model: the tombstone of leaked
    bytes.

    The manifest stays, unless it is one of the blobs.
    """

    kind: ClassVar[str] = "purge"
    version: Version
    manifest: Digest
    blobs: tuple[Digest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Event):
    """A version that had not left this registry was taken back; its number is free again."""

    kind: ClassVar[str] = "drop"
    version: Version
    manifest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Event):
    """The artifacts of a version that are here, by path, sorted; without `paths`, all of them.

    It is about this registry alone, and goes to no other. The companions that all artifacts share are always
    here.
    """

    kind: ClassVar[str] = "hold"
    shorten: ClassVar[str] = (
        "it names every artifact that is here: take the whole version, or fewer artifacts of it"
    )
    version: Version
    manifest: Digest
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(Event):
    """The collector overtook a push that had announced itself by this intent: it changes nothing but the
    head."""

    kind: ClassVar[str] = "fence"
    intent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvent(Event):
    """The rules of the registry from now on, as `schema.gates.policy` reads them.

    It is only in the policy log. `approvals` are signatures of those who agree that it demands less than the one
    before, each `<key id>:<base64>`; see `schema.gates.policy_comparison`.
    """

    kind: ClassVar[str] = "policy"
    rules: list[Any]
    approvals: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalEvent(Event):
    """An event without which every answer is still right: a reader that does not know its kind only keeps its
    line and `blobs`.

    `supersedes` are the ids of earlier optional events: the log no longer refers to the blobs of these.
    """

    blobs: tuple[Descriptor, ...] = ()
    supersedes: tuple[Digest, ...] = ()

    def check(self) -> None:
        """InputError if its parts do not fit each other."""

    def to_json(self) -> dict[str, Any]:
        value = Event.to_json(self)
        blobs = [{"digest": str(blob.digest), "size": blob.size} for blob in self.blobs]
        if not self.supersedes:
            del value["supersedes"]
        return value | {"optional": True, "blobs": blobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas(OptionalEvent):
    """The deltas of a version from now on: `table` (see `schema.delta.table`) and the deltas that it lists are
    the blobs. Without a table it offers nothing.
    """

    kind: ClassVar[str] = "deltas"
    version: Version
    manifest: Digest
    table: Digest | None = None

    def check(self) -> None:
        """InputError if the table is not one of its blobs."""
        if (self.table is None) != (self.table_file is None):
            raise InputError("the table of a deltas event is not one of its blobs")

    @property
    def table_file(self) -> Descriptor | None:
        """Digest and size of the table."""
        return next((blob for blob in self.blobs if blob.digest == self.table), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep(OptionalEvent):
    """A channel begins, widens or stops a staged rollout; see `schema.log.state`.

    `expects` is the manifest that the channel holds, and keeps. Without `version` the rollout is over. On a
    governed channel `policy` and `evidence` are those of a promotion, and the evidence is the blob.
    """

    kind: ClassVar[str] = "rollout"
    tag: str
    expects: Digest
    version: Version | None = None
    manifest: Digest | None = None
    percent: float | None = None
    salt: str | None = None
    where: str | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def check(self) -> None:
        """InputError if it says only a part of a rollout."""
        parts = (self.version, self.manifest, self.percent, self.salt)
        if any(part is None for part in parts) != all(part is None for part in parts):
            raise InputError("a rollout event says only a part of its rollout")
        evidence = {self.evidence} - {None}
        if {blob.digest for blob in self.blobs} != evidence:
            raise InputError("the blob of a rollout event is not its evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent(OptionalEvent):
    """An optional event of a kind that a later build added. Its line and its blobs are kept; it changes
    nothing else.

    `value` is the JSON value that was read, with the keys that only the later build knows.
    """

    kind: str  # type: ignore[misc]
    value: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.value)


KINDS: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (
        Publish,
        Tag,
        Untag,
        Yank,
        Unyank,
        Attest,
        Pin,
        Unpin,
        Expire,
        Restore,
        Purge,
        Drop,
        Hold,
        Fence,
        Deltas,
        RolloutStep,
    )
}
"""The kinds in a model's log. `PolicyEvent` is in the log of policies."""


_ALL_KINDS = KINDS | {PolicyEvent.kind: PolicyEvent}


@cache
def _event_keys(kind: str) -> tuple[set[str], set[str]]:
    """The keys that an event of a kind must have, and those that it may have."""
    all_fields = fields(_ALL_KINDS[kind])
    optional = {field.name for field in all_fields if field.default is not MISSING}
    return {"kind", *(field.name for field in all_fields)} - optional, optional


def decode_event(value: Any) -> Event:
    """Read an event strictly; InputError names the field. An unknown kind must say `optional: true`."""
    if not isinstance(value, dict):
        raise InputError("event is not an object")
    kind = _ALL_KINDS.get(str(value.get("kind")))
    if kind is None or issubclass(kind, OptionalEvent):
        return _decode_optional(value)
    check_keys(value, *_event_keys(kind.kind), f"{kind.kind} event")
    return kind(**{key: _READ[key](item) for key, item in value.items() if key != "kind"})


def _decode_optional(value: dict[str, Any]) -> OptionalEvent:
    """Read an optional event; one of an unknown kind as far as it can be kept. InputError unless it is optional."""
    kind = value.get("kind")
    if value.get("optional") is not True or not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InputError(f"it holds an event of unknown kind {str(kind)[:40]!r}", UPGRADE)
    about = {field.name: field.default is MISSING for field in fields(Event)}
    check_keys(value, {key for key, is_required in about.items() if is_required}, set(value), f"{kind} event")
    common = {key: _READ[key](value[key]) for key in about if key in value}
    common["blobs"] = _blobs(required(value, "blobs"))
    common["supersedes"] = _ascending(items(value.get("supersedes", []), Digest.parse), "supersedes")
    if kind not in KINDS:
        return UnknownEvent(kind=kind, value=value, **common)
    needed, optional = _event_keys(kind)
    check_keys(value, needed | {"optional", "blobs"}, optional, f"{kind} event")
    own = (needed | optional) - {"kind", "blobs", "supersedes"} - about.keys()
    make: Any = KINDS[kind]
    event: OptionalEvent = make(**common, **{key: _READ[key](value[key]) for key in own if key in value})
    event.check()
    return event


def _blobs(value: Any) -> tuple[Descriptor, ...]:
    blobs = items(value, _blob)
    _ascending([blob.digest for blob in blobs], "blobs")
    return blobs


def _ascending(digests: Sequence[Digest], label: str) -> tuple[Digest, ...]:
    if list(digests) != sorted(set(digests)):
        raise InputError(f"the {label} of an optional event are not in ascending order, each once")
    return tuple(digests)


def _blob(value: Any) -> Descriptor:
    blob = mapping(value)
    check_keys(blob, {"digest", "size"}, set(), "a blob of an optional event")
    return Descriptor(Digest.parse(blob["digest"]), count(blob["size"]))


def _text(limit: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= limit:
            raise InputError(f"actor, reason and the like are texts of 1 to {limit} characters")
        return value

    return read


def _matching(pattern: re.Pattern[str], key: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InputError(f"event {key} is malformed: {str(value)[:40]!r}")
        return value

    return read


check_time = _matching(_TIME, "time")
"""Check a time in a log. InputError if it is not RFC 3339 in UTC and seconds."""


def _name(value: Any) -> str:
    return POLICY_LOG if value == POLICY_LOG else check_name(text(value))


def _state(value: Any) -> str:
    if value not in STATES:
        raise InputError(f"event state is {str(value)[:40]!r}")
    return text(value)


def _rules(value: Any) -> list[Any]:
    return list(items(value, mapping))


def check_channel(value: Any) -> str:
    """A tag that may move: any tag that is not a version. InputError otherwise."""
    if Version.is_version(check_tag(text(value))):
        raise InputError(
            f"{value} is a version, not a channel", "a version never moves; name a channel, such as stable"
        )
    return text(value)


def _approvals(value: Any) -> tuple[str, ...]:
    """At least one signature, and at most MAX_APPROVALS."""
    approvals = items(value, text)
    if not 0 < len(approvals) <= MAX_APPROVALS:
        raise InputError(f"approvals has no signature, or more than {MAX_APPROVALS}")
    for approval in approvals:
        read_sig(approval)
    return approvals


_READ: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "time": check_time,
    "nonce": _matching(_NONCE, "nonce"),
    "actor": _text(200),
    "reason": _text(2000),
    "version": lambda value: Version.parse(text(value)),
    "manifest": Digest.parse,
    "yank": Digest.parse,
    "every": flag,
    "expire": Digest.parse,
    "blobs": lambda value: items(value, Digest.parse),
    "paths": sorted_paths,
    "intent": _matching(_INTENT, "intent"),
    "size": count,
    "tag": check_channel,
    "expects": Digest.parse,
    "statement": Digest.parse,
    "table": Digest.parse,
    "media_type": _text(200),
    "artifact": Digest.parse,
    "state": _state,
    "policy": Digest.parse,
    "evidence": Digest.parse,
    "rules": _rules,
    "approvals": _approvals,
    "percent": percent,
    "salt": salt,
    "where": _text(2000),
}
