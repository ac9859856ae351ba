"""The rule for two logs of one model.

Same registry id: one log must be a prefix of the other, and lines are appended verbatim. Different ids:
chains are never spliced; the events of the chosen versions travel, each with `via`, onto the destination's
own chain.
"""

from collections.abc import Collection, Iterator, Mapping

from onnxreg.registry.log.index_file import read_line
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.selection import EVERYTHING, Selection, check_held
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, ForkError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Publish, Unyank, Yank
from onnxreg.schema.log.logline import LogLine, LogLineHeader, Via

TRAVELLING = frozenset(kind.kind for kind in (Publish, Attest, Yank, Unyank))


def missing_lines(
    source: Ledger,
    destination: Ledger,
    versions: Collection[Version],
    restore: bool = False,
    selection: Selection = EVERYTHING,
) -> list[LogLine]:
    """The source's lines that the destination lacks, in source order, those that attest last.

    So a verdict finds the version that it is about, also if the source published that once more after it.

    Raises ConflictError if a version has another manifest there or its files were given up there
    (unless `restore` brings expired ones back), or if only some artifacts are asked for between copies of
    one registry; IntegrityError if the logs of one registry have forked; NotFoundError if the source lacks a
    version or an artifact of it that is asked for.
    """
    _check_present(source, versions)
    if source.registry == destination.registry:
        if selection:
            raise ConflictError(
                "these are two copies of one registry, and a copy holds whatever the original holds",
                Advice("omit-selection"),
            )
        return _suffix(source, destination)
    destination.check_own()
    check_versions(source, destination, versions, restore, selection)
    chosen = {version: source.entries[version].manifest for version in versions}
    manifests = {*(entry.manifest for entry in destination.entries.values()), *chosen.values()}
    lines = (read_line(line.raw, source.name) for line in _absent(source, destination, manifests))
    moving = [line for line in lines if _travels(line, chosen, destination) and not _outdated(line, source)]
    return sorted(moving, key=lambda line: isinstance(line.event, Attest))


def _absent(source: Ledger, destination: Ledger, manifests: Collection[Digest]) -> Iterator[LogLineHeader]:
    """The source's lines on manifests, and its refusals, of kinds that travel and that the destination lacks."""
    present_lines = list(destination.skim())
    present = {line.event_id for line in present_lines}
    stated = {_states(line) for line in present_lines if line.kind == Attest.kind}
    names = set(map(str, manifests))
    for line in source.skim():
        is_new = line.event_id not in present or line.kind == Publish.kind
        is_stated = line.kind == Attest.kind and _states(line) in stated
        concerns = line.manifest in names or _refuses(line)
        if concerns and is_new and not is_stated and line.kind in TRAVELLING:
            yield line


def apply(lines: list[LogLine], source: Ledger, destination: Ledger) -> None:
    """Append lines: verbatim to another copy of the same log, as events with `via` to another registry."""
    for line in lines:
        if source.registry == destination.registry:
            destination.append_line(line)
        else:
            destination.append(line.event, Via(source.registry, line.seq, line.digest))


def _travels(line: LogLine, chosen: Mapping[Version, Digest], destination: Ledger) -> bool:
    """Return True if an event travels to another registry. Channels, pins and expiry never do.

    A later evaluation is, of every version that the destination holds; a refusal always, since the same
    bytes may be there, or come later, under another manifest.
    """
    match line.event:
        case Publish(version=version, manifest=manifest):
            return chosen.get(version) == manifest and version not in destination.entries
        case Attest(state="refused"):
            return True
        case Attest(manifest=manifest, state=state):
            here = state is not None and any(
                manifest == entry.manifest for entry in destination.entries.values()
            )
            return here or manifest in chosen.values()
        case Yank(manifest=manifest, version=version) | Unyank(manifest=manifest, version=version):
            entry = destination.entries.get(version)
            return manifest in (chosen.get(version), entry and entry.manifest)
        case _:
            return False


def _states(line: LogLineHeader) -> tuple[str | None, ...]:
    """The content of an `attest`: two registries may record the same one, each with its own event."""
    event = line.event()
    return tuple(event.get(key) for key in ("manifest", "statement", "artifact", "state"))


def _refuses(line: LogLineHeader) -> bool:
    return line.kind == Attest.kind and b'"state":"refused"' in line.raw


def _outdated(line: LogLine, source: Ledger) -> bool:
    """Return True if a yank is older than its version: that version was dropped and published again."""
    if not isinstance(line.event, Yank | Unyank):
        return False
    entry = source.entries.get(line.event.version)
    return entry is not None and line.seq < entry.seq


def check_versions(
    source: Ledger,
    destination: Ledger,
    versions: Collection[Version],
    restore: bool = False,
    selection: Selection = EVERYTHING,
) -> None:
    """Raise the errors of `missing_lines` if a version may not travel between registries with different
    ids."""
    _check_present(source, versions)
    for version in versions:
        entry, present = source.entries[version], destination.entries.get(version)
        if present is not None and present.manifest != entry.manifest:
            raise ConflictError(
                f"{source.name}:{version} exists there with manifest {present.manifest.short}..., "
                f"here it is {entry.manifest.short}...",
                "a version never changes: publish yours under another version",
            )
        gone = present.gone if present is not None else None
        if gone is not None and not (restore and gone.how == "expired"):
            raise ConflictError(
                f"{source.name}:{version} is {gone.how} there",
                Advice("log-of-other-or-restore" if gone.how == "expired" else "log-of-other"),
            )
        check_held(source, destination, version, selection)


def _check_present(source: Ledger, versions: Collection[Version]) -> None:
    """Raise NotFoundError if the source lacks a version, or its files."""
    for version in versions:
        entry = source.entries.get(version)
        if entry is None or entry.gone is not None:
            how = f"{source.name}:{version} is {entry.gone.how}" if entry and entry.gone else None
            raise NotFoundError(how or f"{source.name} has no version {version}")


def _suffix(source: Ledger, destination: Ledger) -> list[LogLine]:
    source_lines, present_lines = list(source.skim()), list(destination.skim())
    common = min(len(source_lines), len(present_lines))
    if common and source_lines[common - 1].digest != present_lines[common - 1].digest:
        raise ForkError(
            f"two copies of registry {source.registry} have different histories of {source.name}: "
            f"heads {source.head.short}... and {destination.head.short}...",
            "one of them was rewritten; nothing was changed",
        )
    return [read_line(line.raw, source.name) for line in source_lines[common:]]
