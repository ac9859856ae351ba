"""Assemble the dossier of a version: the fields of a profile, filled in from its record and from the owner's facts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnxreg.registry.dossier.input_files import LoadedProfile, OwnerFile
from onnxreg.registry.dossier.tables import (
    changes_before,
    history,
    policy_in_force,
    statements,
    version_signatures,
)
from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.schema.core import pointer
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.dossier.dossier import (
    BLANK,
    NOT_PROVIDED,
    NOT_RECORDED,
    NOTICE,
    RULES,
    Dossier,
    DossierCell,
    DossierField,
    DossierFile,
    DossierKey,
    DossierSection,
    DossierSubject,
    DossierTable,
    LogHead,
    ProfileReference,
    SourceDocument,
    single,
    table,
)
from onnxreg.schema.dossier.dossier_profile import GeneratorName, ProfileField, ProfileSection
from onnxreg.schema.log.logline import LogLine

Attachments = Mapping[str, tuple[bytes, str]]
"""The bytes of each file beside the dossier, by name, and what it is."""


def assemble(
    record: VersionRecord,
    profile: LoadedProfile,
    owner: OwnerFile | None = None,
    attachments: Attachments | None = None,
) -> Dossier:
    """The dossier. The same record, profile and owner's file give the same document.

    IntegrityError or GateError if a signature or a promotion is not what it claims to be.
    """
    signed = {} if owner is None else {"facts": owner.signed_for(record)}
    sections = [_section(record, section, owner) for section in profile.profile.sections]
    files = [
        DossierFile(path=path, digest=Digest.of(data), size=len(data), about=about)
        for path, (data, about) in sorted((attachments or {}).items())
    ]
    return Dossier(
        format="onnxreg-dossier",
        format_version=1,
        notice=NOTICE,
        profile=_profile(profile),
        subject=_subject(record),
        keys=tuple(_keys(record, sections, owner)),
        logs=_heads(record),
        rules=RULES,
        sections=tuple(sections),
        files=tuple(files),
        **signed,
    )


def _profile(loaded: LoadedProfile) -> ProfileReference:
    profile = loaded.profile
    basis = {} if profile.basis is None else {"basis": profile.basis}
    return ProfileReference(name=profile.name, title=profile.title, digest=loaded.digest, **basis)


def _subject(record: VersionRecord) -> DossierSubject:
    return DossierSubject(
        registry=record.ledger.registry,
        name=record.ledger.name,
        version=str(record.located.version),
        manifest=record.manifest_digest,
        channels=record.channels,
    )


def _section(record: VersionRecord, section: ProfileSection, owner: OwnerFile | None) -> DossierSection:
    given = {"title": section.title, "number": section.number, "note": section.note}
    return DossierSection(
        **{key: value for key, value in given.items() if value is not None},
        fields=tuple(_field(record, field, owner) for field in section.fields),
    )


def _field(record: VersionRecord, field: ProfileField, owner: OwnerFile | None) -> DossierField:
    given = {"label": field.label, "point": field.point, "help": field.help, "key": field.owner}
    about: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if field.owner is None:
        tables = tables_of(record, field)
        if tables:
            return DossierField(**about, origin="generated", tables=tuple(tables))
        return DossierField(**about, origin="absent", text=(NOT_RECORDED,))
    text = owner.facts.paragraphs(field.owner) if owner else ()
    if text:
        return DossierField(**about, origin="owner", text=text)
    return DossierField(**about, origin="absent", text=(NOT_PROVIDED,))


def _keys(
    record: VersionRecord, sections: list[DossierSection], owner: OwnerFile | None
) -> Iterator[DossierKey]:
    """The keys of the reader's trust file that made a cited signature or signed the owner's file, by name."""
    fields = (field for section in sections for field in section.fields)
    cells = (cell for field in fields for table in field.tables for row in table.rows for cell in row)
    ids = {_key_id(source.value) for cell in cells if cell.rule == "signer" for source in cell.sources}
    ids |= owner.key_ids if owner else set()
    keys = sorted(
        (key.name or key_id, str(key.key)) for key_id, key in record.trust.keys.items() if key_id in ids
    )
    return (DossierKey(name=name, key=key) for name, key in keys)


def _key_id(signature: object) -> str:
    """The key id of a signature in an envelope, or of a line."""
    return str(signature["keyid"]) if isinstance(signature, dict) else str(signature).partition(":")[0]


def _heads(record: VersionRecord) -> dict[str, LogHead]:
    logs = {record.ledger.name: record.lines, POLICY_LOG: record.policies.lines}
    return {name: LogHead(line=log[-1].seq, digest=log[-1].digest) for name, log in logs.items() if log}


Tables = list[DossierTable]
GENERATORS: Mapping[GeneratorName, Callable[[VersionRecord], Tables]] = {
    "signatures": version_signatures,
    "changes": changes_before,
    "history": history,
    "policy": policy_in_force,
}


def tables_of(record: VersionRecord, field: ProfileField) -> Tables:
    """The tables of a field that is not a person's; none if the registry has nothing about it."""
    if field.generate is not None:
        return GENERATORS[field.generate](record)
    if field.from_ == "statements":
        return statements(record, field)
    sources = list(_sources(record, field))
    if field.columns is None:
        return [table for source in sources for table in single(source.quote(field.value or ""))]
    labels, places = zip(*field.columns, strict=True)
    rows = [row for source in sources for row in source.rows(field.rows or "", places)]
    source = record.manifest.source if field.rows == "/source" else None
    if source is not None and source.public_id(record.ledger.name) is None:
        rows = [tuple(_public(cell) for cell in row) for row in rows]
    return table(labels, rows)


def _public(cell: DossierCell) -> DossierCell:
    """The cell; blank if it quotes the id of local files, which is the model's own name."""
    return BLANK if [source.pointer for source in cell.sources] == ["/source/id"] else cell


def _sources(record: VersionRecord, field: ProfileField) -> Iterator[SourceDocument]:
    match field.from_:
        case "manifest":
            yield record.blob(record.manifest_digest)
        case "published":
            yield SourceDocument.of_line(record.published)
        case "policy":
            yield from map(SourceDocument.of_line, record.policies.lines[-1:])
        case "log":
            yield from (source for line in record.lines if (source := _chosen(record, field, line)))


def _chosen(record: VersionRecord, field: ProfileField, line: LogLine) -> SourceDocument | None:
    """The line as a source if the field chooses it."""
    source = SourceDocument.of_line(line)
    about = pointer.find(source.value, "/event/manifest")
    if field.kinds and line.event.kind not in field.kinds:
        return None
    if field.this and about != str(record.manifest_digest):
        return None
    lacks = field.having is not None and pointer.find(source.value, field.having) is pointer.ABSENT
    return None if lacks else source
