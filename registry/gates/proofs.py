"""Proofs on record: that an artifact is its parent, rounded. `reg prove` makes them, and can make each again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnxreg.registry.gates.gate_history import attestations
from onnxreg.registry.gates.statements import PROOF
from onnxreg.registry.log.commit import load
from onnxreg.registry.read.versions import PublishedVersion, read_version
from onnxreg.registry.signing import sign_statement
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.signatures import judge_for
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.log.events import Attest
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, is_release

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.registry.log.ledger import Ledger
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.core.digest import Digest
    from onnxreg.schema.core.ref import Ref
    from onnxreg.schema.gates.faithfulness import FaithfulnessReport, RecordedProof
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.manifest.manifest import Manifest


def attest_proof(
    decisions: Decisions,
    published: PublishedVersion,
    report: FaithfulnessReport,
    key: PrivateKey | None = None,
    reason: str | None = None,
) -> None:
    """Put a proof on record, as a blob and an event, signed if a key is given. Idempotent.

    Raise InputError if it is about bytes that are not an artifact of the version.
    """
    if report.artifact not in {artifact.digest for artifact in published.manifest.artifacts}:
        raise InputError(
            f"the proof is about {report.artifact.short}..., which is not an artifact of {published.ref}"
        )
    if key is None:
        decisions.attest(published.ref, report.encode(), PROOF, reason)
        return
    from onnxreg.schema.gates.faithfulness import statement

    signed = sign_statement(statement(report), key)
    decisions.attest(published.ref, signed.encode(), ENVELOPE, reason)


def recorded_proofs(ledger: Ledger, events: Iterable[Attest], trust: Trust) -> Iterator[RecordedProof]:
    """Yield the proofs among some attestations, oldest first, with the trusted keys that validly signed each.

    The same report by the same signers counts once, at its first line. A repeated line does not make it newer.
    A malformed statement is skipped: it proves nothing. Raise NotFoundError or IntegrityError if one cannot be read.
    """
    judge = judge_for(ledger, trust)
    numbers: dict[object, int] = {}
    stated: set[tuple[bytes, frozenset[str]]] = set()
    for event in events:
        report, envelope = _read(ledger, event)
        if report is None:
            continue
        signers: tuple[frozenset[str], ...] = ()
        if envelope is not None:
            numbers = numbers or _numbers(ledger)
            seq = numbers[event.statement]
            verdicts = [
                judge.verdict(one.keyid, one.sig, envelope.signed, seq) for one in envelope.signatures
            ]
            signers = trust.signers(one.keyid or "" for one in verdicts if one.status == "trusted")
        claims = {(report.encode(), names) for names in signers or (frozenset(),)}
        if not claims <= stated:
            from onnxreg.schema.gates.faithfulness import RecordedProof

            stated |= claims
            yield RecordedProof(report, signers)


def _read(ledger: Ledger, event: Attest) -> tuple[FaithfulnessReport | None, Envelope | None]:
    """The report of a statement, and the envelope of a signed one; None if it states something else, or is malformed."""
    if event.media_type not in (PROOF, ENVELOPE):
        return None, None
    data = ledger.fetch(event.statement)
    try:
        envelope = Envelope.decode(data) if event.media_type == ENVELOPE else None
        if envelope is not None and not _may_be_proof(envelope):
            return None, envelope
        from onnxreg.schema.gates.faithfulness import FaithfulnessReport, read_statement

        if envelope is None:
            return FaithfulnessReport.decode(data, "a proof"), None
        return read_statement(envelope.payload), envelope
    except InputError:
        return None, None


def _may_be_proof(envelope: Envelope) -> bool:
    return envelope.payload_type == PAYLOAD_TYPE and not is_release(envelope.payload_type, envelope.payload)


def _numbers(ledger: Ledger) -> dict[object, int]:
    """The number of the first line that announces each statement."""
    numbers: dict[object, int] = {}
    for seq, event in ledger.events(Attest):
        numbers.setdefault(event.statement, seq)
    return numbers


def latest_proofs(
    ledger: Ledger, digest: Digest, manifest: Manifest, trust: Trust
) -> dict[str, RecordedProof]:
    """Return the newest proof of each artifact by its path; a signed proof comes before an unsigned one.

    Reports by other rules than this program's do not count.
    """
    lineages = {
        artifact.digest: (artifact.path, {parent.digest for parent in manifest.ancestors(artifact)})
        for artifact in manifest.artifacts
        if artifact.parent
    }
    if not lineages:
        return {}
    latest: dict[str, RecordedProof] = {}
    proofs = recorded_proofs(ledger, attestations(ledger, digest, manifest), trust)
    for proof in sorted(proofs, key=lambda item: bool(item.signers)):
        path, parents = lineages.get(proof.report.artifact, ("", set()))
        if proof.report.parent in parents and proof.report.is_current:
            latest[path] = proof
    return latest


def proofs_by_path(reader: RegistryReader, version: PublishedVersion) -> dict[str, RecordedProof]:
    """The same for a version that was read with its index file; empty if no artifact has a parent, or a statement
    cannot be read.
    """
    if not any(artifact.parent for artifact in version.manifest.artifacts):
        return {}
    try:
        ledger, _ = load(reader, version.name, first=version.index)
        return latest_proofs(ledger, version.digest, version.manifest, load_trust())
    except (IntegrityError, NotFoundError):
        return {}


def read_proofs(reader: RegistryReader, ref: Ref, trust: Trust | None = None) -> list[RecordedProof]:
    """The proofs that a log attests of a version, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    version = read_version(reader, ref)
    ledger, _ = load(reader, version.name, first=version.index)
    events = attestations(ledger, version.digest, version.manifest)
    return list(recorded_proofs(ledger, events, load_trust() if trust is None else trust))
