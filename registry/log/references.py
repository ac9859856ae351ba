"""The blobs that the log of a model refers to, and that must be there.

Copy, verify, the collector and `du` use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.registry.log.index_file import read_line
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.selection import ArtifactPaths, held_artifacts, held_files
from onnxreg.registry.store.blobs import read_manifest
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import KINDS, Attest, OptionalEvent, Tag
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.log.summary import operator_set

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Reference:
    """A blob that a model needs: a label, its size in bytes, and its pieces if a document states them."""

    digest: Digest
    size: int | None
    label: str
    pieces: tuple[Piece, ...] = ()

    @property
    def path(self) -> str:
        """Its name within the model's version."""
        return self.label.partition(" ")[2]


def documents(ledger: Ledger) -> Iterator[Reference]:
    """The blobs of the history: segments, catalog, manifests, statements, evidence, and blobs of later event
    kinds.

    A version that expired or was taken down keeps its manifest, unless that is what was taken down.
    """
    name = ledger.name
    yield from (Reference(segment, None, f"{name} log") for segment in ledger.segments)
    if ledger.catalog is not None:
        yield Reference(ledger.catalog, None, f"{name} catalog")
    tombstones = set(ledger.tombstones)
    yield from listed_blobs(ledger)
    for version, entry in ledger.entries.items():
        if entry.manifest not in tombstones:
            yield Reference(entry.manifest, entry.size, f"{name}:{version} manifest")
    manifests = {entry.manifest for entry in ledger.entries.values()} - tombstones
    attests = (read_line(line.raw, name).event for line in ledger.skim() if line.kind == Attest.kind)
    for event in attests:
        if not isinstance(event, Attest) or event.statement in tombstones:
            continue
        if event.manifest in manifests or event.state == "refused":
            yield Reference(event.statement, None, f"{name} statement")
    for evidence in evidences(ledger):
        if evidence not in tombstones:
            yield Reference(evidence, None, f"{name} evidence")


def evidences(ledger: Ledger) -> Iterator[Digest]:
    """The evidence that moves of channels name."""
    for line in ledger.skim():
        if line.kind == Tag.kind and b'"evidence":' in line.raw:
            event = read_line(line.raw, ledger.name).event
            if isinstance(event, Tag) and event.evidence is not None:
                yield event.evidence


def listed_blobs(ledger: Ledger) -> Iterator[Reference]:
    """The blobs of optional events that no later one supersedes, unless a purge names them.

    IntegrityError if a later build wrote a kind that is not optional.
    """
    events: dict[Digest, OptionalEvent] = {}
    for event in optional_events(ledger):
        for earlier in event.supersedes:
            events.pop(earlier, None)
        events[event.id] = event
    for event in events.values():
        for blob in event.blobs:
            if blob.digest not in ledger.tombstones:
                yield Reference(blob.digest, blob.size, f"{ledger.name} {event.kind}")


def optional_events(ledger: Ledger) -> Iterator[OptionalEvent]:
    """The optional events of a log, oldest first. Raise IntegrityError as `listed_blobs`."""
    for line in ledger.skim():
        if line.kind not in KINDS or issubclass(KINDS[line.kind], OptionalEvent):
            event = read_line(line.raw, ledger.name).event
            if isinstance(event, OptionalEvent):
                yield event


def present_versions(ledger: Ledger) -> Iterator[tuple[Version, VersionEntry]]:
    """The versions whose files must be there, or those of the artifacts that are held."""
    return ((version, entry) for version, entry in ledger.entries.items() if entry.gone is None)


def files(ledger: Ledger, version: Version, entry: VersionEntry) -> Iterator[Reference]:
    """The files of a version that are held.

    Raise IntegrityError or NotFoundError if its manifest cannot be read.
    """
    manifest = read_manifest(ledger.fetch(entry.manifest), entry.manifest, ledger.name)
    named = {file.digest: file for file in manifest.all_files()}
    for digest, size in refers_to(manifest, entry.held).items():
        file = named.get(digest)
        label = f"{ledger.name}:{version} {file.path if file else 'operators'}"
        yield Reference(digest, size, label, file.spans() if file else ())


def references(ledger: Ledger) -> Iterator[Reference]:
    """Everything a model refers to. Raise IntegrityError or NotFoundError if a document cannot be read."""
    yield from documents(ledger)
    for version, entry in present_versions(ledger):
        yield from files(ledger, version, entry)


def refers_to(manifest: Manifest, paths: ArtifactPaths = None) -> dict[Digest, int]:
    """The blobs of a manifest, with their sizes: its files, and the operator sets that summaries name.

    Of the artifacts only those that are held.
    """
    sets = [
        operators for item in held_artifacts(manifest, paths) if (operators := operator_set(item)) is not None
    ]
    files = {entry.digest: entry.size for entry in held_files(manifest, paths)}
    return files | {Digest.of(data): len(data) for data in sets}
