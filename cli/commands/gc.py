"""`reg gc`: giving up old versions, and deleting what nothing refers to."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.cli.services import export_service

if TYPE_CHECKING:
    from onnxreg.converters.engine.cache import TrimResult
    from onnxreg.registry.log.collect import CollectResult
    from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg gc --dry-run",
    "reg gc",
    "reg gc --keep-versions 5 --keep-days 90",
    "reg gc --remote s3://models/prod --dry-run",
)


def command(
    session: Session,
    keep_versions: Annotated[
        int | None, typer.Option(help="Give up the files of all but the newest N releases of each model.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option(help="Give up the files of versions published longer ago than this.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; change nothing.")
    ] = False,
    remote: Annotated[str | None, typer.Option(help="Collect in this remote (a name, path or URL).")] = None,
    as_json: Json = False,
) -> None:
    """Delete the blobs that no version refers to; with --keep-* let old versions expire first.

    The log records each expiry. A version stays if it is the newest release, if any --keep-* keeps it, if
    it is pinned, or if a channel points to it. The manifest of an expired version stays too. Pushes and
    pulls may run at the same time. References from other registries keep nothing here. With --remote all of
    this applies to that registry, and references from this one keep nothing there.

    The cache of export steps is trimmed to its limit (REG_CACHE_SIZE, by default 10 GiB), the least
    recently used entries first.

    --keep-days counts back from the newest version of the registry, not from this machine's clock. A
    version is not older than the lines before it in the log.

    With --json: {dry_run, expired: [ref], freed: {blobs, bytes}, kept: {blobs}, fenced, cache: {entries,
    bytes, kept}}; fenced counts pushes that had to start again; cache has what was deleted from it, and the
    bytes kept.
    """
    from onnxreg.converters.engine.cache import TrimResult
    from onnxreg.registry.log.collect import RetentionPolicy, newest_publication
    from onnxreg.registry.maintain.space import gc

    registry, store = session.with_remote(remote)
    if keep_days is not None and dry_run and not as_json:
        newest = newest_publication(store or registry.store)
        session.say(f"--keep-days counts from {newest:%Y-%m-%d}, when the newest version was published")
    policy = RetentionPolicy(keep_versions, keep_days)
    expired, collected = gc(registry.decisions(remote=store), policy, dry_run)
    trimmed = (
        export_service.step_cache().trim(export_service.cache_limit(), dry_run)
        if store is None
        else TrimResult()
    )
    if as_json:
        output.write_json(
            {
                "dry_run": dry_run,
                "expired": [str(ref) for ref in expired],
                "freed": {"blobs": len(collected.freed), "bytes": collected.size},
                "kept": {"blobs": collected.in_use},
                "fenced": collected.fenced,
                "cache": asdict(trimmed),
            }
        )
    else:
        _show(session, expired, collected, trimmed, dry_run)


def _show(
    session: Session,
    expired: "Iterable[Ref]",
    collected: "CollectResult",
    trimmed: "TrimResult",
    dry_run: bool,
) -> None:
    would = "would " if dry_run else ""
    session.say(*(f"{would}{'expire' if dry_run else 'expired'} {ref}" for ref in expired))
    amount = f"{output.counted(len(collected.freed), 'blob')}, {output.size(collected.size)}"
    session.say(f"{would}{'free' if dry_run else 'freed'} {amount}; {collected.in_use} in use")
    if trimmed.entries:
        amount = f"{output.counted(trimmed.entries, 'result')} of steps, {output.size(trimmed.bytes)}"
        session.say(
            f"{would}{'free' if dry_run else 'freed'} {amount}; {output.size(trimmed.kept)} kept for the next export"
        )
