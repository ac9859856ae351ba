"""Transfers between the registry on this machine and a remote, of one model or of many, with the records that both keep.

Of many models, the versions that may travel go, and the others are listed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnxreg.registry.gates.promotion import promotion_documents
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load, read_ledger
from onnxreg.registry.log.contents import Selection, files
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.ledger import Ledger, channel_of
from onnxreg.registry.log.lookup import LocatedVersion, read_blob, read_consistently, read_manifest
from onnxreg.registry.read.remotes import Remotes, TrackedReader, TrackingCopies
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import IndexFile, LocalStore, RegistryReader, RegistryStore
from onnxreg.registry.support.disk import MACHINE_ERRNOS, host_errors
from onnxreg.registry.transfer.copy import SkippedVersion, TransferResult, copy, skip_on_error
from onnxreg.registry.transfer.layout_choice import LayoutChoice
from onnxreg.registry.transfer.plan import (
    MakeRestore,
    TransferRequest,
    check_versions,
    check_yanked,
    make_plan,
)
from onnxreg.registry.trust.checked_reader import CheckedReader, check_or_refresh
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    HostError,
    IntegrityError,
    NotFoundError,
    RemoteError,
    suggest,
)
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.log.state import State, VersionEntry, newest_of, no_channel

Remember = Callable[[Ledger, Collection[Version]], None]
"""Records the versions that another registry will know, before they are sent."""
_LATE_ERRORS = (HostError, NotFoundError, RemoteError)
"""Errors after which the tracking copy is incomplete. The transfer itself has succeeded."""


@dataclass(frozen=True)
class Exchange:
    """The local registry as one side of a transfer; `Registry` has the same methods and describes them.

    Args:
        known_heads: the newest state that this user saw of each log.
        actor: who answers for events.
        restore: bring back versions that expired at the destination.
        yanked_bytes: also push artifacts that only yanked versions have there.
    """

    store: DirectoryRegistry
    known_heads: KnownHeads
    actor: str | None = None
    restore: bool = False
    yanked_bytes: bool = False

    def push(
        self,
        ref: Ref,
        to: str | None,
        *,
        progress: Progress,
        heal: bool,
        channels: Collection[str],
        layout: LayoutChoice | None = None,
    ) -> TransferResult:
        located = lookup.find(self.store, ref, yanked=Version.is_version(ref.tag or ""))
        channel_versions = _holders(load(self.store, located.name)[0], located, channels) if channels else []
        remote = self._destination(to)
        if layout is not None:
            layout.begin(remote, located.name)
        versions = [located, *channel_versions]
        for item in versions:
            record_push(self.store, item, remote.registry_id)
        tracking = TrackingCopies(remote.registry_id, remote.url)
        request = TransferRequest(
            located.name,
            [item.version for item in versions],
            channels=channels,
            restore=self._restore,
            heal=heal or isinstance(remote, LocalStore),
            actor=self.actor,
            yanked_bytes=self.yanked_bytes,
        )
        look = partial(self._look, remote, self.known_heads.read(remote.registry_id, located.name))
        result = copy(self.store, remote, request, progress, near=[tracking.store], look=look)
        if layout is not None:
            layout.end(remote, located.name)
        with suppress(*_LATE_ERRORS):
            if result.ledger is not None:
                tracking.keep_log(result.ledger)
        return result

    def push_many(
        self,
        glob: str,
        to: str | None,
        *,
        every: bool,
        progress: Progress,
        heal: bool,
        channels: Collection[str],
    ) -> list[TransferResult]:
        """Push the newest release of each model, or with `every` all its versions, and those of these channels that it has.

        An error of one model or version is listed with it, and the others go on; RemoteError and HostError end the work.
        """
        names = lookup.matching(self.store, [glob])
        check_models(self.store, names, channels)
        remote = self._destination(to)

        def choose(ledger: Ledger) -> TransferRequest:
            tags = [tag for tag in channels if tag in ledger.channels]
            newest = {*_newest(ledger), *(ledger.channels[tag].version for tag in tags)}
            versions = ledger.entries if every else sorted(newest)
            return TransferRequest(
                ledger.name,
                versions,
                channels=tags,
                restore=self._restore,
                heal=heal,
                actor=self.actor,
                yanked_bytes=self.yanked_bytes,
            )

        def remember(ledger: Ledger, versions: Collection[Version]) -> None:
            record_pushes(self.store, ledger, versions, remote.registry_id)

        results = []
        for name in names:
            result = send(self.store, remote, name, choose, remember, progress)
            if not result.versions and not result.skipped:
                reason = f"{name} has no " + (
                    "version" if every else "usable release: each version is yanked or a pre-release"
                )
                result.skipped.append(SkippedVersion(name, None, reason))
            results.append(result)
        return results

    def pull(
        self,
        ref: Ref,
        source: str | None,
        *,
        progress: Progress,
        selection: Selection,
        channels: Collection[str],
        deltas: bool,
    ) -> TransferResult:
        if not self.store.is_there:
            self.store.check_not_foreign()
        remotes = Remotes.load(self.store)
        remote = remotes.reach(source)
        check_distinct(remote, self.store)
        tracking = TrackingCopies(remote.registry_id, remote.url)
        checked = CheckedReader(remote, self.known_heads, tracking.store)
        tracked = TrackedReader(checked, tracking)
        with tracking.doubted(ref.name):
            versions, ledger = self._locate(tracked, ref, channels)
            if not self.store.is_there:
                self._begin(tracked, versions, selection)
            remotes.remember(source, remote)
            request = TransferRequest(
                ref.name,
                [item.version for item in versions],
                selection,
                channels,
                self._restore,
                actor=self.actor,
                deltas=deltas,
            )
            result = copy(tracked, self.store, request, progress, source_ledger=ledger)
            with suppress(*_LATE_ERRORS):
                tracking.keep_log(ledger, promotion_documents(ledger))
            return result

    def _locate(
        self, source: TrackedReader, ref: Ref, channels: Collection[str]
    ) -> tuple[list[lookup.LocatedVersion], Ledger]:
        """Find the versions of a ref and of channels, and check the trust in each; the source's ledger too."""
        from onnxreg.registry.deliver.resolution import check_version_trust

        def read(index: IndexFile | None) -> tuple[list[lookup.LocatedVersion], Ledger, IndexFile | None]:
            located = lookup.find_in(source, lookup.state_of(source, ref.name, index), ref)
            ledger = read_ledger(source, ref.name, index, self.store)
            return [located, *_holders(ledger, located, channels)], ledger, index

        versions, ledger, index = read_consistently(source, ref.name, read)
        has_new_versions = any(item.version not in self._versions(ref.name) for item in versions)
        targets = [(Ref(ref.name, tag), _holder(ledger, tag)) for tag in channels]
        for target, located in [(ref, versions[0]), *targets]:
            check_version_trust(source, target, located, index, self.known_heads, has_new_versions)
        return versions, ledger

    def fetch_index(self, names: Collection[str], source: str | None) -> list[State]:
        tracked = Remotes.load(self.store).read(source, known_heads=self.known_heads)
        tracking = TrackingCopies(tracked.registry_id, tracked.url)

        def fetch(name: str) -> State:
            def read(index: IndexFile | None) -> tuple[State, Ledger]:
                state = lookup.state_of(tracked, name, index)
                ledger = read_ledger(tracked, name, index, self.store)
                if index is not None:
                    tracking.keep(name, index)
                return state, ledger

            with (
                host_errors(f"remembering {name}", MACHINE_ERRNOS),
                tracking.doubted(name),
            ):
                state, ledger = read_consistently(tracked, name, read)
                tracking.keep_log(ledger, promotion_documents(ledger))
            return state

        return [fetch(name) for name in (lookup.matching(tracked, names) if names else tracked.names())]

    @property
    def _restore(self) -> MakeRestore | None:
        return Decisions(self.store, self.actor).restore if self.restore else None

    def _destination(self, to: str | None) -> RegistryStore:
        """Open a remote to write to; create it if it does not exist."""
        remote = Remotes.load(self.store).open(to, create=True)
        check_distinct(remote, self.store)
        return remote

    def _look(self, remote: RegistryStore, before: Any, name: str, index: IndexFile | None) -> None:
        """Check an index file of a remote that was read after the known head `before`."""
        check = partial(CheckedReader(remote, self.known_heads).check, name, before)
        check_or_refresh(remote, name, index, check)

    def _begin(
        self, reader: RegistryReader, versions: Collection[lookup.LocatedVersion], selection: Selection
    ) -> None:
        """Create the local registry, after a check that the selection fits the versions."""
        for item in versions:
            manifest = item.entry.manifest
            selection.of(read_manifest(read_blob(reader, manifest), manifest, item.name), str(item.ref))
        DirectoryRegistry.create(self.store.root, self.store.disk)

    def _versions(self, name: str) -> Collection[Version]:
        """The versions in the local index file of a model."""
        index = self.store.read_index(name)
        return () if index is None else lookup.state_of(self.store, name, index).versions


