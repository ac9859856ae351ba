"""The decisions about versions that stand on record: what each verb appends to the log, and when it has nothing to."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, TypeVar

from onnxreg.registry.log import lookup
from onnxreg.registry.log.channels import held_by
from onnxreg.registry.log.commit import commit, load, load_own
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.references import files, present_versions
from onnxreg.registry.log.retention import RetentionPolicy
from onnxreg.registry.log.stamp import stamp
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.version import Version
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
from onnxreg.schema.log.state import VersionEntry

Made = TypeVar("Made", bound=Event)
PURGED = 500
"""So many blobs are named by one purge event, which is a line of bounded length."""


Decide = Callable[[Ledger], Iterable[Event]]
"""The events that a decision needs, given the log as it is."""


class Decisions:
    """Appends decisions to the logs of one registry.

    Args:
        store: the registry.
        actor: who decides, as claimed.
    """

    def __init__(self, store: RegistryStore, actor: str | None = None) -> None:
        self.store = store
        self.actor = actor

    def tag(self, ref: Ref, channel: str, reason: str | None = None) -> lookup.LocatedVersion:
        """Move a channel to a version; nothing happens where it is there.

        Raise ConflictError if another move came first.
        """
        found, state = lookup.find_with_state(self.store, ref)
        held = state.channels.get(check_channel(channel))
        if held is None or (held.version, held.manifest) != (found.version, found.entry.manifest):
            expects = held.manifest if held else None
            self._append(found.name, [self._about(Tag, found, reason, tag=channel, expects=expects)])
        else:
            self.store.confirm(found.name)
        return found

    def untag(self, name: str, channel: str, reason: str | None = None) -> Version:
        """Take a channel away; returns the version it held. Raise NotFoundError if there is none."""
        held = held_by(lookup.read_state(self.store, name), channel)
        self._append(name, [Untag(**stamp(name, self.actor, reason), tag=channel, expects=held.manifest)])
        return held.version

    def yank(self, ref: Ref, reason: str | None = None, undo: bool = False) -> lookup.LocatedVersion:
        """Stop a version from being resolved; its digest still gets it. `undo` takes back the yanks it has.

        Raise InputError if the ref does not say which version: the newest is never yanked by accident.
        """
        found = self._exactly(ref)
        if undo:
            yanks = sorted(found.entry.yanks)
            self._append(found.name, [self._about(Unyank, found, reason, yank=yank) for yank in yanks])
        else:
            self._append(found.name, [] if found.entry.yanked else [self._about(Yank, found, reason)])
        return found

    def pin(self, ref: Ref, reason: str | None = None, undo: bool = False) -> lookup.LocatedVersion:
        """No retention policy expires this version; `undo` takes that back."""
        found = self._exactly(ref)
        changes = found.entry.pinned == undo
        self._append(found.name, [self._about(Unpin if undo else Pin, found, reason)] if changes else [])
        return found

    def drop(
        self, ref: Ref, left: Callable[[lookup.LocatedVersion], bool], reason: str | None = None
    ) -> lookup.LocatedVersion:
        """Take back a version that never left this registry: its number is free again.

        Raise ConflictError if it came from elsewhere, where it `left` (which is asked), or a channel or pin
        holds it.
        """
        found = self._exactly(ref)
        ledger, _ = load(self.store, found.name)
        published = [line for line in ledger.lines() if _publishes(line.event, found)]
        if left(found) or any(line.via is not None for line in published):
            raise ConflictError(
                f"{found.ref} is known to other registries", "`reg yank` takes it out of use, with its number"
            )
        self._append(found.name, [self._about(Drop, found, reason)])
        return found

    def attest(
        self,
        ref: Ref,
        statement: bytes,
        media_type: str,
        reason: str | None = None,
        verdict: tuple[Digest, str] | None = None,
    ) -> lookup.LocatedVersion:
        """State something about a version: the statement becomes a blob. Nothing happens where just that was stated.

        An evaluation repeats its `verdict`: the artifact, and the state.
        """
        found, digest = self._exactly(ref), Digest.of(statement)

        def change(ledger: Ledger) -> Collection[Digest] | None:
            if _is_stated(ledger, found.entry.manifest, digest):
                return None
            about = stamp(found.name, self.actor, reason)
            about |= dict(zip(("artifact", "state"), verdict, strict=True)) if verdict else {}
            ledger.append(
                Attest(**about, manifest=found.entry.manifest, statement=digest, media_type=media_type)
            )
            return [digest]

        with self.store.push() as push:
            push.put(BytesIO(statement), digest)
            commit(self.store, push, found.name, change)
        return found

    def expiry(self, policy: RetentionPolicy, reason: str | None = None) -> Decide:
        """What the policy decides about a log: every version that it does not keep gives up its files."""

        def decide(ledger: Ledger) -> list[Event]:
            versions = policy.expiring(ledger, datetime.now(UTC))
            found = (
                lookup.LocatedVersion(ledger.name, version, ledger.entries[version]) for version in versions
            )
            return [self._about(Expire, each, reason or str(policy)) for each in found]

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
        return self._about(Restore, lookup.LocatedVersion(name, version, entry), None, expire=gone.event)

    def purge(
        self, ref: Ref, reason: str, paths: Collection[str] = (), everywhere: bool = False
    ) -> tuple[list[lookup.LocatedVersion], set[Digest], set[Ref]]:
        """Take a version down. Returns the versions taken down, the blobs that may not come back, and other versions
        that share files with it, which stay.

        The blobs are the files that no other version uses; or, with `paths`, exactly these files: then ConflictError
        where other versions use them too. `everywhere` takes down all files, or these, with every version that uses them.
        """
        found = self._exactly(ref, gone=True)
        if found.entry.gone is not None and found.entry.gone.how == "purged":
            raise ConflictError(f"{found.ref} is taken down already", f"`reg log {found.name}` says why")
        blobs = self._blobs(found, paths)
        users = {
            digest: versions for digest, versions in self._users(blobs).items() if versions != {found.ref}
        }
        others = sorted({other for versions in users.values() for other in versions} - {found.ref}, key=str)
        sharing: set[Ref] = set()
        if not paths and not everywhere:
            blobs, others, sharing = blobs - users.keys(), [], set(others)
        if others and not everywhere:
            raise ConflictError(
                f"{', '.join(map(str, others[:5]))}{' ...' if len(others) > 5 else ''} "
                f"{'has' if len(others) == 1 else 'have'} the same bytes",
                "--everywhere takes those versions down too",
            )
        taken = [found, *(lookup.find(self.store, other, yanked=True) for other in others)]
        ordered = sorted(blobs)
        starts = range(0, max(len(ordered), 1), PURGED)
        parts = [tuple(ordered[start : start + PURGED]) for start in starts]
        events = [self._about(Purge, each, reason, blobs=part) for each in taken for part in parts]
        for event in events:
            load_own(self.store, event.name)[0].append(event)
        for event in events:
            self._append(event.name, [event])
        return taken, blobs, sharing

    def _blobs(self, found: lookup.LocatedVersion, paths: Collection[str]) -> set[Digest]:
        """The files of a version; only those at these paths, where given.

        Raise NotFoundError if a path is none of its.
        """
        data = load(self.store, found.name)[0].fetch(found.entry.manifest)
        manifest = read_manifest(data, found.entry.manifest, found.name)
        known = {file.path: file.digest for file in manifest.all_files()}
        for path in paths:
            if path not in known:
                raise NotFoundError(f"{found.ref} has no file {path}", f"`reg show {found.ref}` lists them")
        return {known[path] for path in paths or known}

    def _users(self, blobs: Collection[Digest]) -> dict[Digest, set[Ref]]:
        """Which versions of all models use each of these blobs."""
        users: dict[Digest, set[Ref]] = {}
        for name in list(self.store.names()):
            ledger, _ = load(self.store, name)
            for version, entry in present_versions(ledger):
                for digest in {file.digest for file in files(ledger, version, entry)}.intersection(blobs):
                    users.setdefault(digest, set()).add(Ref(ledger.name, str(version)))
        return users

    def _exactly(self, ref: Ref, gone: bool = False) -> lookup.LocatedVersion:
        if ref.is_bare:
            raise InputError(f"{ref} does not say which version", f"write {ref.name}:VERSION")
        return lookup.find(self.store, ref, yanked=True, gone=gone)

    def _about(
        self, kind: Callable[..., Made], found: lookup.LocatedVersion, reason: str | None, **more: Any
    ) -> Made:
        about = stamp(found.name, self.actor, reason)
        return kind(**about, version=found.version, manifest=found.entry.manifest, **more)

    def _append(self, name: str, events: Collection[Event]) -> None:
        self._decide(name, lambda _: events)

    def _decide(self, name: str, decide: Decide) -> list[Event]:
        events: list[Event] = []

        def change(ledger: Ledger) -> Collection[Digest] | None:
            events[:] = decide(ledger)
            for event in events:
                ledger.append(event)
            return () if events else None

        with self.store.push() as push:
            commit(self.store, push, name, change)
        return events


def _is_stated(ledger: Ledger, manifest: Digest, statement: Digest) -> bool:
    said = (line for line in ledger.skim() if line.kind == Attest.kind and line.manifest == str(manifest))
    return any(line.event()["statement"] == str(statement) for line in said)


def _publishes(event: Event, found: lookup.LocatedVersion) -> bool:
    return isinstance(event, Publish) and (event.version, event.manifest) == (
        found.version,
        found.entry.manifest,
    )
