"""The tables of a version: quotations, signatures, changes, and the history of its channels.

Each cell is quoted from a document of the registry, or follows from cited values by a rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from onnxreg.registry.gates.enforce import check_evidence, compared_with, read_policies
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for, signed_statements
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.compare.manifests import located_changes
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, IntegrityError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.dossier.profile import ProfileField
from onnxreg.schema.gates.policy import policy_of
from onnxreg.schema.gates.rule import is_planned
from onnxreg.schema.log.events import Attest, Publish, RolloutStep, Tag, Untag
from onnxreg.schema.log.logline import LogLine

RULES = {
    "name": "the last key of the cited place",
    "diff": "the change between the cited values, by the rules of docs/diff.md; one value if it was added or removed",
    "plan": "yes if each cited list of planned changes has the kind or the severity of the change in this row, else no",
    "signer": "the reader's name of the key that made the cited signature, or why it does not count",
}


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value with its citations. Without a `rule` it is the one value that it cites; without citations it is empty.

    A citation has a `pointer` (RFC 6901), the `value` there, and the source: a `blob`, or a `line` of a `log` with its
    `digest`.
    """

    value: Any
    rule: str | None = None
    sources: tuple[dict[str, Any], ...] = ()


BLANK = Cell(None)
"""A cell for a place that does not exist."""
Row = tuple[Cell, ...]


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of cells. A table without columns is one cell."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ()
    caption: str | None = None


def table(columns: Iterable[str], rows: Iterable[Row], caption: str | None = None) -> list[Table]:
    """The table of some rows, without columns that are blank in every row; none if all are."""
    body, header = list(rows), tuple(columns)
    shown = [index for index in range(len(header)) if any(row[index] is not BLANK for row in body)]
    cells = tuple(tuple(row[index] for index in shown) for row in body)
    return [Table(cells, tuple(header[index] for index in shown), caption)] if shown else []


class Source(NamedTuple):
    """A JSON document, and how a citation names it."""

    name: Mapping[str, Any]
    value: Any

    @classmethod
    def of_blob(cls, digest: Digest, data: bytes) -> "Source":
        return cls({"blob": str(digest)}, canonical.decode(data, f"blob {digest.short}..."))

    @classmethod
    def of_line(cls, line: LogLine) -> "Source":
        name = {"log": line.name, "line": line.seq, "digest": str(line.digest)}
        return cls(name, canonical.decode(line.raw, "log line"))

    def cite(self, location: str) -> dict[str, Any]:
        """The citation of a place, which must exist."""
        return {**self.name, "pointer": location, "value": pointer.find(self.value, location)}

    def quote(self, location: str) -> Cell:
        """A cell with the value of a place; blank if it does not exist or is null."""
        value = pointer.find(self.value, location)
        return BLANK if value in (pointer.ABSENT, None) else Cell(value, sources=(self.cite(location),))

    def rows(self, pattern: str, columns: Iterable[str]) -> list[Row]:
        """A row for each place that a pattern means; `columns` are relative pointers from it."""
        return [
            tuple(
                Cell(pointer.tokens(target)[-1], "name", (self.cite(target),))
                if is_key
                else self.quote(target)
                for target, is_key in (pointer.relative(location, column) for column in columns)
            )
            for location in pointer.expand(self.value, pattern)
        ]


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


