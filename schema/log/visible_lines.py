"""The lines that an index file shows, held against its state line, by a reader who knows neither of them.
Pure.

Of a log whose first lines are sealed, the reader does not see the whole. The last visible event about a
version still decides whether its files are here, whether it is pinned, and which of its artifacts are held.
"""

from collections.abc import Iterable
from typing import Any

from onnxreg.schema.core.errors import EXTENT, InputError, IntegrityError
from onnxreg.schema.log.events import (
    Attest,
    Drop,
    Event,
    Expire,
    Hold,
    OptionalEvent,
    Pin,
    Publish,
    Purge,
    Restore,
    Tag,
    Unpin,
    decode_event,
)
from onnxreg.schema.log.logline import LogLineHeader
from onnxreg.schema.log.state import State

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
            f"the log of {state.name} cannot be read: {error.message}", error.advice or EXTENT
        ) from error
    entries = {str(version): entry.to_json() for version, entry in state.versions.items()}
    for version, decided in _decided(events).items():
        entry = entries.get(version)
        if entry is None or any(entry.get(key) != value for key, value in decided.items()):
            raise IntegrityError(f"{state.name}:{version} is not as the lines of its log left it", EXTENT)
    refused = {
        event.artifact for _, event in events if isinstance(event, Attest) and event.state == "refused"
    }
    removed = {blob for _, event in events if isinstance(event, Purge) for blob in event.blobs}
    if not (refused - {None} <= {*state.refused} and removed <= {*state.tombstones}):
        raise IntegrityError(f"the state of {state.name} lacks a refusal or a takedown of its log", EXTENT)


def _decided(events: Iterable[tuple[LogLineHeader, Event]]) -> dict[str, dict[str, Any]]:
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
