"""The tables of a dossier that do not quote a manifest: attested reports, signatures, and the history of channels.

A report is a benchmark, a proof or an evaluation, signed or not. The signatures are those on the version. The history
of a channel has its moves, the findings and changes of each promotion, and the rules in force.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.gates.enforce import check_evidence
from onnxreg.registry.gates.gate_history import compared_with
from onnxreg.registry.gates.policy_log import rules_of
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for, signatures
from onnxreg.schema.compare.manifests import Change, Places, located_changes
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, GateError, InputError, IntegrityError
from onnxreg.schema.dossier.dossier import BLANK, Citation, DossierCell, DossierTable, SourceDocument, table
from onnxreg.schema.dossier.dossier_profile import ProfileField
from onnxreg.schema.gates import evaluation, faithfulness
from onnxreg.schema.gates.rule import is_planned
from onnxreg.schema.log.events import Attest, RolloutStep, Tag, Untag
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
MOVES = {
    "Line": "/seq",
    "Channel": "/event/tag",
    "Move": "/event/kind",
    "Version": "/event/version",
    "Share, %": "/event/percent",
    "Time, as claimed": "/event/time",
    "By, as claimed": "/event/actor",
    "Reason": "/event/reason",
    "Policy": "/event/policy",
    "Evidence": "/event/evidence",
}
FINDINGS = {"Demand": "0/requirement", "Verdict": "0/verdict", "Finding": "0/detail"}
CHANGES = ("Severity", "Kind", "Place", "Before", "After", "Planned")
SIGNATURE_COLUMNS = ("Line", "Time, as claimed", "Envelope", "Key id", "Signed by")
RULES = {"Rule": "1#", "Demand": "0#", "Value": "0"}


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


def signer_of_line(record: VersionRecord, line: LogLine) -> DossierCell:
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
    return table(SIGNATURE_COLUMNS, rows)


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


def history(record: VersionRecord) -> list[DossierTable]:
    """The moves of each channel, then the findings and the changes of each promotion.

    GateError or IntegrityError if evidence is not about its move, or says of planned changes what does not hold.
    """
    moves = {channel: _moves(record, channel) for channel in record.channels}
    lines = sorted((line for part in moves.values() for line in part), key=lambda line: line.seq)
    rows = [_move(record, line) for line in lines]
    tables = table((*MOVES, "Within the plan", "Signed by"), rows, "Moves")
    for part in moves.values():
        for index, line in enumerate(part):
            tables += _details(record, line, part[:index])
    return tables


def _moves(record: VersionRecord, channel: str) -> list[LogLine]:
    """The lines that moved or removed a channel, and the steps of its rollouts, oldest first."""
    kinds = Tag | Untag | RolloutStep
    return [line for line in record.lines if isinstance(line.event, kinds) and line.event.tag == channel]


def _move(record: VersionRecord, line: LogLine) -> tuple[DossierCell, ...]:
    source = SourceDocument.of_line(line)
    return (
        *(source.quote(location) for location in MOVES.values()),
        _plan_kept(record, line),
        signer_of_line(record, line),
    )


def _plan_kept(record: VersionRecord, line: LogLine) -> DossierCell:
    """The verdict of the evidence on planned changes; blank if none were planned."""
    evidence = _evidence(record, line)
    if evidence is None:
        return BLANK
    findings = [f"/findings/{index}" for index in range(len(evidence.value["findings"]))]
    verdicts = (
        location for location in findings if evidence.cite(f"{location}/requirement").value == "planned"
    )
    return next((evidence.quote(f"{location}/verdict") for location in verdicts), BLANK)


def _evidence(record: VersionRecord, line: LogLine) -> SourceDocument | None:
    """The evidence of a promotion; None if the move was none."""
    event = line.event
    if not isinstance(event, Tag | RolloutStep) or event.evidence is None:
        return None
    check_evidence(record.ledger, record.policies, event)
    return record.blob(event.evidence)


def _details(record: VersionRecord, line: LogLine, earlier: Sequence[LogLine]) -> Iterator[DossierTable]:
    """The findings of a promotion, and the changes from the version that the channel was promoted to before."""
    event, source = line.event, SourceDocument.of_line(line)
    if not isinstance(event, Tag):
        return
    about = (source.quote("/event/version"), source.quote("/seq"))
    evidence = _evidence(record, line)
    if evidence is not None:
        yield from table(FINDINGS, evidence.rows("/findings/*", FINDINGS.values()), "Findings", about)
    before = compared_with([item.event for item in earlier if isinstance(item.event, Tag)], event.manifest)
    plans = list(_plans(record, event))
    if before is not None and record.has_manifest(before) and record.has_manifest(event.manifest):
        rows = _changes(record, before, event.manifest, plans)
        _check_plan(record, line, rows, evidence)
        yield from table(CHANGES, rows, "Changes from the version before", about)


def _plans(record: VersionRecord, event: Tag) -> Iterator[Citation]:
    """The lists of planned changes that governed a move."""
    line = record.policy_line(event.policy)
    if line is None:
        return
    for index, rule in enumerate(rules_of(line).rules):
        if rule.planned and rule.covers(record.ledger.name, event.tag):
            yield SourceDocument.of_line(line).cite(f"/event/rules/{index}/planned")


def changes_before(record: VersionRecord) -> list[DossierTable]:
    """The changes from the version that was published before this one."""
    before = record.published_before
    if before is None or not record.has_manifest(before):
        return []
    return table(CHANGES, _changes(record, before, record.manifest_digest, []))


def _changes(
    record: VersionRecord, before: Digest, after: Digest, plans: Sequence[Citation]
) -> list[tuple[DossierCell, ...]]:
    """The changes between two manifests, worst first; cosmetic ones are left out."""
    changes = located_changes(record.manifest_at(before), record.manifest_at(after))
    sides = (record.blob(before), record.blob(after))
    return [
        _change(change, places, sides, plans) for change, places in changes if change.severity != "cosmetic"
    ]


def _change(
    change: Change, places: Places, sides: tuple[SourceDocument, SourceDocument], plans: Sequence[Citation]
) -> tuple[DossierCell, ...]:
    old, new = (
        BLANK if location is None else side.quote(location)
        for side, location in zip(sides, places, strict=True)
    )
    sources = tuple(
        side.cite(location) for side, location in zip(sides, places, strict=True) if location is not None
    )
    words = (change.severity, change.kind, change.path)
    planned = all(is_planned(plan.value, change.kind, change.severity) for plan in plans)
    plan = (
        DossierCell(value="yes" if planned else "no", rule="plan", sources=tuple(plans)) if plans else BLANK
    )
    return (*(DossierCell(value=word, rule="diff", sources=sources) for word in words), old, new, plan)


def _check_plan(
    record: VersionRecord,
    line: LogLine,
    rows: Sequence[tuple[DossierCell, ...]],
    evidence: SourceDocument | None,
) -> None:
    """GateError if evidence says that changes were planned which were not: its writer made it up."""
    unplanned = [row for row in rows if row[-1].value == "no"]
    if evidence is not None and unplanned and _plan_kept(record, line).value != "fail":
        raise GateError(
            f"line {line.seq} of {record.ledger.name} promoted a version with a change that was not planned: "
            f"{unplanned[0][1].value}",
            Advice("promote-properly"),
        )


def policy_in_force(record: VersionRecord) -> list[DossierTable]:
    """The demands of the policy in force on each channel of the version."""
    if not record.policies.lines:
        return []
    line = record.policies.lines[-1]
    source, rows = SourceDocument.of_line(line), []
    for index, rule in enumerate(rules_of(line).rules):
        if any(rule.covers(record.ledger.name, channel) for channel in record.channels):
            rows += source.rows(f"/event/rules/{index}/*", RULES.values())
    return table(RULES, rows)
