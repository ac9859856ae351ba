"""The table of the signatures on a version, and the cells that name a signer."""

from collections import Counter

from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.trust.releases import signatures
from onnxreg.registry.trust.signatures import SignatureVerdict
from onnxreg.schema.core.errors import Advice, IntegrityError
from onnxreg.schema.dossier.dossier import DossierCell, DossierTable
from onnxreg.schema.dossier.source_document import BLANK, SourceDocument, table
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine

COLUMNS = ("Line", "Time, as claimed", "Envelope", "Key id", "Signed by")


def signer_cell(verdict: SignatureVerdict, source: SourceDocument, location: str) -> DossierCell:
    """The reader's name of the key that made a signature, or why it does not count; blank without a signature.

    IntegrityError if the signature is wrong: then nothing may be stated.
    """
    if verdict.status == "invalid":
        raise IntegrityError(f"a signature of the log is wrong: {verdict.detail}", Advice("list-signatures"))
    if verdict.status == "unsigned":
        return BLANK
    return DossierCell(value=str(verdict), rule="signer", sources=(source.cite(location),))


def line_signer(record: VersionRecord, line: LogLine) -> DossierCell:
    """The signer of a line of a log."""
    return signer_cell(record.line_verdicts[line.digest], SourceDocument.of_line(line), "/sig")


def version_signatures(record: VersionRecord) -> list[DossierTable]:
    """Every signature on the version, oldest first. IntegrityError if one is wrong."""
    rows, position = [], Counter[int]()
    for release in signatures(record.ledger, record.trust, [record.manifest_digest]):
        if release.version != record.located.version:
            continue
        line = record.lines[release.seq - 1]
        rows.append(_row(record, line, position[release.seq], release.verdict))
        position[release.seq] += 1
    return table(COLUMNS, rows)


def _row(
    record: VersionRecord, line: LogLine, index: int, verdict: SignatureVerdict
) -> tuple[DossierCell, ...]:
    assert isinstance(line.event, Attest), "signatures are attested"
    envelope, source = record.blob(line.event.statement), SourceDocument.of_line(line)
    location = f"/signatures/{index}"
    return (
        *(source.quote(at) for at in ("/seq", "/event/time", "/event/statement")),
        envelope.quote(f"{location}/keyid"),
        signer_cell(verdict, envelope, location),
    )