def _holders(
    ledger: Ledger, located: lookup.LocatedVersion, channels: Collection[str]
) -> list[lookup.LocatedVersion]:
    """The versions that channels of a model hold, without `located`. NotFoundError for an unknown channel."""
    versions = {channel_of(ledger, tag).version for tag in channels} - {located.version}
    return [
        lookup.LocatedVersion(ledger.name, version, ledger.entries[version]) for version in sorted(versions)
    ]


def _holder(ledger: Ledger, tag: str) -> lookup.LocatedVersion:
    """The version that a channel of the ledger holds."""
    channel = ledger.channels[tag]
    return lookup.LocatedVersion(ledger.name, channel.version, ledger.entries[channel.version], channel)


def check_distinct(remote: RegistryStore, store: RegistryStore) -> None:
    """ConflictError if both are the same registry."""
    if _whereabouts(remote) == _whereabouts(store):
        raise ConflictError(
            "that remote is this registry itself",
            Advice("pull-elsewhere"),
        )


def _whereabouts(remote: RegistryStore) -> str | Path:
    return remote.root.resolve() if isinstance(remote, LocalStore) else remote.url


def send(
    source: RegistryReader,
    destination: RegistryStore,
    name: str,
    choose: Callable[[Ledger], TransferRequest],
    remember: Remember,
    progress: Progress,
) -> TransferResult:
    """Send the versions and channels of a model that `choose` names and that may travel, in one swap.

    If the destination lacks no event, no blob is looked up. A channel does not move if its version does not travel.
    """
    result = TransferResult(name)
    with skip_on_error(name, result.skipped):
        ledger, destination_ledger = load(source, name)[0], load(destination, name, source)[0]
        request = _possible(choose(ledger), ledger, destination_ledger, result.skipped)
        result = replace(result, versions=tuple(request.versions), ledger=destination_ledger)
        if request.heal or make_plan(request, ledger, destination_ledger).changes:
            remember(ledger, request.versions)
            copied = copy(source, destination, request, progress, source_ledger=ledger)
            result = replace(copied, skipped=result.skipped)
    return result


