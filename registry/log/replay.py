"""The rules by which events change the state of a model.

Pure: an event is applied by its rule, or refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import (
    Attest,
    Deltas,
    Drop,
    Event,
    Expire,
    Fence,
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
)
from onnxreg.schema.log.state import Channel, Gone, Rollout, VersionEntry
from onnxreg.schema.query.requirements import worst


@dataclass(kw_only=True)
class LogReplay:
    """The versions of a model, those of them that events since the last sealing wrote, and its channels.

    Dropped versions are left out. `tombstones` are blobs that may not come back; `refused` are
    artifacts that an evaluation refused, of whichever version. `rollouts` are those of channels.
    """

    name: str
    entries: dict[Version, VersionEntry] = field(default_factory=dict)
    recent: dict[Version, VersionEntry] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    tombstones: list[Digest] = field(default_factory=list)
    refused: set[Digest] = field(default_factory=set)
    rollouts: dict[str, Rollout] = field(default_factory=dict)

    def apply(self, event: Event, seq: int) -> None:
        """Add the event of line `seq`. Raise ConflictError if it contradicts what is there."""
        match event:
            case Publish():
                self._publish(event, seq)
            case Tag():
                self._expect(event.tag, event.expects)
                self._present(event.version, event.manifest)
                self.channels[event.tag] = Channel(
                    event.version, event.manifest, seq, event.policy, event.evidence
                )
                self.rollouts.pop(event.tag, None)
            case Untag():
                self._expect(event.tag, event.expects)
                del self.channels[event.tag]
                self.rollouts.pop(event.tag, None)
            case Yank() | Unyank():
                self._yank(event)
            case Pin() | Unpin():
                entry = self._present(event.version, event.manifest)
                self._set(event.version, entry._replace(pinned=isinstance(event, Pin)))
            case Expire() | Purge() | Drop():
                self._give_up(event)
            case Restore():
                self._restore(event)
            case Hold():
                entry = self._present(event.version, event.manifest)
                self._set(event.version, entry._replace(held=event.paths))
            case Attest():
                self._attest(event)
            case RolloutStep():
                self._roll_out(event, seq)
            case Deltas():
                self._deltas(event)
            case Fence() | OptionalEvent():
                pass
            case _:
                raise InputError(f"no rule for an event of kind {event.kind}")

    def _publish(self, event: Publish, seq: int) -> None:
        entry = self.entries.get(event.version)
        if entry is not None and entry.manifest != event.manifest:
            raise ConflictError(
                f"{self.name}:{event.version} is already published, with manifest {entry.manifest.short}... "
                f"instead of {event.manifest.short}...",
                "a version never changes: publish under another version",
            )
        if entry is None:
            entry = VersionEntry(event.manifest, event.size, seq)
            if event.manifest in self._judged:
                for twin in map(self.entries.__getitem__, self._versions_of(event.manifest)):
                    entry = entry._replace(yanks=entry.yanks | twin.yanks, attested=twin.attested)
        self._set(event.version, entry)

    def _versions_of(self, manifest: Digest) -> list[Version]:
        return [version for version, entry in self.entries.items() if entry.manifest == manifest]

    @cached_property
    def _judged(self) -> set[Digest]:
        """The manifests with yanks or verdicts, which a later version with the same manifest takes over."""
        return {entry.manifest for entry in self.entries.values() if entry.yanks or entry.attested}

    def _yank(self, event: Yank | Unyank) -> None:
        """A yank holds for every version with that manifest, until it is taken back."""
        versions = self._versions_of(event.manifest)
        if isinstance(event, Yank) and not event.every:
            versions = [version for version in versions if version == event.version]
        if not versions:
            raise ConflictError(f"manifest {event.manifest.short}... of {self.name} is not published here")
        self._judged.add(event.manifest)
        for version in versions:
            yanks = self.entries[version].yanks
            yanks = yanks | {event.id} if isinstance(event, Yank) else yanks - {event.yank}
            self._set(version, self.entries[version]._replace(yanks=yanks))
            if isinstance(event, Yank):
                self._end_rollouts(version)

    def _attest(self, event: Attest) -> None:
        """Every version with that manifest takes over the verdict, if it is worse than those before.

        A refusal is one of the bytes, whichever manifest names them: also one that is not published here.
        """
        about = self._versions_of(event.manifest)
        if event.artifact is not None and event.state == "refused":
            self.refused.add(event.artifact)
        elif not about:
            raise ConflictError(f"manifest {event.manifest.short}... of {self.name} is not published here")
        if event.artifact is None or event.state is None:
            return
        for version in about:
            entry = self.entries[version]
            state = worst((event.state, entry.attested.get(event.artifact, event.state)))
            self._judged.add(event.manifest)
            self._set(version, entry._replace(attested={**entry.attested, event.artifact: state}))

    def _deltas(self, event: Deltas) -> None:
        entry = self.entries.get(event.version)
        if event.table is not None:
            entry = self._present(event.version, event.manifest)
        if entry is not None:
            self._set(event.version, entry._replace(deltas=event.table))

    def _roll_out(self, event: RolloutStep, seq: int) -> None:
        self._expect(event.tag, event.expects)
        if event.version is None or event.manifest is None or event.percent is None or event.salt is None:
            self.rollouts.pop(event.tag, None)
            return
        if self._present(event.version, event.manifest).yanked:
            raise ConflictError(f"{self.name}:{event.version} is yanked", "roll out another version")
        self.rollouts[event.tag] = Rollout(
            event.version,
            event.manifest,
            event.percent,
            event.salt,
            seq,
            event.where,
            event.policy,
            event.evidence,
        )

    def _end_rollouts(self, version: Version) -> None:
        """No device gets a version by a rollout any more."""
        self.rollouts = {tag: rollout for tag, rollout in self.rollouts.items() if rollout.to != version}

    def _give_up(self, event: Expire | Purge | Drop) -> None:
        """A version loses its files.

        Nobody may depend on it: no channel, and no pin unless it is taken down.
        """
        entry = self._known(event.version, event.manifest)
        holders = [tag for tag, channel in self.channels.items() if channel.version == event.version]
        if holders:
            raise ConflictError(
                f"{self.name}:{event.version} is what {' and '.join(holders)} means",
                Advice("untag-first"),
            )
        if isinstance(event, Purge):
            self.tombstones += [blob for blob in event.blobs if blob not in self.tombstones]
        elif entry.pinned:
            raise ConflictError(f"{self.name}:{event.version} is pinned", Advice("unpin"))
        elif entry.gone is not None:
            raise ConflictError(
                f"{self.name}:{event.version} is {entry.gone.how} already",
                Advice("log-reason", name=self.name),
            )
        elif entry.attested and isinstance(event, Drop):
            raise ConflictError(
                f"{self.name}:{event.version} has an evaluation or a refusal on record, which stays",
                Advice("yank"),
            )
        elif entry.yanked and isinstance(event, Drop):
            raise ConflictError(
                f"{self.name}:{event.version} is yanked, and that stays on record",
                f"to take it back first: reg yank {self.name}:{event.version} --undo",
            )
        self._end_rollouts(event.version)
        how = {Expire: "expired", Purge: "purged", Drop: "dropped"}[type(event)]
        self._set(
            event.version, entry._replace(pinned=False, held=None, gone=Gone(how, event.id), deltas=None)
        )
        if isinstance(event, Drop):
            del self.entries[event.version]

    def _restore(self, event: Restore) -> None:
        entry = self._known(event.version, event.manifest)
        if entry.gone != Gone("expired", event.expire):
            raise ConflictError(f"{self.name}:{event.version} was not given up by that event")
        self._set(event.version, entry._replace(gone=None))

    def _set(self, version: Version, entry: VersionEntry) -> None:
        self.entries[version] = self.recent[version] = entry

    def _expect(self, tag: str, expected: Digest | None) -> None:
        channel = self.channels.get(tag)
        if (channel.manifest if channel else None) != expected:
            raise ConflictError(
                f"channel {tag} of {self.name} holds {channel.version if channel else 'nothing'} by now",
                Advice("decide-again"),
            )

    def _known(self, version: Version, manifest: Digest) -> VersionEntry:
        entry = self.entries.get(version)
        if entry is None or entry.manifest != manifest:
            raise ConflictError(
                f"{self.name}:{version} with manifest {manifest.short}... is not published here"
            )
        return entry

    def _present(self, version: Version, manifest: Digest) -> VersionEntry:
        entry = self._known(version, manifest)
        if entry.gone is not None:
            raise ConflictError(f"{self.name}:{version} is {entry.gone.how}", "name a version that is here")
        return entry


def touches(event: Event, entries: Mapping[Version, VersionEntry]) -> Sequence[Version]:
    """The versions whose entries an event writes."""
    match event:
        case Publish() | Pin() | Unpin() | Expire() | Purge() | Drop() | Restore() | Hold() | Deltas():
            return [event.version]
        case Attest(state=None):
            return []
        case Attest() | Yank() | Unyank():
            return [version for version, entry in entries.items() if entry.manifest == event.manifest]
        case _:
            return []
