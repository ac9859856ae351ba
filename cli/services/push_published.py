"""`reg export --push`: the report of a published version, its push, and the report of that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onnxreg.cli import hints
from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import read_delta_releases
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import Ref


def check_remote(session: Session, remote: str | None) -> None:
    """Raise InputError or NotFoundError for an impossible remote before an export that may take an hour."""
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
    from onnxreg.cli.services.delta_service import make_deltas_after_push

    registry, watch = session.open(), transfer_report.Stopwatch()
    with _still_published(ref, remote), resumable(), session.progress(f"pushing {ref}", as_json) as progress:
        result = registry.push(ref, remote, progress)
    url = registry.remotes.url_of(remote)
    if not as_json:
        session.say("")
        transfer_report.report_transfer(session, "pushed", result, url, as_json, watch)
    make_deltas_after_push(session, registry, [result], remote, read_delta_releases(None), as_json)
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
