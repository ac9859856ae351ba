"""Write a dossier as a directory: the document, the page, and the attachments."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.registry.dossier.assemble import Attachments, assemble
from onnxreg.registry.dossier.input_files import EXTRA, FACTS_FILE, FACTS_SIGNATURE, OwnerFile, load_profile
from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.export_files import check_target, replacing
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, missing_extra
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.dossier.dossier import Citation, Dossier, DossierCell
from onnxreg.schema.formats.provenance import provenance
from onnxreg.schema.formats.sbom import BomSubject, bill
from onnxreg.schema.log.summary import artifact_states, verdicts_of

DOCUMENT, PAGE = "dossier.json", "dossier.html"
PAGE_FOLDER = Path(__file__).with_name("page")
MAX_VALUE_CHARS = 240
"""Characters of a value on the page; `dossier.json` has all."""


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
    verdicts = verdicts_of(record.manifest)
    states = artifact_states(verdicts, record.located.entry.attested, record.ledger.refused)
    subject = BomSubject(record.manifest, record.manifest_digest, record.located.version, states)
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
    signature = {} if owner.signature is None else {FACTS_SIGNATURE: (owner.signature, "its signature, DSSE")}
    return {FACTS_FILE: (owner.data, "the owner's statements"), **signature}


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


@dataclass(frozen=True)
class SourceEntry:
    """A source in the list at the end: its number, its name in words, and its digest."""

    number: int
    name: str
    digest: Digest


def render(dossier: Dossier) -> bytes:
    """The page, UTF-8. HostError that names the extra if jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2", EXTRA, "making the page of a dossier") from error
    environment = Environment(
        loader=FileSystemLoader(PAGE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    sources = _sources(dossier)
    environment.filters |= {"shown": shown}
    environment.globals["numbers"] = lambda cells: sorted(
        {sources[citation.source].number for cell in cells for citation in cell.sources}
    )
    by_digest = {str(source.digest): source.number for source in sources.values()}
    environment.globals["numbered"] = lambda cell: by_digest.get(shown(cell))
    style = (PAGE_FOLDER / "dossier.css").read_text(encoding="utf-8")
    page = environment.get_template("dossier.html")
    return page.render(dossier=dossier, style=style, sources=list(sources.values())).encode()


def _sources(dossier: Dossier) -> Mapping[Digest, SourceEntry]:
    """The sources of all cells, numbered in the order in which they appear."""
    sources: dict[Digest, SourceEntry] = {}
    for citation in _citations(dossier):
        if citation.source not in sources:
            name = "blob" if citation.log is None else f"line {citation.line} of {citation.log}"
            sources[citation.source] = SourceEntry(len(sources) + 1, name, citation.source)
    return sources


def _citations(dossier: Dossier) -> Iterator[Citation]:
    for field in dossier.fields:
        for table in field.tables:
            for cells in (table.about, *table.rows):
                yield from (citation for cell in cells for citation in cell.sources)


def shown(cell: DossierCell) -> str:
    """A value for people: a text as it is, a list of texts with commas, anything else as JSON; a long one is cut."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"


def _printable(value: Any) -> Any:
    """A text in which characters that do not print are spelt out; names and reasons come from unknown people."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in value)
