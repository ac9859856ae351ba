"""Push many models at once: the newest release of each, or every version, and channels with them."""

from collections.abc import Collection, Iterator, Sequence

from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer import push_record
from onnxreg.registry.transfer.cross_registry import BulkOptions, BulkResult, SkippedVersion, send
from onnxreg.registry.transfer.plan import MakeRestore
from onnxreg.schema.core.errors import Advice, NotFoundError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.log.state import newest_of
from onnxreg.schema.log.tags import no_channel


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
) -> Iterator[BulkResult]:
    """Push the newest release of each model, or with `every` all its versions, and those of these channels
    that it has.

    An error of one model or version is listed with it, and the others go on; RemoteError and HostError end
    the work.
    """

    def chosen(ledger: Ledger) -> Collection[Version]:
        channel_versions = {ledger.channels[tag].version for tag in channels if tag in ledger.channels}
        return ledger.entries if every else sorted({*_newest(ledger), *channel_versions})

    def remember(ledger: Ledger, versions: Collection[Version]) -> None:
        push_record.record_all(store, ledger, versions, remote.registry_id)

    options = BulkOptions(
        chosen,
        lambda ledger: [tag for tag in channels if tag in ledger.channels],
        remember,
        actor,
        restore,
        heal,
    )
    for name in names:
        result = send(store, remote, name, options, progress)
        if not result.versions and not result.skipped:
            reason = f"{name} has no version" + ("" if every else " that is neither yanked nor a pre-release")
            result.skipped.append(SkippedVersion(name, None, reason))
        yield result


def _newest(ledger: Ledger) -> list[Version]:
    """The newest release, if any."""
    return [version for version in newest_of(ledger.entries) if not version.is_prerelease][:1]


def check_models(store: DirectoryRegistry, names: Sequence[str], channels: Collection[str]) -> None:
    """NotFoundError if a model does not exist or none of them has one of the channels; InputError if a
    channel is a version.
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
