"""`reg export --push`: the report of a published version, its push, and the report of that.

Deltas may follow: making them is imported only if some are asked for.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onnxreg.cli import hints
from onnxreg.cli.context import Session
from onnxreg.cli.errors import still
from onnxreg.cli.options.shared import releases_of
from onnxreg.cli.render import output
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.result import TransferResult


def check_remote(session: Session, remote: str | None) -> None:
    """InputError or NotFoundError for a remote that cannot be one, before an export that may take an hour."""
    if remote is not None:
        session.remotes().url_of(remote)


def report_and_push(
    session: Session, ref: Ref, remote: str | None, as_json: bool, report: Callable[..., None]
) -> None:
    """Call `report`, and push the version if a remote is named.

    With `as_json` the push comes first, and the report has the key `pushed`: what `reg push --json` prints, or null if the
    push failed. Raises what the push raises.
    """
    if remote is None:
        report()
    elif not as_json:
        report()
        _push(session, ref, remote, as_json)
    else:
        pushed = None
        try:
            pushed = _push(session, ref, remote, as_json)
        finally:
            report(pushed=pushed)


def _push(session: Session, ref: Ref, remote: str, as_json: bool) -> dict[str, Any]:
    """Push a version, and say so unless `as_json`. Returns the document of `reg push --json`."""
    from onnxreg.cli.errors import resumable
    from onnxreg.cli.reports import transfer_report

    registry, watch = session.open(), transfer_report.Stopwatch()
    with _still_published(ref, remote), resumable(), session.progress(f"pushing {ref}", as_json) as progress:
        result = registry.push(ref, remote, progress)
    url = registry.remotes.url_of(remote)
    if not as_json:
        session.say("")
        transfer_report.announce(session, "pushed", result, url, as_json, watch)
    offer_pushed(session, registry, [result], remote, releases_of(None), as_json)
    return transfer_report.to_json(result, url)


@contextmanager
def _still_published(ref: Ref, remote: str) -> Iterator[None]:
    """Say in an error of the body that the version is published, and how to push it again."""
    try:
        yield
    except RegError as error:
        from shlex import quote

        error.message = f"{ref} is published here, but not pushed: {error.message}"
        again = f"to try again: reg push {ref} {quote(remote)}"
        error.advice = f"{hints.text(error.advice)}; {again}" if error.advice else again
        raise


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
