"""The recorded decisions about versions: the events that each verb appends to the log, if any are needed."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from onnxreg.registry.log.collect import RetentionPolicy, newest_publication
from onnxreg.registry.log.commit import commit, load_own
from onnxreg.registry.log.contents import files, present_versions
from onnxreg.registry.log.delta_log import delta_blobs, withdraw_deltas
from onnxreg.registry.log.log import LocatedVersion, Log, read_manifest
from onnxreg.registry.log.lookup import find, load, read_log
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import (
    Attest,
    Drop,
    Event,
    Expire,
    Pin,
    Publish,
    Purge,
    Restore,
    Tag,
    Unpin,
    Untag,
    Unyank,
    Yank,
    check_channel,
)
from onnxreg.schema.log.state import Channel, VersionEntry

Made = TypeVar("Made", bound=Event)
MAX_BLOBS_PER_PURGE = 500
"""So many blobs are named by one purge event, which is a line of bounded length."""


Decide = Callable[[Log], Iterable[Event]]
"""The events that a decision needs, given the log as it is."""


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The version that a decision is about. `is_logged` is false if it was so before: no event was appended.

    `others` are the other versions that it holds for.
    """

    target: LocatedVersion
    is_logged: bool
    others: tuple[Version, ...] = ()

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def version(self) -> Version:
        return self.target.version

    @property
    def ref(self) -> Ref:
        return self.target.ref

    @property
    def entry(self) -> VersionEntry:
        return self.target.entry

    @property
    def channel(self) -> Channel | None:
        """The channel that the version was named by, if any."""
        return self.target.channel


