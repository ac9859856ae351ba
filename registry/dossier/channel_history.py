"""The history of channels: their moves, the findings and changes of each promotion, and the rules in force."""

from collections.abc import Iterator, Sequence

from onnxreg.registry.dossier.attested import line_signer
from onnxreg.registry.dossier.version_record import VersionRecord
from onnxreg.registry.gates.enforce import check_evidence
from onnxreg.registry.gates.gate_history import compared_with
from onnxreg.registry.gates.policy_log import rules_of
from onnxreg.schema.compare.manifests import Change, Places, located_changes
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, GateError
from onnxreg.schema.dossier.dossier import Citation, DossierCell, DossierTable
from onnxreg.schema.dossier.source_document import BLANK, SourceDocument, table
from onnxreg.schema.gates.channel_rules import is_planned
from onnxreg.schema.log.events import Tag, Untag
from onnxreg.schema.log.logline import LogLine

MOVES = {
    "Line": "/seq",
    "Channel": "/event/tag",
    "Move": "/event/kind",
    "Version": "/event/version",
    "Time, as claimed": "/event/time",
    "By, as claimed": "/event/actor",
    "Reason": "/event/reason",
    "Policy": "/event/policy",
    "Evidence": "/event/evidence",
}
FINDINGS = {"Demand": "0/requirement", "Verdict": "0/verdict", "Finding": "0/detail"}
CHANGES = ("Severity", "Kind", "Place", "Before", "After", "Planned")
RULES = {"Rule": "1#", "Demand": "0#", "Value": "0"}


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
    """The lines that moved or removed a channel, oldest first."""
    lines = (line for line in record.lines if isinstance(line.event, Tag | Untag))
    return [line for line in lines if isinstance(line.event, Tag | Untag) and line.event.tag == channel]


def _move(record: VersionRecord, line: LogLine) -> tuple[DossierCell, ...]:
    source = SourceDocument.of_line(line)
    return (
        *(source.quote(location) for location in MOVES.values()),
        _plan_kept(record, line),
        line_signer(record, line),
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
    if not isinstance(event, Tag) or event.evidence is None:
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
