"""Reports that a log attests of a version: benchmarks, proofs and evaluations, signed or not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for, signatures
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.dossier.dossier import DossierCell, DossierTable
from onnxreg.schema.dossier.dossier_profile import ProfileField
from onnxreg.schema.dossier.source_document import BLANK, SourceDocument, table
from onnxreg.schema.gates import evaluation, faithfulness
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.dsse import MEDIA_TYPE, PAYLOAD_TYPE, STATEMENT, Envelope

PREDICATES = {
    "onnxreg-evaluation": evaluation.PREDICATE,
    "onnxreg-faithfulness": faithfulness.PREDICATE,
}
"""The predicate type of a signed report of each format; reports of other formats may have any type."""
ARTIFACTS = ("/artifact", "/artifacts/*/artifact")
"""The places in a report with the digests of the artifacts that it is about."""
SUBJECTS = "/subject/*/digest/sha256"
"""The places in an in-toto statement with the SHA-256 of what was signed about."""


@dataclass(frozen=True)
class VersionReport:
    """A report, the line that attests it, and the envelope if it is signed."""

    line: LogLine
    source: SourceDocument
    envelope: Envelope | None

    @property
    def format(self) -> object:
        return pointer.find(self.source.value, f"{self.source.root}/format")

    def is_about(self, record: VersionRecord) -> bool:
        """True if it is about bytes of the version only: anybody may repeat in a log what was signed for another one."""
        artifacts = {str(artifact.digest) for artifact in record.manifest.artifacts}
        digests = self._values(*(f"{self.source.root}{location}" for location in ARTIFACTS))
        if self.envelope is None:
            return digests <= artifacts
        subjects = {f"sha256:{value}" for value in self._values(SUBJECTS)}
        is_here = subjects <= {*artifacts, str(record.manifest_digest)}
        return bool(subjects) and is_here and digests <= artifacts and self._is_typed()

    def _values(self, *patterns: str) -> set[str]:
        places = (location for pattern in patterns for location in pointer.expand(self.source.value, pattern))
        return {str(pointer.find(self.source.value, location)) for location in places}

    def _is_typed(self) -> bool:
        """True if it is an in-toto statement with the predicate type of its format."""
        kind, predicate = (
            pointer.find(self.source.value, location) for location in ("/_type", "/predicateType")
        )
        return bool(kind == STATEMENT and predicate == PREDICATES.get(str(self.format), predicate))


def statements(record: VersionRecord, field: ProfileField) -> list[DossierTable]:
    """The reports on the version with the `format` of the field, oldest first; a row for each signature, or one if unsigned."""
    labels, columns = zip(*(field.columns or ()), strict=True)
    rows = [
        (*row, signer)
        for report in _attested(record)
        if report.format == field.format and report.is_about(record)
        for signer in _signers(record, report)
        for row in report.source.rows(field.rows or "", columns)
    ]
    return table((*labels, "Signed by"), rows)


def _attested(record: VersionRecord) -> Iterator[VersionReport]:
    for line in record.lines:
        event = line.event
        is_here = isinstance(event, Attest) and event.statement not in record.ledger.tombstones
        if is_here and isinstance(event, Attest) and event.manifest == record.manifest_digest:
            report = _report(record, line, event)
            if report is not None:
                yield report


def _report(record: VersionRecord, line: LogLine, event: Attest) -> VersionReport | None:
    """The report of an event; None unless it is a JSON object, or signed in an in-toto statement."""
    data = record.ledger.fetch(event.statement)
    try:
        if event.media_type != MEDIA_TYPE:
            is_object = isinstance(canonical.decode(data, "statement"), dict)
            return VersionReport(line, record.blob(event.statement), None) if is_object else None
        envelope = Envelope.decode(data)
        if envelope.payload_type != PAYLOAD_TYPE:
            return None
        return VersionReport(line, SourceDocument.of_payload(event.statement, envelope.payload), envelope)
    except InputError:
        return None


def _signers(record: VersionRecord, report: VersionReport) -> Iterator[DossierCell]:
    """A cell for each signature; a blank one if there is none. IntegrityError if a signature is wrong."""
    if report.envelope is None:
        yield BLANK
        return
    judge, envelope = judge_for(record.ledger, record.trust), report.envelope
    source = record.blob(report.source.name["blob"])
    for index, signature in enumerate(envelope.signatures):
        verdict = judge.verdict(signature.keyid, signature.sig, envelope.signed, report.line.seq)
        _refuse_wrong(report.line, verdict)
        yield _signer(verdict, source, f"/signatures/{index}")


COLUMNS = ("Line", "Time, as claimed", "Envelope", "Key id", "Signed by")


def _refuse_wrong(line: LogLine, verdict: SignatureVerdict) -> None:
    """Raise IntegrityError if the signature is wrong: then nothing may be stated."""
    if verdict.status == "invalid":
        raise IntegrityError(
            f"line {line.seq} of the log of {line.name} has a signature that is wrong: {verdict.detail}",
            Advice("list-signatures"),
        )


def _signer(verdict: SignatureVerdict, source: SourceDocument, location: str) -> DossierCell:
    """The reader's name of the key that made a signature, or why it does not count; blank without a signature."""
    if verdict.status == "unsigned":
        return BLANK
    return DossierCell(value=str(verdict), rule="signer", sources=(source.cite(location),))


def line_signer(record: VersionRecord, line: LogLine) -> DossierCell:
    """The signer of a line of a log. IntegrityError if the signature is wrong."""
    verdict = record.line_verdicts[line.digest]
    _refuse_wrong(line, verdict)
    return _signer(verdict, SourceDocument.of_line(line), "/sig")


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
    _refuse_wrong(line, verdict)
    envelope, source = record.blob(line.event.statement), SourceDocument.of_line(line)
    location = f"/signatures/{index}"
    return (
        *(source.quote(at) for at in ("/seq", "/event/time", "/event/statement")),
        envelope.quote(f"{location}/keyid"),
        _signer(verdict, envelope, location),
    )
