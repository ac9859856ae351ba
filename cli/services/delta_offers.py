"""Deltas that follow a publication or a push. Light: making them is imported only if some are asked for."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import still
from onnxreg.cli.render import output
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.result import TransferResult


def offer_published(
    session: Session, registry: "Registry", published: "PublishedVersion", releases: int, as_json: bool
) -> None:
    """Make the deltas of a version that was published here now, from so many `releases` before it; 0: none."""
    if published.new and releases:
        _offer(session, registry, registry.store, published.ref, releases, as_json)


def offer_pushed(
    session: Session,
    registry: "Registry",
    results: "Iterable[TransferResult]",
    remote: str | None,
    releases: int,
    as_json: bool,
) -> None:
    """Make the deltas of pushed versions at the remote, from so many `releases` before each; 0: none."""
    versions = [Ref(result.name, str(version)) for result in results for version in result.versions]
    if releases and versions:
        store = registry.remotes.open(remote)
        for ref in versions:
            _offer(session, registry, store, ref, releases, as_json)


def offer_batch(
    session: Session, refs: Iterable[Ref], remote: str | None, releases: int, as_json: bool
) -> None:
    """Make the deltas of versions that a batch published here, or in a remote, from so many `releases` before each."""
    if releases:
        registry = session.open(create=None)
        store = registry.store if remote is None else registry.remotes.open(remote)
        for ref in refs:
            _offer(session, registry, store, ref, releases, as_json)


def _offer(
    session: Session, registry: "Registry", store: RegistryStore, ref: Ref, releases: int, as_json: bool
) -> None:
    """Make deltas, and say so unless `as_json`. An error says that the version itself is published."""
    from onnxreg.cli.services.delta_service import DeltaRequest, make_deltas

    with still(f"{ref} is published"), session.steps(as_json) as progress:
        report = make_deltas(registry, store, DeltaRequest(ref, releases=releases), progress)
    if report.new and not as_json:
        deltas = report.table.deltas
        size = output.size(sum(delta.size for delta in deltas))
        session.say(f"{ref} offers {output.counted(len(deltas), 'delta')}, {size}")
