"""The first look at a log with sealed lines: what its last lines alone decide, so that it costs no second request.

A newcomer has nothing to compare with: who can write to the place can serve another log. So this finds damage and
careless forgery; the checkpoint is read, and all is compared, when the log is seen again, pulled or verified.
"""

from collections import defaultdict
from typing import Any

from onnxreg.registry.log.log import Log, StateError
from onnxreg.registry.log.replay import GONE
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import (
    Attest,
    Drop,
    Expire,
    Hold,
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
)
from onnxreg.schema.log.state import Channel, Gone, Rollout, newest_of
from onnxreg.schema.query.requirements import worst

_EMPTY: dict[str, Any] = {"pinned": False, "held": None, "deltas": None}


def check_visible(log: Log) -> None:
    """StateError if the state contradicts the last line on a version, channel, rollout, refusal or takedown, or itself."""
    state, base = log.state, log.base
    entries: dict[Version, dict[str, Any]] = defaultdict(dict)
    channels = {tag: channel for tag, channel in state.channels.items() if channel.seq <= base}
    rollouts = {tag: rollout for tag, rollout in state.rollouts.items() if rollout.seq <= base}
    yanks: dict[Digest, Yank] = {}
    verdicts: list[tuple[int, Attest]] = []
    blobs: set[Digest] = set()
    for line in log.tail:
        match line.event:
            case Publish() as event:
                if (entries[event.version].get("gone") or Gone("expired", line.prev)).how == "dropped":
                    entries[event.version] = {**_EMPTY, "gone": None}
                entries[event.version]["manifest"] = event.manifest
            case Pin() | Unpin() as event:
                entries[event.version]["pinned"] = isinstance(event, Pin)
            case Hold() as event:
                entries[event.version]["held"] = event.paths
            case Restore() as event:
                entries[event.version]["gone"] = None
            case Expire() | Purge() | Drop() as event:
                entries[event.version] |= {**_EMPTY, "gone": Gone(GONE[type(event)], event.id)}
                blobs.update(event.blobs if isinstance(event, Purge) else ())
                rollouts = {tag: item for tag, item in rollouts.items() if item.to != event.version}
            case Yank() as event:
                yanks[event.id] = event
                ended = "manifest" if event.every else "to"
                value = event.manifest if event.every else event.version
                rollouts = {tag: item for tag, item in rollouts.items() if getattr(item, ended) != value}
            case Unyank() as event:
                yanks.pop(event.yank, None)
            case Attest(artifact=Digest(), state=str()) as event:
                verdicts.append((line.seq, event))
            case Tag() as event:
                channels[event.tag] = Channel(
                    event.version, event.manifest, line.seq, event.policy, event.evidence
                )
                rollouts.pop(event.tag, None)
            case Untag() as event:
                channels.pop(event.tag, None)
                rollouts.pop(event.tag, None)
            case RolloutStep(version=Version(), manifest=Digest(), percent=share, salt=str(salt)) as event:
                target = event.version, event.manifest, share, salt, line.seq
                rollouts[event.tag] = Rollout(*target, event.where, event.policy, event.evidence)  # type: ignore[arg-type]
            case RolloutStep() as event:
                rollouts.pop(event.tag, None)
    refused = {event.artifact for _, event in verdicts if event.state == "refused"}
    shown = {
        *newest_of(state.versions),
        *(channel.version for channel in channels.values()),
        *(rollout.to for rollout in rollouts.values()),
    }
    named = {*entries, *shown}
    holds = (
        channels == state.channels
        and rollouts == state.rollouts
        and refused <= {*state.refused}
        and blobs <= {*state.tombstones}
        and shown == state.summaries.keys()
        and named <= state.versions.keys()
        and all(state.versions[item.version].manifest == item.manifest for item in channels.values())
        and {event.manifest for event in yanks.values()}
        <= {entry.manifest for entry in state.versions.values()}
    )
    for version, entry in state.versions.items() if holds else ():
        summary = state.summaries.get(version)
        holds = holds and all(getattr(entry, key) == value for key, value in entries[version].items())
        holds = holds and (
            summary is None or (summary.manifest, summary.size) == (entry.manifest, entry.size)
        )
        for event in yanks.values():
            is_about = event.manifest == entry.manifest and (event.every or event.version == version)
            holds = holds and (not is_about or entry.dropped or event.id in entry.yanks)
        for seq, event in verdicts:
            if event.manifest == entry.manifest and not entry.dropped and event.artifact and event.state:
                stated = entry.attested.get(event.artifact)
                is_ahead = event.state == "refused" and seq < entry.seq
                holds = holds and (
                    is_ahead or (stated is not None and worst((stated, event.state)) == stated)
                )
    if not holds:
        raise StateError(f"the state of {log.name} is not what its log says", VERIFY_ADVICE)
