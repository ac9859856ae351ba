"""Events: self-contained facts about one model. `logline` puts them in order.

An event's id is the SHA-256 of its canonical bytes, so that it is recognised in any registry's log.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from onnxreg.schema.core.bounds import MAX_EVENT_BYTES
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name, check_sorted_paths, check_tag
from onnxreg.schema.log.state import Percent, Salt, check_percent
from onnxreg.schema.log.summary import STATES

UPGRADE = "a newer onnxreg wrote it: upgrade this one"

Time = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")]
"""RFC 3339 in UTC and seconds."""
Nonce = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Intent = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}-[0-9a-f]{16}\Z")]
Label = Annotated[str, Meta(min_length=1, max_length=200)]
Sentence = Annotated[str, Meta(min_length=1, max_length=2000)]
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,39}")


class Event(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, tag_field="kind"):
    """The keys of every event. `time` is for display only; `actor` is as claimed."""

    shorten: ClassVar[str] = "shorten the reason"
    """The hint for an event that does not fit into a line."""

    name: str
    time: Time
    nonce: Nonce
    actor: Label | None = None
    reason: Sentence | None = None

    def __post_init__(self) -> None:
        if self.name != POLICY_LOG:
            check_name(self.name)
        check_time(self.time)

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @cached_property
    def id(self) -> Digest:
        return Digest.of(self.encode())

    def check_fits(self) -> None:
        """Raise InputError if no line of a log can hold it."""
        if (size := len(self.encode())) > MAX_EVENT_BYTES:
            raise InputError(
                f"the {self.kind} event on {self.name} would have {size} bytes, a log holds {MAX_EVENT_BYTES}",
                self.shorten,
            )


class VersionEvent(Event, frozen=True, kw_only=True):
    """An event about one version."""

    version: Version
    manifest: Digest


class Publish(VersionEvent, frozen=True, kw_only=True, tag="publish"):
    """A version came to be: it names its manifest for ever. `size` is the manifest's, in bytes."""

    size: Count


class Tag(VersionEvent, frozen=True, kw_only=True, tag="tag"):
    """A channel moved to a version. `expects` is the manifest it held before (absent: none).

    Where the channel is governed, `policy` is the line of the policy log that was in force, and `evidence`
    the blob that says how the version met it.
    """

    tag: str
    expects: Digest | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_channel(self.tag)


class Untag(Event, frozen=True, kw_only=True, tag="untag"):
    """A channel was taken away."""

    tag: str
    expects: Digest

    def __post_init__(self) -> None:
        super().__post_init__()
        check_channel(self.tag)


class Yank(VersionEvent, frozen=True, kw_only=True, tag="yank"):
    """No version with this manifest resolves, of whichever number, until the yank is taken back; its digest still gets it."""

    @property
    def words(self) -> str:
        """The bytes and why they are yanked: `these are the bytes of acme/ner:0.2.1, yanked: leaks names`."""
        reason = f": {self.reason}" if self.reason else ""
        return f"these are the bytes of {self.name}:{self.version}, yanked{reason}"


class Unyank(VersionEvent, frozen=True, kw_only=True, tag="unyank"):
    """One yank was taken back: `yank` is the id of its event, so that the order of arrival does not matter."""

    yank: Digest


class Attest(Event, frozen=True, kw_only=True, tag="attest"):
    """Somebody states something about a manifest: an evaluation, a signature. The statement is a blob.

    An evaluation repeats which artifact it is about and its verdict, so that a state follows from the log alone.
    """

    manifest: Digest
    statement: Digest
    media_type: Label
    artifact: Digest | None = None
    state: Literal[STATES] | None = None  # type: ignore[valid-type]


class Pin(VersionEvent, frozen=True, kw_only=True, tag="pin"):
    """No retention policy expires this version."""


class Unpin(VersionEvent, frozen=True, kw_only=True, tag="unpin"):
    """A pin was taken back."""


class Expire(VersionEvent, frozen=True, kw_only=True, tag="expire"):
    """A retention policy gave up the files of a version.

    Its manifest stays, and its number is never given again.
    """


class Restore(VersionEvent, frozen=True, kw_only=True, tag="restore"):
    """The files of an expired version were brought back: `expire` is the id of the event that gave them up."""

    expire: Digest


class Purge(VersionEvent, frozen=True, kw_only=True, tag="purge"):
    """A version was taken down, and `blobs` must never come back into this model: the tombstone of leaked bytes.

    The manifest stays, unless it is one of the blobs.
    """

    blobs: tuple[Digest, ...]


class Drop(VersionEvent, frozen=True, kw_only=True, tag="drop"):
    """A version that had not left this registry was taken back; its number is free again."""


