"""What a destination is to have of a model, and what its log lacks of that: decided anew whenever the log has changed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from onnxreg.registry.log.channels import Channels
from onnxreg.registry.log.commit import check_buried
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.references import documents, files
from onnxreg.registry.log.selection import (
    EVERYTHING,
    Held,
    Selection,
    asked_of,
    check_fits,
    held_after,
    held_otherwise,
    holds,
)
from onnxreg.registry.log.transfer_rules import apply, missing_lines
from onnxreg.registry.store.manifests import check_summary
from onnxreg.registry.store.protocol import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import Attest, Hold, Publish, Restore, Tag
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import Channel, VersionEntry

MakeRestore = Callable[[str, Version, VersionEntry], Restore]
"""Makes the event that brings a version of a model back, given its entry."""


@dataclass(frozen=True)
class TransferRequest:
    """Versions of a model that a destination is to have, with their events, and what else shall be so there.

    Args:
        selection: only these artifacts are brought, beside those that are there, and an event says which are held.
        channels: they are to hold there what they hold in the source, where one of these versions.
        restore: files of versions that the destination expired are brought back, by the event that this makes.
        heal: files that the destination has lost are brought again; without it, a destination whose log lacks nothing
            is believed to have them, and not asked.
        actor: who says which artifacts are held, as claimed.
    """

    name: str
    versions: Collection[Version]
    selection: Selection = EVERYTHING
    channels: Channels = field(default_factory=Channels)
    restore: MakeRestore | None = None
    heal: bool = True
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """What a blob is called in its version, its size in bytes, and its parts where their digests are known."""

    path: str
    size: int
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class TransferPlan:
    """What is left to do of a wish where the destination's log has this `head`.

    `lines` are the source's that are missing there, `returning` the versions to be restored, `held` the artifacts that
    it will hold of each version, `moves` those of channels, `blobs` all that it must have for this, or is to be asked for.
    """

    wish: TransferRequest
    source: Ledger
    head: Digest
    lines: list[LogLine]
    returning: list[Version]
    held: Mapping[Version, Held]
    moves: list[Tag]
    blobs: Mapping[Digest, PlannedFile]
    changes: bool
    """Whether the destination's log lacks anything."""

    def apply(self, destination: Ledger) -> int:
        """Add what is missing to the log that this was decided on; returns how many lines that were."""
        before = destination.seq
        apply(self.lines, self.source, destination)
        if self.wish.restore is not None:
            for version in self.returning:
                destination.append(self.wish.restore(destination.name, version, destination.entries[version]))
        _check_arrived(self.source, destination, self.wish.versions)
        for event in (*holds(destination, self.held, self.wish.actor), *self.moves):
            destination.append(event)
        return destination.seq - before


def make_plan(
    wish: TransferRequest, source: Ledger, destination: Ledger, before: Mapping[str, Channel] | None = None
) -> TransferPlan:
    """What is left to do. `before` are the destination's channels when it was looked at first: by now the same, or others.

    Raises what `transfer.missing_lines` does; ConflictError where files are wanted that were taken down there, or
    somebody moves a channel meanwhile; IntegrityError where the source's documents contradict each other; InputError where
    more artifacts are asked for than an event can name.
    """
    versions = wish.versions
    lines = missing_lines(source, destination, versions, wish.restore is not None, wish.selection)
    asked = asked_of(source, versions, wish.selection) if source.registry != destination.registry else {}
    held = held_after(source, destination, asked)
    check_fits(source, held)
    returning = _expired(destination, versions) if wish.restore is not None else []
    moves = wish.channels.moves(source, destination, destination.channels if before is None else before)
    lacking = bool(lines or returning or held_otherwise(destination, held))
    blobs: Mapping[Digest, PlannedFile] = {}
    if lacking or wish.heal:
        _check_summaries(source, versions)
        blobs = blobs_of(source, lines, versions, asked)
        check_buried(destination, blobs)
    if not lines:
        _check_arrived(source, destination, versions)
    changes = lacking or bool(moves)
    return TransferPlan(wish, source, destination.head, lines, returning, held, moves, blobs, changes)


def _expired(destination: Ledger, versions: Iterable[Version]) -> list[Version]:
    """The versions that are known there, and whose files were given up."""
    known = ((version, destination.entries.get(version)) for version in versions)
    return [version for version, entry in known if entry is not None and entry.gone is not None]


def _check_arrived(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's log does not say what its state line says of a version.

    Two copies with one head have one log: there everything that is said must be the same.
    """
    if source.head == destination.head and source.entries != destination.entries:
        raise IntegrityError(
            f"two copies of one log of {source.name} say different things of its versions",
            "the state line of one of them is wrong: run `reg verify` in both",
        )
    for version in versions if source.registry != destination.registry else ():
        held, said = destination.entries.get(version), source.entries.get(version)
        if held is None or said is None or held.manifest != said.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                "run `reg verify` in the registry that it comes from",
            )


def _check_summaries(source: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's index says other things of a version than its manifest: apps resolve by it."""
    for version in versions:
        held, entry = source.summaries.get(str(version)), source.entries.get(version)
        if held is not None and entry is not None and entry.gone is None:
            check_summary(held, source.fetch(entry.manifest), entry.manifest, source.name)


def blobs_of(
    ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version], asked: Mapping[Version, Held]
) -> dict[Digest, PlannedFile]:
    """Every blob that these lines and versions refer to and that is to be had.

    Of a version's artifacts those that are `asked` for, or else those that the ledger holds.
    """
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore | Hold)} | set(
        versions
    )
    kept = {reference.digest for reference in documents(ledger)}
    statements = {event.statement for event in events if isinstance(event, Attest)}
    statements |= {event.evidence for event in events if isinstance(event, Tag) and event.evidence}
    statements &= kept
    wanted = {digest: PlannedFile("statement", len(ledger.fetch(digest))) for digest in sorted(statements)}
    for version in sorted(published & ledger.entries.keys()):
        entry = ledger.entries[version]
        if entry.manifest in kept:
            wanted[entry.manifest] = PlannedFile("manifest", len(ledger.fetch(entry.manifest)))
            if wanted[entry.manifest].size != entry.size:
                raise IntegrityError(
                    f"{ledger.name}:{version} was published with another size than its manifest has"
                )
        if entry.gone is None:
            taken = replace(entry, held=asked.get(version, entry.held))
            named = files(ledger, version, taken)
            wanted |= {each.digest: PlannedFile(each.path, each.size or 0, each.pieces) for each in named}
    return wanted
