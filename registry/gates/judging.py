"""A version of a log held against the rules of a channel: everything is read from the log and its blobs, nothing believed."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxreg.registry.history.indexfile import read_line
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.trust.reading import load_trust
from onnxreg.registry.trust.releases import signatures
from onnxreg.schema.digest import Digest
from onnxreg.schema.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.dsse import Envelope
from onnxreg.schema.errors import InputError, IntegrityError
from onnxreg.schema.evaluation import EVALUATION, RECALL_DELTA, Evaluation, read_evaluation, read_statement
from onnxreg.schema.events import Attest, Tag
from onnxreg.schema.gate import Candidate, Finding, evaluate
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.policy import Rule
from onnxreg.schema.statement import PAYLOAD_TYPE
from onnxreg.schema.trustfile import Trust
from onnxreg.schema.version import Version


@dataclass(frozen=True)
class Judged:
    """What was found of each demand, the manifest that breaking changes were looked for against, the statements seen."""

    findings: tuple[Finding, ...]
    before: Digest | None
    statements: tuple[Digest, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "fail")


def judge_version(
    ledger: Ledger,
    rules: Sequence[Rule],
    version: Version,
    before: Digest | None,
    trust: Trust | None = None,
) -> Judged:
    """Hold a version against rules. IntegrityError or NotFoundError where a document cannot be read.

    `trust` is by default what the user's trust file says.
    """
    entry = ledger.entries[version]
    trust = load_trust() if trust is None else trust
    data = ledger.fetch(entry.manifest)
    manifest = read_manifest(data, entry.manifest, ledger.name)
    attests = attestations(ledger, entry.manifest, manifest)
    candidate = Candidate(
        manifest,
        entry.manifest,
        len(data),
        tuple(each for event in attests if (each := evaluation_of(ledger, event)) is not None),
        _signers(ledger, version, trust) if any(rule.signed_by for rule in rules) else (),
        None if before is None else manifest_at(ledger, before),
        entry.held,
        frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id) if name),
    )
    findings = tuple(dict.fromkeys(each for rule in rules for each in evaluate(rule, candidate)))
    statements = tuple(dict.fromkeys(event.statement for event in attests))
    return Judged(findings, before, statements)


def manifest_at(ledger: Ledger, digest: Digest) -> Manifest:
    return read_manifest(ledger.fetch(digest), digest, ledger.name)


def attestations(ledger: Ledger, digest: Digest, manifest: Manifest) -> list[Attest]:
    """What the log attests of a manifest, or of its artifacts under another one, and was not taken down."""
    buried = set(ledger.tombstones)
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    lines = [line for line in ledger.skim() if line.kind == Attest.kind]
    events = (read_line(line.raw, ledger.name).event for line in lines)
    found = [event for event in events if isinstance(event, Attest) and event.statement not in buried]
    return [event for event in found if event.manifest == digest or event.artifact in artifacts]


def evaluation_of(ledger: Ledger, event: Attest) -> Evaluation | None:
    """What an attest event says of an artifact; None where it is no evaluation.

    IntegrityError where the event says other things than its statement.
    """
    data = ledger.fetch(event.statement)
    try:
        found = _read(event.media_type, data)
    except InputError as error:
        raise IntegrityError(f"{error.message} of {ledger.name}", error.hint) from error
    said = (found.artifact, found.state) if found else (None, None)
    if said != (event.artifact, event.state):
        raise IntegrityError(
            f"an attest event of {ledger.name} says other things than its statement {event.statement.short}...",
            "its writer made it up: do not rely on this version",
        )
    return found


def _read(media_type: str, data: bytes) -> Evaluation | None:
    if media_type == ENVELOPE:
        envelope = Envelope.decode(data)
        return read_statement(envelope.payload) if envelope.payload_type == PAYLOAD_TYPE else None
    return (
        read_evaluation(data, "an attested evaluation")[1]
        if media_type in (RECALL_DELTA, EVALUATION)
        else None
    )


def _signers(ledger: Ledger, version: Version, trust: Trust) -> tuple[frozenset[str], ...]:
    """The names and ids of each trusted key that signed a version."""
    found = signatures(ledger, trust, [ledger.entries[version].manifest])
    verdicts = [each.verdict for each in found if each.version == version]
    good = sorted((v.key or "", v.keyid or "") for v in verdicts if v.status == "trusted")
    return tuple(dict.fromkeys(frozenset(names) for names in good))


def moves(ledger: Ledger, channel: str) -> list[Tag]:
    """Every move of a channel, oldest first."""
    found = (read_line(line.raw, ledger.name).event for line in ledger.skim() if line.kind == Tag.kind)
    return [event for event in found if isinstance(event, Tag) and event.tag == channel]


def compared_with(past: Sequence[Tag], manifest: Digest) -> Digest | None:
    """What a move of a channel to a manifest is compared with: what it was last promoted to, other than this manifest.

    A move that was no promotion does not count, once there was a promotion. None where it held nothing else before.
    """
    others = [event for event in past if event.manifest != manifest]
    promoted = [event for event in others if event.evidence is not None]
    return next((event.manifest for event in reversed(promoted or others)), None)


def relied_on(ledger: Ledger) -> set[Digest]:
    """The documents by which a reader who cannot ask finds anew what governed channels hold."""
    found: set[Digest] = set()
    for channel, held in ledger.channels.items():
        promoted = [move for move in moves(ledger, channel) if move.evidence] if held.evidence else []
        found |= {digest for move in promoted for digest in (move.manifest, move.evidence) if digest}
        if promoted:
            found |= {
                event.statement
                for event in attestations(ledger, held.manifest, manifest_at(ledger, held.manifest))
            }
    return found - set(ledger.tombstones)
