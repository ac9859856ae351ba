"""Write a dossier as a directory: the document, the page, and the attachments."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxreg.registry.dossier.assemble import Attachments, assemble
from onnxreg.registry.dossier.owner_file import FILE, SIGNATURE, OwnerFile
from onnxreg.registry.dossier.profile_files import load_profile
from onnxreg.registry.dossier.render import render
from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.export_files import check_target, replacing
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.dossier.dossier import Dossier
from onnxreg.schema.formats.provenance import provenance
from onnxreg.schema.formats.sbom import BomSubject, bill

DOCUMENT, PAGE = "dossier.json", "dossier.html"


@dataclass(frozen=True)
class DossierBundle:
    """A dossier with all its files, by name."""

    dossier: Dossier
    files: Mapping[str, bytes]


def make_dossier(reader: RegistryReader, ref: Ref, profile: str, facts: Path | None = None) -> DossierBundle:
    """The dossier of a version. The registry's state, profile, facts and trust file determine every byte."""
    loaded = load_profile(profile)
    owner = None if facts is None else OwnerFile.read(facts, loaded.profile)
    record = VersionRecord.read(reader, ref)
    attachments = {**_standard_documents(record), **_owner_documents(owner)}
    dossier = assemble(record, loaded, owner, attachments)
    own = {DOCUMENT: dossier.encode(), PAGE: render(dossier)}
    return DossierBundle(dossier, {**own, **{path: data for path, (data, _) in attachments.items()}})


def _standard_documents(record: VersionRecord) -> Attachments:
    """The bills of materials and, if the recipe is recorded, the provenance."""
    subject = BomSubject(record.manifest, record.manifest_digest, record.located.version)
    documents = {
        "sbom-1.6.cdx.json": (canonical.encode(bill(subject)), "bill of materials, CycloneDX 1.6"),
        "sbom-1.7.cdx.json": (
            canonical.encode(bill(subject, spec="1.7")),
            "bill of materials, CycloneDX 1.7",
        ),
    }
    if record.manifest.recipe is None:
        return documents
    statement = canonical.encode(provenance(subject))
    return {**documents, "provenance.json": (statement, "the making of the files, SLSA provenance 1")}


def _owner_documents(owner: OwnerFile | None) -> Attachments:
    if owner is None:
        return {}
    signature = {} if owner.signature is None else {SIGNATURE: (owner.signature, "its signature, DSSE")}
    return {FILE: (owner.data, "the owner's statements"), **signature}


def write_dossier(bundle: DossierBundle, target: Path) -> None:
    """Write all files into a directory; an earlier dossier there is replaced as a whole."""
    with replacing(target) as fresh:
        for path, data in bundle.files.items():
            (fresh / path).write_bytes(data)


def check_dossier_target(target: Path, registry: Path | None = None) -> None:
    """InputError if writing a dossier there would lose anything that is not an earlier dossier."""
    check_target(target, registry, _written, "dossier")


def _written(directory: Path) -> set[str]:
    """The files of an earlier dossier; empty if there is none."""
    try:
        dossier = Dossier.decode((directory / DOCUMENT).read_bytes(), DOCUMENT)
    except (OSError, InputError):
        return set()
    return {DOCUMENT, PAGE, *(file.path for file in dossier.files)}
