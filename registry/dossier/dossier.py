"""Make the dossier of a version: its documentation for auditors, as JSON and as a page.

A profile lists the fields. A field has a text from the owner's file, or tables about the registry. A cell of a table
quotes a document of the registry, or follows from quoted values by a rule (docs/dossier.md).
"""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.registry.gates import check_evidence, read_policies
from onnxreg.registry.log.log import load
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.export_files import replacing
from onnxreg.registry.trust.known_heads import load_trust
from onnxreg.registry.trust.signatures import SignatureVerdict, attestations, judge_for, signed_statements
from onnxreg.schema.compare.manifests import located_changes
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, missing_extra, suggest
from onnxreg.schema.core.files import read_given, read_yaml
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.gates.policy import policy_of
from onnxreg.schema.inputs.dossier_profile import DossierProfile, OwnerFacts, ProfileField
from onnxreg.schema.log.events import Attest, LogLine, RolloutStep, Tag, Untag

EXTRA, DOCUMENT, PAGE = "dossier", "dossier.json", "dossier.html"
FACTS_FILE = "owner.yaml"
FILES = frozenset({DOCUMENT, PAGE, FACTS_FILE})
HERE = Path(__file__).parent
PROFILES = {path.stem: path for path in sorted((HERE / "profiles").glob("*.yaml"))}
"""The paths of the profiles that come with the program, by name."""
MAX_VALUE_CHARS = 240  # maximum length of a value on the page; `dossier.json` has the whole value
NOTICE = (
    "This document is a template filled in from a registry. It is not legal advice, and it does not show that a law is met: "
    "that is for a person to judge."
)
RULES = {
    "name": "the last key of the cited place",
    "diff": "the change between the cited values, by the rules of docs/diff.md; one value if it was added or removed",
    "signer": "the reader's name of the key that made the cited signature, or why it does not count",
}


Cell = dict[str, Any]
"""A cell of a table: a `value` and its `sources`. If the cell has no `rule`, the value is copied from its only source.

A source has a `pointer` (RFC 6901) into a JSON document, and the `value` there. Further keys name the document. A blob
has the key `blob` (its digest). A log line has the keys `log` (the log's name), `line` and `digest`.
"""
BLANK: Cell = {"value": None}
Row = tuple[Cell, ...]
Table = dict[str, Any]
"""A table: `rows` of cells, the titles in `columns`, and maybe a `caption`.

A table that has only one value has no `columns`.
"""


def table(columns: Iterable[str], rows: Iterable[Row], **caption: str) -> list[Table]:
    """Return a list with one table of these rows. Blank columns are left out. If all cells are blank, return []."""
    body, header = list(rows), list(columns)
    shown = [index for index in range(len(header)) if any(row[index] is not BLANK for row in body)]
    cells = [[row[index] for index in shown] for row in body]
    return [{"rows": cells, "columns": [header[index] for index in shown], **caption}] if shown else []


class Source(NamedTuple):
    """A JSON document that cells cite: its name in a citation, and its value."""

    name: Mapping[str, Any]
    value: Any

    @classmethod
    def of_line(cls, line: LogLine) -> "Source":
        name = {"log": line.event.name, "line": line.seq, "digest": str(line.digest)}
        return cls(name, canonical.decode(line.raw, "log line"))

    def cite(self, location: str) -> dict[str, Any]:
        return {**self.name, "pointer": location, "value": pointer.find(self.value, location)}

    def quote(self, location: str) -> Cell:
        """Make a cell with the value at a JSON pointer, or a blank cell if the value does not exist or is null."""
        value = pointer.find(self.value, location)
        is_blank = value in (pointer.ABSENT, None)
        return BLANK if is_blank else {"value": value, "sources": [self.cite(location)]}

    def rows(self, pattern: str, columns: Iterable[str]) -> list[Row]:
        """Make a row for each place in the document that matches `pattern`.

        A column is a JSON pointer that starts at this place. If it ends with `#`, the cell has the last name in the
        pointer instead of the value there: `/a/b#` gives `b`.
        """

        def cell(location: str, column: str) -> Cell:
            target = pointer.relative(location, column.removesuffix("#"))
            if column.endswith("#") and target:
                return {"value": pointer.tokens(target)[-1], "rule": "name", "sources": [self.cite(target)]}
            return self.quote(target)

        places = pointer.expand(self.value, pattern)
        return [tuple(cell(location, column) for column in columns) for location in places]


