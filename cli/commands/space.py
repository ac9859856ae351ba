"""`reg gc`, `reg purge` and `reg du`: delete files that are not needed, and show the space of models."""

from dataclasses import asdict

from onnxreg.cli.options import REMOTE, Session, argument, flag, option
from onnxreg.cli.output import counted, size, table
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg gc --dry-run",
    "reg gc --keep-versions 5",
    "reg purge acme/pii-small:1.2.0 --reason 'trained on unlicensed data'",
    "reg purge acme/pii-small:1.2.0 acme/pii-small:1.2.1 --reason 'takedown 4711'",
    "reg du",
)


def gc(
    session: Session,
    keep_versions: int | None = option("Give up the files of all but the newest N releases of each model."),
    dry_run: bool = flag("Show what would be deleted; change nothing."),
    remote: str | None = REMOTE,
) -> None:
    """Delete the blobs that no version refers to. With --keep-versions, old versions expire first.

    The newest N releases, pinned versions and versions of channels stay. All manifests stay too. Pushes and pulls may
    run at the same time. The cache of export steps is trimmed to REG_CACHE_SIZE (10 GiB).

    With --json: {dry_run, expired: [ref], freed: {blobs, bytes}, kept: {blobs}, fenced, cache: {entries, bytes, kept}};
    fenced counts pushes that had to start again.
    """
    from onnxreg.cli.services import step_cache
    from onnxreg.converters.engine.cache import TrimResult

    registry, store = session.with_remote(remote)
    expired, collected = registry.decisions(remote=store).gc(keep_versions, dry_run)
    trimmed = step_cache().trim(dry_run) if store is None else TrimResult()
    freed = {"blobs": len(collected.freed), "bytes": collected.size}
    document = {"dry_run": dry_run, "expired": expired, "freed": freed, "kept": {"blobs": collected.in_use}}
    document |= {"fenced": collected.fenced, "cache": asdict(trimmed)}
    expire, free = ("would expire", "would free") if dry_run else ("expired", "freed")
    results = f"{counted(trimmed.entries, 'result')} of steps, {size(trimmed.bytes)}"
    session.show(
        document,
        [f"{expire} {ref}" for ref in expired],
        f"{free} {counted(len(collected.freed), 'blob')}, {size(collected.size)}; {collected.in_use} in use",
        f"{free} {results}; {size(trimmed.kept)} kept for the next export" if trimmed.entries else None,
    )


def purge(
    session: Session,
    refs: list[str] = argument(
        "NAME:TAG or NAME@sha256:...; a name alone is refused.", "REF...", models=True
    ),
    reason: str = option("The reason, for the log.", default=...),
    remote: str | None = REMOTE,
) -> None:
    """Take versions down and delete their bytes at once. The bytes can never come back into these models.

    A file stays if a version that is not among the REFs uses it too; the command names this version. Manifests and
    tombstones stay. Other registries keep their copies: purge each of them, with --remote.

    With --json: {versions: [ref], blobs: [digest], freed: {blobs, bytes}, sharing: [ref]}; sharing has the versions
    that are not among the REFs and use some of the files.
    """
    from onnxreg.registry.log.commit import collect

    registry, store = session.with_remote(remote)
    decisions = registry.decisions(remote=store)
    versions, blobs, sharing = decisions.purge(list(map(Ref.parse, refs)), reason)
    freed = collect(decisions.store, only=blobs)
    others = sorted(map(str, sharing))
    document = {"versions": [version.ref for version in versions], "blobs": sorted(blobs), "sharing": others}
    shared = f"files that {', '.join(others)} also use stay; to delete them, take down these versions too"
    session.show(
        document | {"freed": {"blobs": len(freed.freed), "bytes": freed.size}},
        [f"took down {version.ref}{session.place(store)}" for version in versions],
        f"freed {counted(len(freed.freed), 'blob')}, {size(freed.size)}",
        shared if others else None,
    )


def du(
    session: Session,
    names: list[str] | None = argument("Only these models.", "[NAME]...", models=True),
    remote: str | None = REMOTE,
) -> None:
    """Show the space that each model uses alone (UNIQUE) and shares with other models.

    UNIQUE is the space that would become free if this model were removed. The model with the largest UNIQUE comes
    first. `reg gc` frees the unreferenced space.

    With --json: {models: [{name, versions, blobs, bytes, unique, shared}], unreferenced: {blobs, bytes}, total: {blobs,
    bytes}}; versions counts the versions whose files are here; unreferenced and total are for the whole registry.
    """
    from onnxreg.registry.log.commit import usage

    registry, store = session.with_remote(remote)
    if store is not None:
        registry.check_logs(remote=store)
    document = usage(store or registry.store, names or ())
    rows = [
        (item["name"], item["versions"], *(size(item[key]) for key in ("unique", "shared", "bytes")))
        for item in document["models"]
    ]
    session.show(
        document,
        table(("NAME", "VERSIONS", "UNIQUE", "SHARED", "SIZE"), rows),
        *(
            f"{label}: {counted(part['blobs'], 'blob')}, {size(part['bytes'])}"
            for label, part in (("unreferenced", document["unreferenced"]), ("all", document["total"]))
        ),
    )