class Hold(VersionEvent, frozen=True, kw_only=True, tag="hold"):
    """The artifacts of a version that are here, by path, sorted; without `paths`, all of them.

    It is about this registry alone, and goes to no other. The companions that all artifacts share are always here.
    """

    shorten: ClassVar[str] = (
        "it names every artifact that is here: take the whole version, or fewer artifacts of it"
    )
    paths: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sorted_paths(self.paths)


class Fence(Event, frozen=True, kw_only=True, tag="fence"):
    """The collector overtook a push that had announced itself by this intent: it changes nothing but the head."""

    intent: Intent


class PolicyEvent(Event, frozen=True, kw_only=True, tag="policy"):
    """The rules of the registry from now on, as `schema.gates.policy` reads them. It is only in the policy log."""

    rules: list[dict[str, Any]]


class OptionalEvent(Event, frozen=True, kw_only=True):
    """An event without which every answer is still right: a reader that does not know its kind only keeps its
    line and `blobs`.

    `supersedes` are the ids of earlier optional events: the log no longer refers to the blobs of these. `optional` and
    `blobs` are always written: their defaults come from a factory.
    """

    optional: Literal[True] = field(default_factory=lambda: True)
    blobs: tuple[Descriptor, ...] = field(default_factory=lambda: ())
    supersedes: tuple[Digest, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ascending([blob.digest for blob in self.blobs], "blobs")
        _check_ascending(self.supersedes, "supersedes")


class Deltas(OptionalEvent, frozen=True, kw_only=True, tag="deltas"):
    """The deltas of a version from now on: `table` (see `schema.delta.delta_format`) and the deltas that it lists are
    the blobs. Without a table it offers nothing.
    """

    version: Version
    manifest: Digest
    table: Digest | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.table is None) != (self.table_file is None):
            raise InputError("the table of a deltas event is not one of its blobs")

    @property
    def table_file(self) -> Descriptor | None:
        """Digest and size of the table."""
        return next((blob for blob in self.blobs if blob.digest == self.table), None)


class RolloutStep(OptionalEvent, frozen=True, kw_only=True, tag="rollout"):
    """A channel begins, widens or stops a staged rollout; see `schema.log.state`.

    `expects` is the manifest that the channel holds, and keeps. Without `version` the rollout is over. On a
    governed channel `policy` and `evidence` are those of a promotion, and the evidence is the blob.
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
        check_channel(self.tag)
        parts = (self.version, self.manifest, self.percent, self.salt)
        if any(part is None for part in parts) != all(part is None for part in parts):
            raise InputError("a rollout event says only a part of its rollout")
        if self.percent is not None:
            check_percent(self.percent)
        if {blob.digest for blob in self.blobs} != {self.evidence} - {None}:
            raise InputError("the blob of a rollout event is not its evidence")


class UnknownEvent(OptionalEvent, frozen=True, kw_only=True):
    """An optional event of a kind that a later build added. Its line and its blobs are kept; it changes nothing else.

    `value` is the JSON value that was read, with the keys that only the later build knows.
    """

    value: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    def to_json(self) -> dict[str, Any]:
        return self.value

    @classmethod
    def keep(cls, value: dict[str, Any]) -> "UnknownEvent":
        """Read an event of an unknown kind as far as it can be kept. InputError unless it is optional."""
        kind = value.get("kind")
        if value.get("optional") is not True or not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise InputError(f"it holds an event of unknown kind {str(kind)[:40]!r}", UPGRADE)
        if "blobs" not in value:
            raise InputError(f"it holds an optional event of kind {kind} without blobs")
        common = {key: item for key, item in value.items() if key in cls.__struct_fields__}
        return cls.read({**common, "value": value, "kind": cls.__name__})


ModelEvent = (
    Publish
    | Tag
    | Untag
    | Yank
    | Unyank
    | Attest
    | Pin
    | Unpin
    | Expire
    | Restore
    | Purge
    | Drop
    | Hold
    | Fence
    | Deltas
    | RolloutStep
)
"""An event in a model's log. `PolicyEvent` is in the log of policies."""
KINDS: dict[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in ModelEvent.__args__}


def check_time(time: str) -> None:
    """InputError for a time that no calendar has, such as the 30th of February: rules compute with times."""
    try:
        datetime.fromisoformat(time)
    except ValueError:
        raise InputError(f"not a time: {time[:40]!r}") from None


def check_channel(tag: str) -> str:
    """A tag that may move: any tag that is not a version. InputError otherwise."""
    if Version.is_version(check_tag(tag)):
        raise InputError(
            f"{tag} is a version, not a channel", "a version never moves; name a channel, such as stable"
        )
    return tag


def _check_ascending(digests: Sequence[Digest], label: str) -> None:
    if list(digests) != sorted(set(digests)):
        raise InputError(f"the {label} of an optional event are not in ascending order, each once")
