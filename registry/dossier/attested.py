"""Statements that a log attests of a version: benchmarks, proofs and evaluations, signed or not."""

from collections.abc import Iterator

from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.dossier.version_signatures import signer_cell
from onnxreg.registry.trust.releases import judge_for
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.dossier.cited_source import BLANK, CitedSource, table
from onnxreg.schema.dossier.dossier import DossierCell, DossierTable
from onnxreg.schema.dossier.dossier_profile import ProfileField
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.dsse import MEDIA_TYPE, PAYLOAD_TYPE, Envelope

Statement = tuple[CitedSource, DossierCell]
"""The report, and who signed it."""


def statements(record: VersionRecord, field: ProfileField) -> list[DossierTable]:
    """The statements whose key `format` is that of the field, oldest first, with the signer of each."""
    labels, columns = zip(*(field.columns or ()), strict=True)
    rows = [
        (*row, signer)
        for source, signer in _attested(record)
        if pointer.find(source.value, f"{source.root}/format") == field.format
        for row in source.rows(field.rows or "", columns)
    ]
    return table((*labels, "Signed by"), rows)


def _attested(record: VersionRecord) -> Iterator[Statement]:
    for line in record.lines:
        event = line.event
        is_here = isinstance(event, Attest) and event.statement not in record.ledger.tombstones
        if is_here and isinstance(event, Attest) and event.manifest == record.manifest_digest:
            yield from _statement(record, line, event)


def _statement(record: VersionRecord, line: LogLine, event: Attest) -> Iterator[Statement]:
    """The statement of an event; none if it is of no JSON document."""
    data = record.ledger.fetch(event.statement)
    if event.media_type != MEDIA_TYPE:
        if isinstance(_decoded(data), dict):
            yield record.blob(event.statement), BLANK
        return
    envelope = Envelope.decode(data)
    if envelope.payload_type == PAYLOAD_TYPE:
        judge, signature = judge_for(record.ledger, record.trust), envelope.signatures[0]
        verdict = judge.verdict(signature.keyid, signature.sig, envelope.signed, line.seq)
        signer = signer_cell(verdict, record.blob(event.statement), "/signatures/0")
        yield CitedSource.of_payload(event.statement, envelope.payload), signer


def _decoded(data: bytes) -> object:
    try:
        return canonical.decode(data, "statement")
    except InputError:
        return None
