"""Transfer many versions of many models: those that may travel go, the others are listed."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.contents import files
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.transfer import push_record
from onnxreg.registry.transfer.copy import copy
from onnxreg.registry.transfer.plan import MakeRestore, TransferRequest, check_versions, make_plan
from onnxreg.registry.transfer.result import SkippedVersion, TransferResult, skip_on_error
from onnxreg.schema.core.errors import Advice, ConflictError, IntegrityError, NotFoundError, suggest
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.log.state import VersionEntry, newest_of, no_channel

Remember = Callable[[Ledger, Collection[Version]], None]
"""Records the versions that another registry will know, before they are sent."""


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
    restores = request.restore is not None
    versions = [
        version for version in request.versions if _travels(source, destination, version, restores, skipped)
    ]
    channels = [tag for tag in request.channels if _may_move(source, tag, versions, skipped)]
    return replace(request, versions=versions, channels=channels)


def _travels(
    source: Ledger, destination: Ledger, version: Version, restores: bool, skipped: list[SkippedVersion]
) -> bool:
    """Decide if the destination may have a version (`restores`: also one that expired there); if not, list it."""
    entry, destination_entry = source.entries[version], destination.entries.get(version)
    try:
        check_versions(source, destination, [version], restores)
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


def push_many(
    store: DirectoryRegistry,
    remote: RegistryStore,
    names: Sequence[str],
    *,
    every: bool,
    channels: Collection[str],
    progress: Progress,
    actor: str | None = None,
    restore: MakeRestore | None = None,
    heal: bool = False,
) -> Iterator[TransferResult]:
    """Push the newest release of each model, or with `every` all its versions, and those of these channels that it has.

    An error of one model or version is listed with it, and the others go on; RemoteError and HostError end the work.
    """

    def choose(ledger: Ledger) -> TransferRequest:
        tags = [tag for tag in channels if tag in ledger.channels]
        newest = {*_newest(ledger), *(ledger.channels[tag].version for tag in tags)}
        versions = ledger.entries if every else sorted(newest)
        return TransferRequest(ledger.name, versions, channels=tags, restore=restore, heal=heal, actor=actor)

    def remember(ledger: Ledger, versions: Collection[Version]) -> None:
        push_record.record_all(store, ledger, versions, remote.registry_id)

    for name in names:
        result = send(store, remote, name, choose, remember, progress)
        if not result.versions and not result.skipped:
            reason = f"{name} has no " + (
                "version" if every else "usable release: each version is yanked or a pre-release"
            )
            result.skipped.append(SkippedVersion(name, None, reason))
        yield result


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
