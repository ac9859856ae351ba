"""Judge a version by the rules of a channel. Everything is read again from the log and its blobs."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxreg.registry.gates.gate_history import attestations, evaluation_of, manifest_at
from onnxreg.registry.gates.proofs import recorded_proofs
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.blobs import read_manifest
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.signatures import signatures
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.channel_rules import GateFinding, PromotionCandidate, evaluate
from onnxreg.schema.gates.policy import Rule
from onnxreg.schema.inputs.trust_file import Trust


@dataclass(frozen=True)
class JudgedVersion:
    """The finding of each demand, the manifest compared with, and the statements that were read."""

    findings: tuple[GateFinding, ...]
    before: Digest | None
    statements: tuple[Digest, ...]

    @property
    def failed(self) -> tuple[GateFinding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "fail")


def judge_version(
    ledger: Ledger,
    rules: Sequence[Rule],
    version: Version,
    before: Digest | None,
    trust: Trust | None = None,
    hours: float | None = None,
) -> JudgedVersion:
    """Judge a version by rules. Raise IntegrityError or NotFoundError if a document cannot be read.

    Args:
        trust: default: the user's trust file.
        hours: the time of the rollout before, if there was one.
    """
    entry = ledger.entries[version]
    trust = load_trust() if trust is None else trust
    data = ledger.fetch(entry.manifest)
    manifest = read_manifest(data, entry.manifest, ledger.name)
    attests = attestations(ledger, entry.manifest, manifest)
    candidate = PromotionCandidate(
        manifest,
        entry.manifest,
        len(data),
        tuple(item for event in attests if (item := evaluation_of(ledger, event)) is not None),
        _signers(ledger, version, trust) if any(rule.signed_by for rule in rules) else (),
        None if before is None else manifest_at(ledger, before),
        entry.held,
        frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id) if name),
        hours,
        tuple(recorded_proofs(ledger, attests, trust)) if any(rule.faithful for rule in rules) else (),
    )
    findings = tuple(dict.fromkeys(item for rule in rules for item in evaluate(rule, candidate)))
    statements = tuple(dict.fromkeys(event.statement for event in attests))
    return JudgedVersion(findings, before, statements)


def _signers(ledger: Ledger, version: Version, trust: Trust) -> tuple[frozenset[str], ...]:
    """The names and ids of each trusted key that signed a version; a key and those that it replaces are one."""
    releases = signatures(ledger, trust, [ledger.entries[version].manifest])
    verdicts = [release.verdict for release in releases if release.version == version]
    return trust.signers(sorted(verdict.keyid or "" for verdict in verdicts if verdict.status == "trusted"))