def make_dossier(
    reader: RegistryReader, ref: Ref, profile: str, facts: Path | None = None
) -> dict[str, bytes]:
    """Make the files of a version's dossier, by name. `facts` is the owner's file. The same inputs give the same bytes.

    Raises IntegrityError if a signature is wrong or a document is damaged, and GateError if a promotion contradicts its
    evidence.
    """
    form, form_digest = load_profile(profile)
    owner, data = (None, b"") if facts is None else read_facts(facts, form)
    version = _VersionTables(reader, ref)
    name, registry = version.ledger.name, version.ledger.registry
    if owner is not None and owner.name != name:
        raise InputError(f"the facts are about {owner.name}, not {name}")
    sections = [
        section.model_dump(include={"title", "number", "note"}, exclude_none=True)
        | {"fields": [_field(version, field, owner) for field in section.fields]}
        for section in form.sections
    ]
    heads = {name: version.lines[-1:], POLICY_LOG: version.policies.lines[-1:]}
    trusted = version.trust.keys.items()
    keys = {key.name or key_id: str(key.key) for key_id, key in trusted if key_id in version.keyids}
    dossier = {
        "format": "onnxreg-dossier",
        "format_version": 1,
        "notice": NOTICE,
        "profile": form.model_dump(include={"name", "title", "basis"}, exclude_none=True)
        | {"digest": str(form_digest)},
        "subject": {"registry": registry, "name": name, "version": str(version.version)}
        | {"manifest": str(version.digest), "channels": version.channels},
        "logs": {log: {"line": line.seq, "digest": str(line.digest)} for log in heads for line in heads[log]},
        "rules": RULES,
        "sections": sections,
        "keys": [{"name": name, "key": key} for name, key in sorted(keys.items())],
    }
    files = {}
    if owner is not None:
        dossier["facts"] = {"file": FACTS_FILE, "digest": str(Digest.of(data))}
        files[FACTS_FILE] = data
    return {DOCUMENT: canonical.encode(dossier), PAGE: render(dossier), **files}


def _field(version: "_VersionTables", field: ProfileField, owner: OwnerFacts | None) -> dict[str, Any]:
    about = field.model_dump(include={"label", "point", "help"}, exclude_none=True)
    if field.owner is None:
        tables = version.of_field(field)
        content = {"origin": "generated", "tables": tables}
        return about | (content if tables else {"origin": "absent", "text": ("not recorded",)})
    text = owner.paragraphs(field.owner) if owner else ()
    content = {"origin": "owner", "text": text} if text else {"origin": "absent", "text": ("not provided",)}
    return about | {"key": field.owner} | content


def load_profile(name: str) -> tuple[DossierProfile, Digest]:
    """Load a profile by name or path, with the digest of its file. Raises InputError if it is malformed or unknown."""
    path = PROFILES.get(name, Path(name))
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise InputError(f"no profile is called {name[:80]!r}", suggest(name, PROFILES))
    data = read_given(path)
    return DossierProfile.from_json(read_yaml(data, path.name, EXTRA), path.name), Digest.of(data)


def read_facts(path: Path, form: DossierProfile) -> tuple[OwnerFacts, bytes]:
    """Read the owner's statements. Return them and the bytes of the file. Raises InputError for an unknown key."""
    data = read_given(path)
    facts = OwnerFacts.from_json(read_yaml(data, path.name, EXTRA), path.name)
    allowed = form.owner_keys().union(*(load_profile(name)[0].owner_keys() for name in PROFILES))
    if unknown := next((key for key in facts.statements if key not in allowed), None):
        hint = suggest(unknown, allowed) or "the page docs/dossier.md lists the fields"
        raise InputError(f"{path.name}: no profile has a field {unknown[:64]!r}", hint)
    return facts, data


def write_dossier(files: Mapping[str, bytes], target: Path) -> None:
    """Write the files of a dossier into a directory, in place of an earlier dossier."""
    with replacing(target) as fresh:
        for path, data in files.items():
            (fresh / path).write_bytes(data)