def _possible(
    request: TransferRequest, source: Ledger, destination: Ledger, skipped: list[SkippedVersion]
) -> TransferRequest:
    """The part of a request that the rules of two logs allow; lists the rest."""
    versions = [
        version for version in request.versions if _travels(request, source, destination, version, skipped)
    ]
    channels = [tag for tag in request.channels if _may_move(source, tag, versions, skipped)]
    return replace(request, versions=versions, channels=channels)


def _travels(
    request: TransferRequest,
    source: Ledger,
    destination: Ledger,
    version: Version,
    skipped: list[SkippedVersion],
) -> bool:
    """Decide if the destination may have a version of a request; if not, list it."""
    entry, destination_entry = source.entries[version], destination.entries.get(version)
    try:
        check_versions(source, destination, [version], request.restore is not None)
        if not request.yanked_bytes:
            check_yanked(source, destination, [version])
        if destination_entry is None and destination.tombstones:
            _check_tombstones(source, destination, version, entry)
    except (ConflictError, IntegrityError, NotFoundError) as error:
        absent = entry.gone is not None or entry.held is not None
        decided = absent or (destination_entry is not None and destination_entry.manifest == entry.manifest)
        skipped.append(SkippedVersion(source.name, str(version), error.message, None if decided else error))
        return False
    return True


def _check_tombstones(source: Ledger, destination: Ledger, version: Version, entry: VersionEntry) -> None:
    """ConflictError if the destination took some of the files down. Reads the manifest."""
    digests = {entry.manifest, *(file.digest for file in files(source, version, entry))}
    if digests.intersection(destination.tombstones):
        raise ConflictError(f"files of {source.name}:{version} were taken down there", Advice("log-of-other"))


def _may_move(ledger: Ledger, tag: str, versions: Collection[Version], skipped: list[SkippedVersion]) -> bool:
    version = ledger.channels[tag].version
    if version not in versions:
        error = ConflictError(f"channel {tag} of {ledger.name} holds {version}, which does not travel")
        skipped.append(SkippedVersion(ledger.name, tag, error.message, error))
    return version in versions


def _newest(ledger: Ledger) -> list[Version]:
    """The newest release, if any."""
    return [version for version in newest_of(ledger.entries) if not version.is_prerelease][:1]


def check_models(store: DirectoryRegistry, names: Sequence[str], channels: Collection[str]) -> None:
    """NotFoundError if a model does not exist or none of them has one of the channels; InputError if a channel is a
    version.
    """
    known_channels = {tag for name in names for tag in lookup.read_state(store, name).channels}
    for channel in channels:
        if check_channel(channel) not in known_channels:
            if len(names) == 1:
                raise no_channel(names[0], channel, known_channels)
            raise NotFoundError(
                f"none of the {len(names)} models has a channel {channel}",
                suggest(channel, sorted(known_channels)) if known_channels else Advice("tag-first"),
            )


def record_push(store: LocalStore, located: LocatedVersion, registry_id: str) -> None:
    """Record, before a push begins, that another registry will know a version."""
    if not was_pushed(store, located):
        store.write_local(_record_path(located), f"{registry_id}\n".encode())


def record_pushes(store: LocalStore, ledger: Ledger, versions: Iterable[Version], registry_id: str) -> None:
    """Record several versions of a model."""
    for version in versions:
        record_push(store, LocatedVersion(ledger.name, version, ledger.entries[version]), registry_id)


def was_pushed(store: LocalStore, located: LocatedVersion) -> bool:
    """Check if a push of the version ever began."""
    with host_errors(f"looking for what left {store.root}"):
        return (store.root / "local" / _record_path(located)).exists()


def _record_path(located: LocatedVersion) -> str:
    return f"pushed/{located.name}/{located.entry.manifest.hex}"