class VersionTables:
    """The tables of a version, its log verified; NotFoundError or IntegrityError if that cannot be read.

    The channels are the one that the ref names, else all that ever pointed to the version. `keyids` are the keys of the
    signatures that were cited.
    """

    def __init__(self, reader: RegistryReader, ref: Ref) -> None:
        self.ledger = load(reader, ref.name)
        located = self.ledger.find(ref, yanked=True, gone=True)
        self.version, self.entry, self.digest = located.version, located.entry, located.entry.manifest
        self.lines = list(self.ledger.lines())
        self.policies, self.trust = read_policies(reader), load_trust()
        self.keyids: set[str | None] = set()
        self.published = next(
            line
            for line in reversed(self.lines)
            if isinstance(line.event, Publish)
            and (line.event.version, line.event.manifest) == (self.version, self.digest)
        )
        pointed = {
            line.event.tag
            for line in self.lines
            if isinstance(line.event, Tag | RolloutStep) and line.event.manifest == self.digest
        }
        self.channels = [ref.tag] if ref.tag and ref.tag in self.ledger.channels else sorted(pointed)
        self.manifest = self.ledger.read_manifest(self.digest)

    def _blob(self, digest: Digest) -> Source:
        return Source.of_blob(digest, self.ledger.fetch(digest))

    def of_field(self, field: ProfileField) -> list[Table]:
        """The tables of a field of a profile; none if the registry has nothing about it."""
        match field.generate or field.from_:
            case "signatures":
                return self._signatures()
            case "changes":
                return self._changes_before()
            case "history":
                return self._history()
            case "policy":
                return self._policy()
            case "manifest":
                sources = [self._blob(self.digest)]
            case "published":
                sources = [Source.of_line(self.published)]
            case _:
                sources = self._log(field)
        if field.columns is None:
            quotes = (source.quote(field.value or "") for source in sources)
            return [Table(((cell,),)) for cell in quotes if cell is not BLANK]
        labels, places = zip(*field.columns, strict=True)
        rows = [row for source in sources for row in source.rows(field.rows or "", places)]
        checkpoint = self.manifest.source
        if field.rows == "/source" and checkpoint and checkpoint.public_id(self.ledger.name) is None:
            rows = [(BLANK, *row[1:]) for row in rows]  # the id of local files is the model's own name
        return table(labels, rows)

    def _log(self, field: ProfileField) -> list[Source]:
        """The lines of the log that a field chooses."""
        return [
            source
            for source in map(Source.of_line, self.lines)
            if (not field.kinds or source.value["event"]["kind"] in field.kinds)
            and (not field.this or source.value["event"].get("manifest") == str(self.digest))
            and (field.having is None or pointer.find(source.value, field.having) is not pointer.ABSENT)
        ]

    def _signatures(self) -> list[Table]:
        """Every signature on the version, oldest first."""
        rows: list[Row] = []
        releases = [
            item
            for item in signed_statements(self.ledger, self.trust, self.digest)
            if item.version == self.version
        ]
        for seq, items in groupby(releases, key=lambda item: item.seq):
            line = self.lines[seq - 1]
            assert isinstance(line.event, Attest)
            announced = [
                Source.of_line(line).quote(location)
                for location in ("/seq", "/event/time", "/event/statement")
            ]
            for index, item in enumerate(items):
                _refuse_wrong(line, item.verdict)
                envelope, at = self._blob(line.event.statement), f"/signatures/{index}"
                signer = self._signer(line, item.verdict, envelope, at)
                rows.append((*announced, envelope.quote(f"{at}/keyid"), signer))
        return table(("Line", "Time, as claimed", "Envelope", "Key id", "Signed by"), rows)

    def _policy(self) -> list[Table]:
        """The demands of the policy in force on each channel of the version."""
        rows: list[Row] = []
        for line in self.policies.lines[-1:]:
            for index, rule in enumerate(policy_of(line).rules):
                if any(rule.covers(self.ledger.name, channel) for channel in self.channels):
                    rows += Source.of_line(line).rows(f"/event/rules/{index}/*", ("1#", "0#", "0"))
        return table(("Rule", "Demand", "Value"), rows)

    def _changes_before(self) -> list[Table]:
        """The changes from the version that was published before this one."""
        events = [line.event for line in self.lines[: self.published.seq - 1]]
        published = [event.manifest for event in reversed(events) if isinstance(event, Publish)]
        before = next((digest for digest in published if digest != self.digest), None)
        return table(CHANGES, self._changes(before, self.digest, []))

    def _history(self) -> list[Table]:
        """The moves of its channels, then the findings of all promotions, and the changes that they brought.

        GateError or IntegrityError if evidence is not about its move, or says of planned changes what does not hold.
        """
        judge = judge_for(self.ledger, self.trust)
        moves, verdicts, changes = list[Row](), list[Row](), list[Row]()
        past: list[Tag] = []
        for line in self.lines:
            event, source, findings = line.event, Source.of_line(line), list[Row]()
            if not isinstance(event, Tag | Untag | RolloutStep) or event.tag not in self.channels:
                continue
            if not isinstance(event, Untag) and event.evidence is not None:
                check_evidence(self.ledger, self.policies, event)
                findings = self._blob(event.evidence).rows("/findings/*", FINDINGS.values())
            plan = next((row[1] for row in findings if row[0].value == "planned"), BLANK)
            signer = self._signer(line, judge.line(line), source, "/sig")
            moves.append((*map(source.quote, MOVES.values()), plan, signer))
            if not isinstance(event, Tag):
                continue
            before = compared_with([tag for tag in past if tag.tag == event.tag], event.manifest)
            brought = self._changes(before, event.manifest, self._plans(event))
            unplanned = [row[1].value for row in brought if row[-1].value == "no"]
            if event.evidence is not None and unplanned and plan.value != "fail":
                raise GateError(
                    f"line {line.seq} of {line.name} promoted a version with a change that was not planned: "
                    f"{unplanned[0]}",
                    "do not use it until you know why; `reg promote` by somebody who may puts it right",
                )
            about = source.quote("/seq"), source.quote("/event/version")
            verdicts += [(*about, *row) for row in findings]
            changes += [(*about, *row) for row in brought]
            past.append(event)
        return [
            *table((*MOVES, "Within the plan", "Signed by"), moves, "Moves"),
            *table(("Line", "Version", *FINDINGS), verdicts, "Findings"),
            *table(("Line", "Version", *CHANGES), changes, "Changes from the version before"),
        ]

    def _plans(self, event: Tag) -> list[dict[str, Any]]:
        """The citations of the lists of planned changes that governed a move."""
        return [
            Source.of_line(line).cite(f"/event/rules/{index}/planned")
            for line in self.policies.lines
            if line.digest == event.policy
            for index, rule in enumerate(policy_of(line).rules)
            if rule.planned and rule.covers(self.ledger.name, event.tag)
        ]

    def _changes(self, before: Digest | None, after: Digest, plans: Sequence[dict[str, Any]]) -> list[Row]:
        """The changes between two manifests, worst first, without cosmetic ones; none if one of them was taken down."""
        rows: list[Row] = []
        if before is None or not {before, after}.isdisjoint(self.ledger.tombstones):
            return rows
        sources = self._blob(before), self._blob(after)
        changes = located_changes(self.ledger.read_manifest(before), self.ledger.read_manifest(after))
        for change, delta in changes:
            if change.severity == "cosmetic":
                continue
            sides = list(zip(sources, delta.pointers, strict=True))
            cites = tuple(side.cite(location) for side, location in sides if location is not None)
            words = [Cell(word, "diff", cites) for word in (change.severity, change.kind, change.path)]
            values = [BLANK if location is None else side.quote(location) for side, location in sides]
            fits = all(is_planned(plan["value"], change.kind, change.severity) for plan in plans)
            planned = Cell("yes" if fits else "no", "plan", tuple(plans)) if plans else BLANK
            rows.append((*words, *values, planned))
        return rows

    def _signer(self, line: LogLine, verdict: SignatureVerdict, source: Source, location: str) -> Cell:
        """The reader's name of the key that made a signature, or why it does not count; blank without a signature."""
        _refuse_wrong(line, verdict)
        if verdict.status == "unsigned":
            return BLANK
        self.keyids.add(verdict.keyid)
        return Cell(str(verdict), "signer", (source.cite(location),))


def _refuse_wrong(line: LogLine, verdict: SignatureVerdict) -> None:
    """Raise IntegrityError if the signature is wrong: then nothing may be stated."""
    if verdict.status == "invalid":
        raise IntegrityError(
            f"line {line.seq} of the log of {line.name} has a signature that is wrong: {verdict.detail}",
            "`reg verify --signatures` lists the signatures",
        )
