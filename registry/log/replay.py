"""The rules by which events change what is true of a model. Pure: an event is applied by its rule, or refused."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError
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
    VersionEvent,
    Yank,
)
from onnxreg.schema.log.state import Channel, Checkpoint, Gone, Rollout, VersionEntry
from onnxreg.schema.query.requirements import worst

GONE: dict[type[Event], Literal["expired", "purged", "dropped"]] = {
    Expire: "expired",
    Purge: "purged",
    Drop: "dropped",
}


class Replay:
    """The tables of a model after some lines of its log: from a checkpoint, or from the start.

    `versions` are those that were not dropped; `recent` the entries, of dropped ones too, that events since the
    checkpoint wrote. `tombstones` may not come back. `refused` are artifacts that an evaluation refused, of
    whichever version.

    Args:
        claims: the entries of a state line, if the checkpoint was not read but guessed from them: then an event is
            applied also if something else must have been true before it, and a version that is published has the
            yanks and verdicts that the state claims of it.
    """

    def __init__(
        self, name: str, checkpoint: Checkpoint, claims: Mapping[Version, VersionEntry] | None = None
    ) -> None:
        self.name = name
        self.claims = claims
        self._wide_yanks: set[Digest] = set()
        self.versions = dict(checkpoint.versions)
        self.recent: dict[Version, VersionEntry] = {}
        self.channels = dict(checkpoint.channels)
        self.tombstones = list(checkpoint.tombstones)
        self.refused = set(checkpoint.refused)
        self.rollouts = dict(checkpoint.rollouts)

    def checkpoint(self) -> Checkpoint:
        """All of it, as the blob that sealing writes."""
        return Checkpoint(
            dict(self.versions),
            dict(self.channels),
            tuple(self.tombstones),
            tuple(sorted(self.refused)),
            dict(self.rollouts),
        )

    def apply(self, event: Event, seq: int) -> None:
        """Add the event of line `seq`. Raise ConflictError if it contradicts what is there."""
        match event:
            case Publish():
                self._publish(event, seq)
            case Tag():
                self._expect(event.tag, event.expects)
                self._present(event)
                self.channels[event.tag] = Channel(
                    event.version, event.manifest, seq, event.policy, event.evidence
                )
                self.rollouts.pop(event.tag, None)
            case Untag():
                self._expect(event.tag, event.expects)
                self.channels.pop(event.tag, None)
                self.rollouts.pop(event.tag, None)
            case Yank() | Unyank():
                self._yank(event)
            case Pin() | Unpin():
                self._set(event.version, self._present(event).replace(pinned=isinstance(event, Pin)))
            case Expire() | Purge() | Drop():
                self._give_up(event)
            case Restore():
                entry = self._known(event)
                if entry.gone != Gone("expired", event.expire):
                    self._refuse(f"{self.name}:{event.version} was not given up by that event")
                self._set(event.version, entry.replace(gone=None))
            case Hold():
                self._set(event.version, self._present(event).replace(held=event.paths))
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

    def _refuse(self, message: str, hint: str = "") -> None:
        """Raise ConflictError: an event contradicts what is there, if that is known."""
        if self.claims is None:
            raise ConflictError(message, hint)

    def _publish(self, event: Publish, seq: int) -> None:
        entry = self.versions.get(event.version)
        if entry is not None and entry.manifest != event.manifest:
            raise ConflictError(
                f"{self.name}:{event.version} is already published, with manifest {entry.manifest.short}... "
                f"instead of {event.manifest.short}...",
                "a version never changes: publish under another version",
            )
        if entry is None:
            twins = [self.versions[version] for version in self._manifests.get(event.manifest, ())]
            yanks = {yank for twin in twins for yank in twin.yanks}
            attested = twins[-1].attested if twins else {}
            claim = self.claims.get(event.version) if self.claims else None
            if claim and (claim.manifest, claim.seq) == (event.manifest, seq):
                # The state line does not show all twins, nor which of a twin's yanks are for every version.
                yanks = {*claim.yanks, *(yanks & self._wide_yanks)}
                attested = {**claim.attested, **_worse(attested, claim.attested)}
            entry = VersionEntry(event.manifest, event.size, seq, tuple(sorted(yanks)), attested=attested)
            self._manifests.setdefault(event.manifest, {})[event.version] = None
        self._set(event.version, entry)

    @cached_property
    def _manifests(self) -> dict[Digest, dict[Version, None]]:
        """The versions of each manifest, in the order of publication."""
        manifests: dict[Digest, dict[Version, None]] = {}
        for version, entry in self.versions.items():
            manifests.setdefault(entry.manifest, {})[version] = None
        return manifests

    def _yank(self, event: Yank | Unyank) -> None:
        """A yank holds for every version with that manifest, until it is taken back."""
        versions = list(self._manifests.get(event.manifest, ()))
        if isinstance(event, Yank) and not event.every:
            versions = [version for version in versions if version == event.version]
        if not versions:
            self._refuse(f"manifest {event.manifest.short}... of {self.name} is not published here")
            self._set(event.version, self._known(event))
            versions = [event.version]
        if isinstance(event, Yank) and event.every:
            self._wide_yanks.add(event.id)
        for version in versions:
            yanks = {*self.versions[version].yanks}
            yanks = yanks | {event.id} if isinstance(event, Yank) else yanks - {event.yank}
            self._set(version, self.versions[version].replace(yanks=tuple(sorted(yanks))))
            if isinstance(event, Yank):
                self._end_rollouts(version)

    def _attest(self, event: Attest) -> None:
        """Every version with that manifest takes over the verdict, if it is worse than those before.

        A refusal is one of the bytes, whichever manifest names them: also one that is not published here.
        """
        versions = list(self._manifests.get(event.manifest, ()))
        if event.artifact is not None and event.state == "refused":
            self.refused.add(event.artifact)
        elif not versions:
            self._refuse(f"manifest {event.manifest.short}... of {self.name} is not published here")
        if event.artifact is None or event.state is None:
            return
        for version in versions:
            entry = self.versions[version]
            attested = _worse({event.artifact: event.state}, entry.attested)
            self._set(version, entry.replace(attested={**entry.attested, **attested}))

    def _deltas(self, event: Deltas) -> None:
        entry = self.versions.get(event.version) if event.table is None else self._present(event)
        if entry is not None:
            self._set(event.version, entry.replace(deltas=event.table))

    def _roll_out(self, event: RolloutStep, seq: int) -> None:
        self._expect(event.tag, event.expects)
        if event.version is None or event.manifest is None or event.percent is None or event.salt is None:
            self.rollouts.pop(event.tag, None)
            return
        if self._present(event).yanked:
            self._refuse(f"{self.name}:{event.version} is yanked", "roll out another version")
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
        entry, ref = self._known(event), f"{self.name}:{event.version}"
        holders = [tag for tag, channel in self.channels.items() if channel.version == event.version]
        if holders:
            raise ConflictError(
                f"{ref} is what {' and '.join(holders)} means", "move the channel or `reg untag` it first"
            )
        if isinstance(event, Purge):
            self.tombstones += [blob for blob in event.blobs if blob not in self.tombstones]
        elif entry.pinned:
            self._refuse(f"{ref} is pinned", "take the pin back: reg pin --undo")
        elif entry.gone is not None:
            self._refuse(f"{ref} is {entry.gone.how} already", f"`reg log {self.name}` says why")
        elif entry.attested and isinstance(event, Drop):
            self._refuse(
                f"{ref} has an evaluation or a refusal on record, which stays",
                "`reg yank` takes it out of use, with its number",
            )
        elif entry.yanked and isinstance(event, Drop):
            self._refuse(
                f"{ref} is yanked, and that stays on record",
                f"to take it back first: reg yank {ref} --undo",
            )
        self._end_rollouts(event.version)
        gone = Gone(GONE[type(event)], event.id)
        entry = entry.replace(pinned=False, held=None, gone=gone, deltas=None)
        if isinstance(event, Drop):
            self._set(event.version, entry.replace(yanks=(), attested={}))  # it has none, only twins may
            self._manifests.get(event.manifest, {}).pop(event.version, None)
            del self.versions[event.version]
        else:
            self._set(event.version, entry)

    def _set(self, version: Version, entry: VersionEntry) -> None:
        self.versions[version] = self.recent[version] = entry

    def _expect(self, tag: str, expected: Digest | None) -> None:
        channel = self.channels.get(tag)
        if (channel.manifest if channel else None) != expected:
            self._refuse(
                f"channel {tag} of {self.name} holds {channel.version if channel else 'nothing'} by now",
                "look at `reg log` and decide again",
            )

    def _known(self, event: VersionEvent | Deltas | RolloutStep) -> VersionEntry:
        entry = None if event.version is None else self.versions.get(event.version)
        if entry is None or entry.manifest != event.manifest:
            assert event.manifest is not None
            if entry is not None or self.claims is None:
                raise ConflictError(
                    f"{self.name}:{event.version} with manifest {event.manifest.short}... is not published here"
                )
            return VersionEntry(event.manifest, 0, 0)  # of an earlier version with this number, to be dropped
        return entry

    def _present(self, event: VersionEvent | Deltas | RolloutStep) -> VersionEntry:
        entry = self._known(event)
        if entry.gone is not None:
            self._refuse(f"{self.name}:{event.version} is {entry.gone.how}", "name a version that is here")
        return entry


def _worse(verdicts: Mapping[Digest, str], others: Mapping[Digest, str]) -> dict[Digest, str]:
    """Each of the first verdicts, or the other one on the same artifact if that is worse."""
    return {artifact: worst((state, others.get(artifact, state))) for artifact, state in verdicts.items()}