def render(dossier: dict[str, Any]) -> bytes:
    """Render the HTML page as UTF-8. Raise HostError if jinja2 is not installed."""
    try:
        from jinja2 import FileSystemLoader, Undefined

        from onnxreg.registry.server.pages.rendering import environment
    except ImportError as error:
        raise missing_extra("jinja2", EXTRA, "making the page of a dossier") from error
    templates = environment().overlay(loader=FileSystemLoader(HERE / "page"), undefined=Undefined)
    sources: dict[str, dict[str, Any]] = {}

    def number(cite: Mapping[str, Any]) -> int:
        name = f"line {cite['line']} of {cite['log']}" if "log" in cite else "blob"
        digest = cite.get("blob") or cite["digest"]
        source = {"number": len(sources) + 1, "name": name, "digest": digest}
        return int(sources.setdefault(digest, source)["number"])

    def numbers(row: Iterable[Cell]) -> list[int]:
        return sorted({number(cite) for cell in row for cite in cell.get("sources", ())})

    for field in (field for section in dossier["sections"] for field in section["fields"]):
        for row in (row for item in field.get("tables", ()) for row in item["rows"]):
            numbers(row)

    templates.filters["text"] = cell_text
    templates.globals["numbers"] = numbers
    templates.globals["numbered"] = lambda cell: sources.get(cell_text(cell), {}).get("number")
    style = (HERE / "page" / "dossier.css").read_text(encoding="utf-8")
    page = templates.get_template("dossier.html")
    return page.render(dossier=dossier, style=style, sources=list(sources.values())).encode()


def cell_text(cell: Cell) -> str:
    """Return a cell's value as text, cut off if long. Lists of texts are joined by commas. Other values become JSON."""
    value = "" if cell["value"] is None else cell["value"]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"


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
FINDINGS = {"Demand": "requirement", "Verdict": "verdict", "Finding": "detail"}