class Decisions:
    """Appends decisions to the logs of one registry.

    Args:
        store: the registry.
        actor: who decides, as claimed.
    """

    def __init__(self, store: RegistryStore, actor: str | None = None) -> None:
        self.store = store
        self.actor = actor

    def tag(self, ref: Ref, channel: str, reason: str | None = None) -> DecisionResult:
        """Move a channel to a version; nothing happens if it is there.

        Raise ConflictError if another move came first, or the version is yanked.
        """
        target = find(self.store, ref)
        if target.entry.yanked:
            raise ConflictError(
                f"{target.ref} is yanked: a channel would resolve to nothing",
                f"name another version, or take the yank back: reg yank {target.ref} --undo",
            )
        current = read_log(self.store, ref.name).state.channels.get(check_channel(channel))
        if current and (current.version, current.manifest) == (target.version, target.entry.manifest):
            self.store.confirm(target.name)
            return DecisionResult(target, False)
        expects = current.manifest if current else None
        event = self._about(Tag, target, reason, tag=channel, expects=expects)
        return DecisionResult(target, self._append(target.name, [event]))

    def untag(self, name: str, channel: str, reason: str | None = None) -> Version:
        """Take a channel away; returns the version it held. Raise NotFoundError if there is none."""
        current = read_log(self.store, name).channel(channel)
        self._append(name, [Untag(**stamp(name, self.actor, reason), tag=channel, expects=current.manifest)])
        return current.version

    def yank(self, ref: Ref, reason: str | None = None, undo: bool = False) -> DecisionResult:
        """Stop a version, and all with its manifest, from being resolved; the digest still gets it.

        `undo` takes back the yanks it has. Raise InputError if the ref does not say which version: the newest is never yanked by accident.
        """
        target = self._exactly(ref)
        events: list[Event] = []
        if undo:
            yanks = sorted(target.entry.yanks)
            events += [self._about(Unyank, target, reason, yank=yank) for yank in yanks]
        elif not target.entry.yanked:
            events.append(self._about(Yank, target, reason, every=True))
        entries = load(self.store, target.name).versions
        others = sorted(
            version
            for version, entry in entries.items()
            if (entry.manifest, entry.gone) == (target.entry.manifest, None) and version != target.version
        )
        return DecisionResult(target, self._append(target.name, events), tuple(others))

    def pin(self, ref: Ref, reason: str | None = None, undo: bool = False) -> DecisionResult:
        """No retention policy expires this version; `undo` takes that back."""
        target = self._exactly(ref)
        changes = target.entry.pinned == undo
        events = [self._about(Unpin if undo else Pin, target, reason)] if changes else []
        return DecisionResult(target, self._append(target.name, events))

    def drop(
        self, ref: Ref, left: Callable[[LocatedVersion], bool], reason: str | None = None
    ) -> DecisionResult:
        """Take back a version that never left this registry: its number is free again.

        Raise ConflictError if it came from elsewhere, if it `left` (which is asked), or a channel or pin
        holds it.
        """
        target = self._exactly(ref)
        log = load(self.store, target.name)
        published = [line for line in log.lines() if _publishes(line.event, target)]
        if left(target) or any(line.via is not None for line in published):
            raise ConflictError(
                f"{target.ref} is known to other registries",
                "`reg yank` takes it out of use, with its number",
            )
        return DecisionResult(target, self._append(target.name, [self._about(Drop, target, reason)]))

    def attest(
        self,
        ref: Ref,
        statement: bytes,
        media_type: str,
        reason: str | None = None,
        verdict: tuple[Digest, str] | None = None,
    ) -> DecisionResult:
        """State something about a version: the statement becomes a blob. Idempotent.

        An evaluation repeats its `verdict`: the artifact, and the state.
        """
        target = self._exactly(ref)
        is_new = True

        def change(log: Log) -> Collection[Digest] | None:
            nonlocal is_new
            digest = log.attach(statement)
            is_new = not _is_stated(log, target.entry.manifest, digest)
            if not is_new:
                return None
            about = stamp(target.name, self.actor, reason)
            about |= dict(zip(("artifact", "state"), verdict, strict=True)) if verdict else {}
            log.append(
                Attest(**about, manifest=target.entry.manifest, statement=digest, media_type=media_type)
            )
            return []

        with self.store.push() as push:
            commit(self.store, push, target.name, change)
        return DecisionResult(target, is_new)

    def expiry(self, policy: RetentionPolicy, reason: str | None = None) -> Decide:
        """The decision of a retention policy: every version that it does not keep gives up its files."""

        now = newest_publication(self.store) if policy.days is not None else datetime.now(UTC)

        def decide(log: Log) -> list[Event]:
            versions = policy.expiring(log, now)
            targets = (LocatedVersion(log.name, version, log.versions[version]) for version in versions)
            return [self._about(Expire, target, reason or str(policy)) for target in targets]

        return decide

    def expire(self, policy: RetentionPolicy, reason: str | None = None) -> list[Ref]:
        """Apply a retention policy to every model. Returns the versions that gave up their files."""
        decide = self.expiry(policy, reason)
        events = [event for name in list(self.store.names()) for event in self._decide(name, decide)]
        return [Ref(event.name, str(event.version)) for event in events if isinstance(event, Expire)]

    def restore(self, name: str, version: Version, entry: VersionEntry) -> Restore:
        """The event that brings the files of an expired version back."""
        gone = entry.gone
        if gone is None or gone.how != "expired":
            raise ConflictError(f"{name}:{version} is not expired", "leave --restore out")
        return self._about(Restore, LocatedVersion(name, version, entry), None, expire=gone.event)

    def purge(self, refs: Collection[Ref], reason: str) -> tuple[list[LocatedVersion], set[Digest], set[Ref]]:
        """Take versions down: the log may never refer again to the blobs that no version outside the list uses.

        Returns the versions, these blobs, and the versions outside the list that use other files of them: to take these
        files down too, name those versions as well. ConflictError if a version is taken down already.
        """
        targets = {target.ref: target for target in (self._exactly(ref, gone=True) for ref in refs)}
        for ref, target in targets.items():
            if target.entry.gone is not None and target.entry.gone.how == "purged":
                raise ConflictError(f"{ref} is taken down already", f"`reg log {target.name}` says why")
        files_of = {ref: self._files(target) for ref, target in targets.items()}
        users = self._users(set[Digest]().union(*files_of.values()))
        outside = {digest: refs - targets.keys() for digest, refs in users.items() if refs - targets.keys()}
        events: list[Purge] = []
        for ref, target in targets.items():
            deltas = delta_blobs(load(self.store, target.name), [target.version])
            blobs = sorted(files_of[ref] - outside.keys() | deltas)
            for start in range(0, max(len(blobs), 1), MAX_BLOBS_PER_PURGE):
                part = tuple(blobs[start : start + MAX_BLOBS_PER_PURGE])
                events.append(self._about(Purge, target, reason, blobs=part))
        for event in events:
            load_own(self.store, event.name).append(event)
        for event in events:
            self._append(event.name, [event])
        banned = {digest for event in events for digest in event.blobs}
        return list(targets.values()), banned, set[Ref]().union(*outside.values())

    def _files(self, target: LocatedVersion) -> set[Digest]:
        """The files of a version, as its manifest lists them."""
        data = load(self.store, target.name).fetch(target.entry.manifest)
        manifest = read_manifest(data, target.entry.manifest, target.name)
        return {file.digest for file in manifest.all_files()}

    def _users(self, blobs: Collection[Digest]) -> dict[Digest, set[Ref]]:
        """The versions, of all models, that use each of these blobs."""
        users: dict[Digest, set[Ref]] = {}
        for name in list(self.store.names()):
            log = load(self.store, name)
            for version, entry in present_versions(log):
                for digest in {file.digest for file in files(log, version, entry)}.intersection(blobs):
                    users.setdefault(digest, set()).add(Ref(log.name, str(version)))
        return users

    def _exactly(self, ref: Ref, gone: bool = False) -> LocatedVersion:
        if ref.is_bare:
            raise InputError(f"{ref} does not say which version", f"write {ref.name}:VERSION")
        return find(self.store, ref, yanked=True, gone=gone)

    def _about(
        self, kind: Callable[..., Made], target: LocatedVersion, reason: str | None, **more: Any
    ) -> Made:
        about = stamp(target.name, self.actor, reason)
        return kind(**about, version=target.version, manifest=target.entry.manifest, **more)

    def _append(self, name: str, events: Collection[Event]) -> bool:
        """Append these events. Returns False if there are none."""
        return bool(self._decide(name, lambda _: events))

    def _decide(self, name: str, decide: Decide) -> list[Event]:
        events: list[Event] = []

        def change(log: Log) -> Collection[Digest] | None:
            events[:] = decide(log)
            for event in events:
                log.append(event)
            gone = [event.version for event in events if isinstance(event, Expire | Purge | Drop)]
            blobs = withdraw_deltas(log, gone, self.actor) if gone else ()
            return blobs if events else None

        with self.store.push() as push:
            commit(self.store, push, name, change)
        return events


def _is_stated(log: Log, manifest: Digest, statement: Digest) -> bool:
    return any((event.manifest, event.statement) == (manifest, statement) for _, event in log.events(Attest))


def _publishes(event: Event, target: LocatedVersion) -> bool:
    return isinstance(event, Publish) and (event.version, event.manifest) == (
        target.version,
        target.entry.manifest,
    )
