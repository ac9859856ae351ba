"""Compare the channels and versions of a state line with the new lines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, InputError, IntegrityError
from onnxreg.schema.log.events import (
    Attest,
    Deltas,
    Drop,
    Event,
    Expire,
    Hold,
    OptionalEvent,
    Pin,
    Publish,
    Purge,
    Restore,
    RolloutStep,
    Tag,
    Unpin,
    Untag,
    Unyank,
    Yank,
    decode_event,
)
from onnxreg.schema.log.logline import LogLineHeader
from onnxreg.schema.log.state import State

Table = Mapping[str, Any]
"""Channels or versions of a state line, as JSON."""

_OF_TAG = ("version", "manifest", "policy", "evidence")
"""The fields of a channel that come from the event that moved it."""
_OF_ROLLOUT = ("manifest", "percent", "salt", "where", "policy", "evidence")
"""The fields of a rollout that its event has under the same name."""


def check_claims(
    name: str,
    before: tuple[Table, Table, Table],
    after: tuple[Table, Table, Table],
    refused: Collection[Digest],
    lines: Sequence[LogLineHeader],
    since: int,
) -> None:
    """Raise IntegrityError if channels, versions and rollouts do not follow from the known ones and the new lines.

    The new lines are those after line `since`.

    `refused` are the artifacts that the state says are refused in every version.
    """
    events = [(line, _event(name, line)) for line in lines]
    _check_channels(name, before[0], after[0], events)
    _check_rollouts(name, before[2], after[2], events)
    _check_versions(name, before[1], after[1], events, since)
    _check_verdicts(name, after[1], refused, events)


def _event(name: str, line: LogLineHeader) -> Event:
    try:
        return decode_event(line.event())
    except InputError as error:
        raise IntegrityError(
            f"line {line.seq} of the log of {name} cannot be read: {error.message}",
            error.advice or VERIFY_ADVICE,
        ) from error


Events = Sequence[tuple[LogLineHeader, Event]]


def _check_channels(name: str, before: Table, after: Table, events: Events) -> None:
    """Raise IntegrityError if a channel holds what the lines did not put there."""
    expected = dict(before)
    for line, event in events:
        if isinstance(event, Tag | Untag):
            expected.pop(event.tag, None)
        if isinstance(event, Tag):
            fields = event.to_json()
            copied = {key: fields[key] for key in _OF_TAG if key in fields}
            expected[event.tag] = {**copied, "seq": line.seq}
    for tag in sorted(expected.keys() | after.keys()):
        if expected.get(tag) != after.get(tag):
            raise IntegrityError(
                f"channel {tag} of {name} was moved without an event in the log", VERIFY_ADVICE
            )


def _check_rollouts(name: str, before: Table, after: Table, events: Events) -> None:
    """Raise IntegrityError if a rollout is not as the lines left it: its share, its salt, its target."""
    expected = dict(before)
    for line, event in events:
        match event:
            case Tag() | Untag():
                expected.pop(event.tag, None)
            case RolloutStep(version=None):
                expected.pop(event.tag, None)
            case RolloutStep():
                fields = event.to_json()
                copied = {key: fields[key] for key in _OF_ROLLOUT if key in fields}
                expected[event.tag] = {**copied, "to": fields["version"], "seq": line.seq}
            case Yank() | Expire() | Purge() | Drop():
                is_wide = isinstance(event, Yank) and event.every
                key, ended = ("manifest", event.manifest) if is_wide else ("to", event.version)
                expected = {tag: rollout for tag, rollout in expected.items() if rollout[key] != str(ended)}
    for tag in sorted(expected.keys() | after.keys()):
        if expected.get(tag) != after.get(tag):
            raise IntegrityError(f"the rollout of {name}:{tag} is not what its log says", VERIFY_ADVICE)


def _check_versions(name: str, before: Table, after: Table, events: Events, since: int) -> None:
    """Raise IntegrityError if a version is not as the lines left it."""
    manifests = {version: entry["manifest"] for version, entry in before.items()}
    touched: set[str] = set()
    for _, event in events:
        if isinstance(event, Publish):
            manifests[str(event.version)] = str(event.manifest)
        if isinstance(event, Attest | Yank | Unyank):
            about = {version for version, digest in manifests.items() if digest == str(event.manifest)}
            touched |= set() if isinstance(event, Attest) and event.state is None else about
        elif isinstance(event, Deltas) or not isinstance(event, Tag | OptionalEvent):
            touched.add(str(getattr(event, "version", "")))
    for version, entry in after.items():
        new = version not in manifests and (entry["seq"] > since or not events)
        if new or manifests.get(version, entry["manifest"]) != entry["manifest"]:
            raise IntegrityError(f"{name}:{version} is not the version that the log published", VERIFY_ADVICE)
        if version in before and version not in touched and before[version] != entry:
            raise IntegrityError(f"{name}:{version} was changed without an event in the log", VERIFY_ADVICE)
    _check_yanks(name, _present(before), _present(after), events)


def _present(versions: Table) -> Table:
    """The versions that were not dropped. Later events change nothing in the entry of a dropped one."""
    return {
        version: entry for version, entry in versions.items() if entry.get("gone", {}).get("how") != "dropped"
    }


def _check_yanks(name: str, before: Table, after: Table, events: Events) -> None:
    """Raise IntegrityError if a version lacks a yank that no line takes back: its own, or one of its manifest."""
    decided = [event for _, event in events]
    published = {str(event.version) for event in decided if isinstance(event, Publish)}
    undone = {str(event.yank) for event in decided if isinstance(event, Unyank)}
    for version, entry in after.items():
        manifest = entry["manifest"]
        earlier = before.values() if version in published else [before.get(version, {})]
        yanks = {
            yank for item in earlier if item.get("manifest") == manifest for yank in item.get("yanks", ())
        }
        yanks |= {
            str(line.event_id)
            for line, event in events
            if isinstance(event, Yank)
            and str(event.manifest) == manifest
            and (event.every or str(event.version) == version)
        }
        if not yanks - undone <= {*entry.get("yanks", ())}:
            raise IntegrityError(f"{name}:{version} was yanked, and its state does not say so", VERIFY_ADVICE)


def _check_verdicts(name: str, versions: Table, refused: Collection[Digest], events: Events) -> None:
    """Raise IntegrityError if the state lacks a verdict that the lines attest of one of its versions.

    A refusal may come before its version, if another registry published the manifest. Then `refused` has it, and
    the entry may lack it. A dropped version gets no verdict, though the state line may still have it.
    """
    present = _present(versions)
    for line, event in events:
        if not isinstance(event, Attest) or event.artifact is None or event.state is None:
            continue
        ahead = event.state == "refused" and event.artifact in refused
        for version, entry in present.items():
            verdict = entry.get("attested", {}).get(str(event.artifact))
            missing = verdict is None or (event.state == "refused" and verdict != event.state)
            about = entry["manifest"] == str(event.manifest)
            if about and missing and not (ahead and line.seq < entry["seq"]):
                raise IntegrityError(
                    f"{name}:{version} was evaluated, and its state does not say so", VERIFY_ADVICE
                )


_NEW: dict[str, Any] = {"gone": None, "pinned": None, "held": None}
"""The keys of an entry that a publish leaves empty."""
_GONE = {Expire: "expired", Purge: "purged", Drop: "dropped"}


def check_visible(state: State, lines: Iterable[LogLineHeader]) -> None:
    """IntegrityError if the state contradicts the last visible event about a version, or lacks a refusal or a
    takedown."""
    try:
        events = [(line, decode_event(line.event())) for line in lines]
    except InputError as error:
        raise IntegrityError(
            f"the log of {state.name} cannot be read: {error.message}", error.advice or VERIFY_ADVICE
        ) from error
    entries = {str(version): entry.to_json() for version, entry in state.versions.items()}
    for version, decided in _decisions(events).items():
        entry = entries.get(version)
        if entry is None or any(entry.get(key) != value for key, value in decided.items()):
            raise IntegrityError(
                f"{state.name}:{version} is not as the lines of its log left it", VERIFY_ADVICE
            )
    refused = {
        event.artifact for _, event in events if isinstance(event, Attest) and event.state == "refused"
    }
    removed = {blob for _, event in events if isinstance(event, Purge) for blob in event.blobs}
    if not (refused - {None} <= {*state.refused} and removed <= {*state.tombstones}):
        raise IntegrityError(
            f"the state of {state.name} lacks a refusal or a takedown of its log", VERIFY_ADVICE
        )


def _decisions(events: Iterable[tuple[LogLineHeader, Event]]) -> dict[str, dict[str, Any]]:
    """For each version that events are about, the keys of its entry that the last of them decide."""
    decisions: dict[str, dict[str, Any]] = {}
    for line, event in events:
        version = getattr(event, "version", None)
        if version is None or isinstance(event, Tag | Attest | OptionalEvent):
            continue
        decided = decisions.setdefault(str(version), {})
        if isinstance(event, Publish) and (decided.get("gone") or {}).get("how") == "dropped":
            decided |= _NEW
        elif isinstance(event, Pin | Unpin):
            decided["pinned"] = True if isinstance(event, Pin) else None
        elif isinstance(event, Restore):
            decided["gone"] = None
        elif isinstance(event, Hold):
            decided["held"] = None if event.paths is None else list(event.paths)
        elif isinstance(event, Expire | Purge | Drop):
            decided |= _NEW | {"gone": {"how": _GONE[type(event)], "event": str(line.event_id)}}
    return decisions
