"""What the log of a model refers to: the blobs that must be there. Copy, verify, the collector and `du` all ask here."""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.history.holdings import Held, held_artifacts, held_files
from onnxreg.registry.history.indexfile import read_line
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.storage import Piece
from onnxreg.schema.digest import Digest
from onnxreg.schema.events import Attest, Tag
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.state import Entry
from onnxreg.schema.summary import operator_set
from onnxreg.schema.version import Version


@dataclass(frozen=True, slots=True)
class Reference:
    """A blob that a model needs: what for, its size in bytes and the digests of its parts where a document states them."""

    digest: Digest
    size: int | None
    what: str
    pieces: tuple[Piece, ...] = ()

    @property
    def path(self) -> str:
        """Its name within the model's version."""
        return self.what.partition(" ")[2]


def documents(ledger: Ledger) -> Iterator[Reference]:
    """The blobs of the history itself: sealed segments, the catalog, manifests, what attestations state, and the evidence
    of promotions.

    A version that expired or was taken down keeps its manifest, unless that is what was taken down.
    """
    name = ledger.name
    yield from (Reference(segment, None, f"{name} log") for segment in ledger.segments)
    if ledger.catalog is not None:
        yield Reference(ledger.catalog, None, f"{name} catalog")
    buried = set(ledger.tombstones)
    for version, entry in ledger.entries.items():
        if entry.manifest not in buried:
            yield Reference(entry.manifest, entry.size, f"{name}:{version} manifest")
    known = {entry.manifest for entry in ledger.entries.values()} - buried
    attests = (read_line(line.raw, name).event for line in ledger.skim() if line.kind == Attest.kind)
    for event in attests:
        if not isinstance(event, Attest) or event.statement in buried:
            continue
        if event.manifest in known or event.state == "refused":
            yield Reference(event.statement, None, f"{name} statement")
    for evidence in evidences(ledger):
        if evidence not in buried:
            yield Reference(evidence, None, f"{name} evidence")


def evidences(ledger: Ledger) -> Iterator[Digest]:
    """The evidence that moves of channels name."""
    for line in ledger.skim():
        if line.kind == Tag.kind and b'"evidence":' in line.raw:
            event = read_line(line.raw, ledger.name).event
            if isinstance(event, Tag) and event.evidence is not None:
                yield event.evidence


def present_versions(ledger: Ledger) -> Iterator[tuple[Version, Entry]]:
    """The versions whose files must be there, or those of the artifacts that are held."""
    return ((version, entry) for version, entry in ledger.entries.items() if entry.gone is None)


def files(ledger: Ledger, version: Version, entry: Entry) -> Iterator[Reference]:
    """The files of a version that are held. IntegrityError or NotFoundError where its manifest cannot be read."""
    manifest = read_manifest(ledger.fetch(entry.manifest), entry.manifest, ledger.name)
    named = {file.digest: file for file in manifest.all_files()}
    for digest, size in refers_to(manifest, entry.held).items():
        file = named.get(digest)
        what = f"{ledger.name}:{version} {file.path if file else 'operators'}"
        yield Reference(digest, size, what, tuple(Piece(*span) for span in file.spans()) if file else ())


def references(ledger: Ledger) -> Iterator[Reference]:
    """Everything a model refers to. IntegrityError or NotFoundError where a document cannot be read."""
    yield from documents(ledger)
    for version, entry in present_versions(ledger):
        yield from files(ledger, version, entry)


def refers_to(manifest: Manifest, held: Held = None) -> dict[Digest, int]:
    """The blobs of a manifest, with their sizes: its files, and the operator sets that summaries name.

    Of the artifacts only those that are held.
    """
    sets = [found for item in held_artifacts(manifest, held) if (found := operator_set(item)) is not None]
    files = {entry.digest: entry.size for entry in held_files(manifest, held)}
    return files | {Digest.of(operators): len(operators) for operators in sets}
