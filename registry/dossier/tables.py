"""The tables of a version: quotations, attested statements, signatures, changes, and the history of its channels."""

from collections.abc import Iterator, Sequence
from itertools import repeat

from onnxreg.registry.dossier.cells import BLANK, Cell, Source, Table, table
from onnxreg.registry.gates.enforce import check_evidence
from onnxreg.registry.gates.policy_log import read_policies
from onnxreg.registry.gates.promotion import compared_with
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.lookup import read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for, judge_lines, signatures
from onnxreg.schema.compare.manifests import located_changes
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.dossier.profile import ProfileField
from onnxreg.schema.gates.policy import policy_of
from onnxreg.schema.gates.rule import is_planned
from onnxreg.schema.log.events import Attest, Publish, RolloutStep, Tag, Untag
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.signing.dsse import EVALUATED, MEDIA_TYPE, PAYLOAD_TYPE, PROVEN, STATEMENT, Envelope

PREDICATES = {"onnxreg-evaluation": EVALUATED, "onnxreg-faithfulness": PROVEN}
"""The predicate type of a signed report of each format; reports of other formats may have any type."""
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
Row = tuple[Cell, ...]


class VersionTables:
    """The tables of a version, its log verified; NotFoundError or IntegrityError if that cannot be read.

    The channels are the one that the ref names, else all that ever pointed to the version.
    """

    def __init__(self, reader: RegistryReader, ref: Ref) -> None:
        self.ledger, index = load(reader, ref.name)
        if index is None:
            raise lookup.unknown_model(ref.name, reader)
        located = self.ledger.find(ref, yanked=True, gone=True)
        self.version, self.entry, self.digest = located.version, located.entry, located.entry.manifest
        self.lines = list(self.ledger.lines())
        self.policies, self.trust = read_policies(reader), load_trust()
        self._blobs: dict[Digest, Source] = {}
        pointed = {
            line.event.tag
            for line in self.lines
            if isinstance(line.event, Tag | RolloutStep) and line.event.manifest == self.digest
        }
        self.channels = [ref.tag] if ref.tag and ref.tag in self.ledger.channels else sorted(pointed)
        self.manifest = self._manifest(self.digest)

    def _manifest(self, digest: Digest) -> Manifest:
        return read_manifest(self.ledger.fetch(digest), digest, self.ledger.name)

    def _blob(self, digest: Digest) -> Source:
        if digest not in self._blobs:
            self._blobs[digest] = Source.of_blob(digest, self.ledger.fetch(digest))
        return self._blobs[digest]

    def of_field(self, field: ProfileField) -> list[Table]:
        """The tables of a field of a profile; none if the registry has nothing about it."""
        if field.generate is not None:
            generators = {"signatures": self._signatures, "changes": self._changes_before}
            return (generators | {"history": self._history, "policy": self._policy})[field.generate]()
        sources = self._statements(field) if field.format else zip(self._sources(field), repeat(BLANK))
        if field.columns is None:
            quotes = (source.quote(field.value or "") for source, _ in sources)
            return [Table(((cell,),)) for cell in quotes if cell is not BLANK]
        labels, places = zip(*field.columns, strict=True)
        rows = [(*row, signer) for source, signer in sources for row in source.rows(field.rows or "", places)]
        checkpoint = self.manifest.source
        if field.rows == "/source" and checkpoint and checkpoint.public_id(self.ledger.name) is None:
            rows = [(BLANK, *row[1:]) for row in rows]  # the id of local files is the model's own name
        return table((*labels, "Signed by"), rows)

    def _sources(self, field: ProfileField) -> list[Source]:
        if field.from_ == "manifest":
            return [self._blob(self.digest)]
        if field.from_ != "log":
            lines = self.policies.lines[-1:] if field.from_ == "policy" else [self._published()]
            return list(map(Source.of_line, lines))
        return [
            source
            for source in map(Source.of_line, self.lines)
            if (not field.kinds or source.value["event"]["kind"] in field.kinds)
            and (not field.this or source.value["event"].get("manifest") == str(self.digest))
            and (field.having is None or pointer.find(source.value, field.having) is not pointer.ABSENT)
        ]

    def _published(self) -> LogLine:
        """The line that published the version."""
        subject = (self.version, self.digest)
        lines = (line for line in reversed(self.lines) if isinstance(line.event, Publish))
        return next(line for line in lines if (line.event.version, line.event.manifest) == subject)  # type: ignore[union-attr]

    def _statements(self, field: ProfileField) -> Iterator[tuple[Source, Cell]]:
        """The reports on the version with the format of a field, oldest first; one for each signature, if it is signed."""
        for line in self.lines:
            event, tombstones = line.event, self.ledger.tombstones
            if (
                not isinstance(event, Attest)
                or event.manifest != self.digest
                or event.statement in tombstones
            ):
                continue
            data, envelope = self.ledger.fetch(event.statement), None
            try:
                if event.media_type == MEDIA_TYPE:
                    envelope = Envelope.decode(data)
                    name = {"blob": str(event.statement), "payload": True}
                    source = Source(name, canonical.decode(envelope.payload, "a statement"), "/predicate")
                else:
                    source = self._blob(event.statement)
            except InputError:
                continue
            if not self._is_about(source, field.format, envelope):
                continue
            judge = judge_for(self.ledger, self.trust)
            for index, item in enumerate(envelope.signatures if envelope else ()):
                assert envelope is not None, "it has signatures"
                verdict = judge.verdict(item.keyid, item.sig, envelope.signed, line.seq)
                yield source, _signer(line, verdict, self._blob(event.statement), f"/signatures/{index}")
            if envelope is None:
                yield source, BLANK

    def _is_about(self, source: Source, kind: str | None, envelope: Envelope | None) -> bool:
        """True for a report of this format on bytes of the version only: anybody may attest what was signed for another."""
        if pointer.find(source.value, f"{source.root}/format") != kind:
            return False
        here = {str(artifact.digest) for artifact in self.manifest.artifacts}
        about = source.values(
            *(f"{source.root}{location}" for location in ("/artifact", "/artifacts/*/artifact"))
        )
        if envelope is None:
            return about <= here
        subjects = {f"sha256:{value}" for value in source.values("/subject/*/digest/sha256")}
        types = tuple(source.value.get(key) for key in ("_type", "predicateType"))
        is_typed = types == (STATEMENT, PREDICATES.get(kind or "", types[1]))
        is_ours = about <= here and bool(subjects) and subjects <= {*here, str(self.digest)}
        return is_ours and is_typed and envelope.payload_type == PAYLOAD_TYPE

    def _signatures(self) -> list[Table]:
        """Every signature on the version, oldest first."""
        rows: list[Row] = []
        position: dict[int, int] = {}
        for release in signatures(self.ledger, self.trust, [self.digest]):
            line = self.lines[release.seq - 1]
            if release.version != self.version or not isinstance(line.event, Attest):
                continue
            at = f"/signatures/{position.setdefault(line.seq, 0)}"
            position[line.seq] += 1
            _refuse_wrong(line, release.verdict)
            envelope, source = self._blob(line.event.statement), Source.of_line(line)
            cells = [source.quote(location) for location in ("/seq", "/event/time", "/event/statement")]
            rows.append((*cells, envelope.quote(f"{at}/keyid"), _signer(line, release.verdict, envelope, at)))
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
        events = [line.event for line in self.lines[: self._published().seq - 1]]
        published = [event.manifest for event in reversed(events) if isinstance(event, Publish)]
        before = next((digest for digest in published if digest != self.digest), None)
        return table(CHANGES, self._changes(before, self.digest, []))

    def _history(self) -> list[Table]:
        """The moves of its channels, then the findings and the changes of each promotion.

        GateError or IntegrityError if evidence is not about its move, or says of planned changes what does not hold.
        """
        verdicts = dict(judge_lines(self.trust, self.ledger.registry, self.ledger.name, self.lines))
        rows: list[Row] = []
        details: list[Table] = []
        tags: list[Tag] = []
        for line in self.lines:
            event, source, evidence, plan = line.event, Source.of_line(line), None, BLANK
            if not isinstance(event, Tag | Untag | RolloutStep) or event.tag not in self.channels:
                continue
            if isinstance(event, Tag | RolloutStep) and event.evidence is not None:
                check_evidence(self.ledger, self.policies, event)
                evidence = self._blob(event.evidence)
                plans = evidence.rows("/findings/*", FINDINGS.values())
                plan = next((row[1] for row in plans if row[0].value == "planned"), BLANK)
            signer = _signer(line, verdicts[line], source, "/sig")
            rows.append((*(source.quote(location) for location in MOVES.values()), plan, signer))
            if not isinstance(event, Tag):
                continue
            about = source.quote("/event/version"), source.quote("/seq")
            if evidence is not None:
                details += table(FINDINGS, evidence.rows("/findings/*", FINDINGS.values()), "Findings", about)
            before = compared_with([tag for tag in tags if tag.tag == event.tag], event.manifest)
            changes = self._changes(before, event.manifest, self._plans(event))
            unplanned = [row for row in changes if row[-1].value == "no"]
            if evidence is not None and unplanned and plan.value != "fail":
                raise GateError(
                    f"line {line.seq} of {line.name} promoted a version with a change that was not planned: "
                    f"{unplanned[0][1].value}",
                    "do not use it until you know why; `reg promote` by somebody who may puts it right",
                )
            details += table(CHANGES, changes, "Changes from the version before", about)
            tags.append(event)
        return [*table((*MOVES, "Within the plan", "Signed by"), rows, "Moves"), *details]

    def _plans(self, event: Tag) -> list[Source]:
        """The lists of planned changes that governed a move, each as the root of its source."""
        return [
            Source.of_line(line)._replace(root=f"/event/rules/{index}/planned")
            for line in self.policies.lines
            if line.digest == event.policy
            for index, rule in enumerate(policy_of(line).rules)
            if rule.planned and rule.covers(self.ledger.name, event.tag)
        ]

    def _changes(self, before: Digest | None, after: Digest, plans: Sequence[Source]) -> list[Row]:
        """The changes between two manifests, worst first, without cosmetic ones; none if one of them was taken down."""
        rows: list[Row] = []
        if before is None or not (self._is_here(before) and self._is_here(after)):
            return rows
        for change, places in located_changes(self._manifest(before), self._manifest(after)):
            if change.severity == "cosmetic":
                continue
            sides = list(zip((self._blob(before), self._blob(after)), places, strict=True))
            cites = tuple(side.cite(location) for side, location in sides if location is not None)
            words = [Cell(word, "diff", cites) for word in (change.severity, change.kind, change.path)]
            old, new = (BLANK if location is None else side.quote(location) for side, location in sides)
            lists = tuple(plan.cite(plan.root) for plan in plans)
            fits = all(is_planned(item["value"], change.kind, change.severity) for item in lists)
            rows.append((*words, old, new, Cell("yes" if fits else "no", "plan", lists) if lists else BLANK))
        return rows

    def _is_here(self, digest: Digest) -> bool:
        """True unless a manifest was taken down with its version."""
        try:
            self._blob(digest)
        except NotFoundError:
            if digest in self.ledger.tombstones:
                return False
            raise
        return True


def _signer(line: LogLine, verdict: SignatureVerdict, source: Source, location: str) -> Cell:
    """The reader's name of the key that made a signature, or why it does not count; blank without a signature."""
    _refuse_wrong(line, verdict)
    return BLANK if verdict.status == "unsigned" else Cell(str(verdict), "signer", (source.cite(location),))


def _refuse_wrong(line: LogLine, verdict: SignatureVerdict) -> None:
    """Raise IntegrityError if the signature is wrong: then nothing may be stated."""
    if verdict.status == "invalid":
        raise IntegrityError(
            f"line {line.seq} of the log of {line.name} has a signature that is wrong: {verdict.detail}",
            "`reg verify --signatures` lists the signatures",
        )