class _VersionTables:
    """Makes the tables of a version from its verified log. The method `_NAME` makes the table of `generate: NAME`."""

    def __init__(self, reader: RegistryReader, ref: Ref) -> None:
        self.ledger = load(reader, ref.name)
        located = self.ledger.find(ref, yanked=True, gone=True)
        self.version, self.digest = located.version, located.entry.manifest
        self.lines = list(self.ledger.lines())
        self.policies, self.trust = read_policies(reader), load_trust()
        self.keyids: set[str | None] = set()
        self.published = self.lines[located.entry.seq - 1]
        moves = (line.event for line in self.lines if isinstance(line.event, Tag | RolloutStep))
        pointed = sorted({move.tag for move in moves if move.manifest == self.digest})
        self.channels = [ref.tag] if ref.tag and ref.tag in self.ledger.channels else pointed
        self.manifest = self.ledger.read_manifest(self.digest)
        self.digests = {str(item.digest) for item in self.manifest.artifacts} | {str(self.digest)}
        counted = {event.id for event in attestations(self.ledger, self.digest, self.manifest)}
        self.others = {event.id for _, event in self.ledger.events(Attest) if event.id not in counted}

    def _blob(self, digest: Digest) -> Source:
        data = self.ledger.fetch(digest)
        return Source({"blob": str(digest)}, canonical.decode(data, f"blob {digest.short}..."))

    def of_field(self, field: ProfileField) -> list[Table]:
        """Make the tables of a profile's field. Return [] if the registry has no data for the field."""
        if field.generate is not None:
            return list(getattr(self, f"_{field.generate}")())
        if field.from_ == "manifest":
            sources = [self._blob(self.digest)]
        elif field.from_ == "published":
            sources = [Source.of_line(self.published)]
        else:
            lines = [line for line in self.lines if not field.this or line.event.id not in self.others]
            sources = [line for line in map(Source.of_line, lines) if field.chooses(line.value, self.digests)]
        if field.columns is None:
            quotes = (source.quote(field.value or "") for source in sources)
            return [{"rows": [[cell]]} for cell in quotes if cell is not BLANK]
        labels, places = zip(*field.columns, strict=True)
        rows = [row for source in sources for row in source.rows(field.rows or "", places)]
        checkpoint = self.manifest.source
        if field.rows == "/source" and checkpoint and checkpoint.public_id(self.ledger.name) is None:
            rows = [(BLANK, *row[1:]) for row in rows]  # local files have no public id
        return table(labels, rows)

    def _signatures(self) -> list[Table]:
        rows: list[Row] = []
        statements = signed_statements(self.ledger, self.trust, self.digest)
        releases = (item for item in statements if item.version == self.version)
        for seq, items in groupby(releases, key=lambda item: item.seq):
            line = self.lines[seq - 1]
            announced = tuple(map(Source.of_line(line).quote, ("/seq", "/event/time", "/event/statement")))
            for index, item in enumerate(items):
                _refuse_wrong(line, item.verdict)
                envelope, at = self._blob(item.event.statement), f"/signatures/{index}"
                signer = self._signer(line, item.verdict, envelope, at)
                rows.append((*announced, envelope.quote(f"{at}/keyid"), signer))
        return table(("Line", "Time, as claimed", "Envelope", "Key id", "Signed by"), rows)

    def _policy(self) -> list[Table]:
        rows: list[Row] = []
        for line in self.policies.lines[-1:]:
            for index, rule in enumerate(policy_of(line).rules):
                if any(rule.covers(self.ledger.name, channel) for channel in self.channels):
                    rows += Source.of_line(line).rows(f"/event/rules/{index}/*", ("..#", "#", ""))
        return table(("Rule", "Demand", "Value"), rows)

    def _changes(self) -> list[Table]:
        """Return a table of changes since the previous version, the worst first. Cosmetic changes are left out."""
        others = (entry for entry in self.ledger.versions.values() if entry.manifest != self.digest)
        earlier = {entry.seq: entry.manifest for entry in others if entry.seq < self.published.seq}
        if not earlier or (before := earlier[max(earlier)]) in self.ledger.tombstones:
            return []
        rows: list[Row] = []
        sources = self._blob(before), self._blob(self.digest)
        for change, delta in located_changes(self.ledger.read_manifest(before), self.manifest):
            if change.severity != "cosmetic":
                sides = list(zip(sources, delta.pointers, strict=True))
                rule = {"rule": "diff", "sources": [side.cite(at) for side, at in sides if at is not None]}
                words = ({"value": word, **rule} for word in (change.severity, change.kind, change.path))
                rows.append((*words, *(BLANK if at is None else side.quote(at) for side, at in sides)))
        return table(("Severity", "Kind", "Place", "Before", "After"), rows)

    def _history(self) -> list[Table]:
        """Return tables of channel moves and of findings of promotions. Raises GateError if evidence is wrong."""
        judge = judge_for(self.ledger, self.trust)
        moves, verdicts = list[Row](), list[Row]()
        for line in self.lines:
            event, source = line.event, Source.of_line(line)
            if not isinstance(event, Tag | Untag | RolloutStep) or event.tag not in self.channels:
                continue
            signer = self._signer(line, judge.line(line), source, "/sig")
            moves.append((*map(source.quote, MOVES.values()), signer))
            if not isinstance(event, Untag) and event.evidence is not None:
                check_evidence(self.ledger, self.policies, event)
                about = source.quote("/seq"), source.quote("/event/version")
                findings = self._blob(event.evidence).rows("/findings/*", FINDINGS.values())
                verdicts += [(*about, *row) for row in findings]
        return [
            *table((*MOVES, "Signed by"), moves, caption="Moves"),
            *table(("Line", "Version", *FINDINGS), verdicts, caption="Findings"),
        ]

    def _signer(self, line: LogLine, verdict: SignatureVerdict, source: Source, location: str) -> Cell:
        _refuse_wrong(line, verdict)
        if verdict.status == "unsigned":
            return BLANK
        self.keyids.add(verdict.keyid)
        return {"value": str(verdict), "rule": "signer", "sources": [source.cite(location)]}


def _refuse_wrong(line: LogLine, verdict: SignatureVerdict) -> None:
    if verdict.status == "invalid":
        raise IntegrityError(
            f"line {line.seq} of the log of {line.event.name} has a signature that is wrong: {verdict.detail}",
            "`reg verify --signatures` lists the signatures",
        )
