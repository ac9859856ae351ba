"""The tables of a profile's field: quotations of documents, or one of the generators."""

from collections.abc import Callable, Iterator, Mapping

from onnxreg.registry.dossier.attested import statements
from onnxreg.registry.dossier.channel_history import changes_before, history, policy_in_force
from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.dossier.version_signatures import version_signatures
from onnxreg.schema.core import pointer
from onnxreg.schema.dossier.dossier import DossierTable
from onnxreg.schema.dossier.dossier_profile import GeneratorName, ProfileField
from onnxreg.schema.dossier.source_document import SourceDocument, single, table
from onnxreg.schema.log.logline import LogLine

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
    return table(labels, [row for source in sources for row in source.rows(field.rows or "", places)])


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
