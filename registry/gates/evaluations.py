"""Later evaluations: put one on record, and judge the signers of those on record.

An evaluation must be about bytes of the version, made against their parent.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.gates.gate_history import attestations, evaluation_of
from onnxreg.registry.gates.statements import BENCHMARK
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.read.versions import PublishedVersion, read_version
from onnxreg.registry.signing import PrivateKey, sign_statement
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_for
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.formats.benchmark import BenchmarkDocument
from onnxreg.schema.gates.evaluation import Evaluation, read_evaluation, statement
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.summary import effective_state
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.signing.dsse import Envelope


@dataclass(frozen=True)
class AttestResult:
    """The artifact by its path, the state in its manifest, the evaluation, and the effective state."""

    ref: Ref
    path: str
    stated: str
    evaluation: Evaluation
    state: str


def attest(
    decisions: Decisions,
    published: PublishedVersion,
    report: bytes,
    key: PrivateKey | None = None,
    reason: str | None = None,
    label: str = "report",
) -> AttestResult:
    """Put a report on record, as a blob and an event. Idempotent.

    Raise InputError if the report is malformed, is about bytes that are not an artifact of the version, or
    was made against another parent than the artifact's; `label` is its name in errors.
    """
    media_type, evaluation = read_evaluation(report, label)
    ref, artifact = published.ref, _about(published.manifest, evaluation, published.ref)
    if key is not None:
        signed = sign_statement(statement(report, evaluation.artifact), key)
        media_type, report = ENVELOPE, signed.encode()
    decisions.attest(ref, report, media_type, reason, (evaluation.artifact, evaluation.state))
    states = {item.path: item.state for item in published.states}
    state = effective_state(states[artifact.path], evaluation.state)
    return AttestResult(ref, artifact.path, artifact.certification.state, evaluation, state)


def attest_benchmark(decisions: Decisions, ref: Ref, manifest: Manifest, report: bytes, label: str) -> None:
    """Put a benchmark on record, as a blob and an event that no gate looks at. Idempotent.

    Raise InputError if the report is malformed, or is about bytes that are not an artifact of the version.
    """
    benchmark = BenchmarkDocument.decode(report, label)
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    if unknown := next((item for item in benchmark.artifacts if item.artifact not in artifacts), None):
        raise InputError(f"{label} is about {unknown.artifact.short}..., which is not an artifact of {ref}")
    decisions.attest(ref, report, BENCHMARK)


def _about(manifest: Manifest, evaluation: Evaluation, ref: Ref) -> Artifact:
    artifact = next((item for item in manifest.artifacts if item.digest == evaluation.artifact), None)
    if artifact is None:
        raise InputError(
            f"the report is about {evaluation.artifact.short}..., which is not an artifact of {ref}",
            "name the version whose bytes were evaluated",
        )
    parents = _parents(manifest, artifact)
    if evaluation.parent is not None and parents and evaluation.parent not in parents:
        raise InputError(
            f"the report compares with {evaluation.parent.short}..., which is not what {artifact.path} was made from"
        )
    return artifact


def _parents(manifest: Manifest, artifact: Artifact) -> set[Digest]:
    """The digests that an artifact may be compared with: the artifact or checkpoint that it was made from."""
    evidence, source = artifact.certification.evidence, manifest.source
    parents = {artifact.parent, evidence.parent if evidence else None, source.digest if source else None}
    return {digest for digest in parents if digest is not None}


def read_benchmarks(reader: RegistryReader, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a version, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    version = read_version(reader, ref)
    ledger, _ = load(reader, version.name)
    about = attestations(ledger, version.digest, version.manifest)
    documents = [ledger.fetch(event.statement) for event in about if event.media_type == BENCHMARK]
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]


@dataclass(frozen=True, slots=True)
class SignedEvaluation:
    """A signature on an evaluation of an artifact, the line that announced it, and its verdict."""

    manifest: Digest
    artifact: Digest
    state: str
    seq: int
    verdict: SignatureVerdict

    def to_json(self) -> dict[str, str | int | None]:
        """The value in `reg verify --signatures --json`."""
        about = {"artifact": str(self.artifact), "state": self.state}
        return {**about, **self.verdict.to_json(), "seq": self.seq}


def signed_evaluations(ledger: Ledger, trust: Trust) -> Iterator[SignedEvaluation]:
    """Yield every signature on an evaluation in a log, oldest first, without statements taken down.

    A statement that is missing, damaged, or says other things than its event is `invalid`.
    """
    judge = judge_for(ledger, trust)
    for event, artifact, seq in _attested(ledger):
        try:
            envelope = Envelope.decode(ledger.fetch(event.statement))
            evaluation_of(ledger, event)
        except (InputError, IntegrityError, NotFoundError) as error:
            verdicts = [SignatureVerdict("invalid", detail=error.message)]
        else:
            signatures = envelope.signatures
            verdicts = [
                judge.verdict(signature.keyid, signature.sig, envelope.signed, seq)
                for signature in signatures
            ]
        for verdict in verdicts:
            yield SignedEvaluation(event.manifest, artifact, event.state or "", seq, verdict)


def _attested(ledger: Ledger) -> Iterator[tuple[Attest, Digest, int]]:
    """The events of signed evaluations, each with its artifact and the number of its line."""
    for seq, event in ledger.events(Attest):
        is_signed = event.media_type == ENVELOPE and event.statement not in ledger.tombstones
        if is_signed and event.artifact is not None:
            yield event, event.artifact, seq


def audit_evaluations(ledger: Ledger, trust: Trust) -> Iterator[tuple[str, str]]:
    """Yield the wrong signatures on evaluations; see `verify.Audit`."""
    try:
        evaluations = list(signed_evaluations(ledger, trust))
    except RegError:
        return  # the log cannot be read, which is said of the log
    for evaluation in evaluations:
        if evaluation.verdict.status == "invalid":
            subject = f"the evaluation of {evaluation.artifact.short}... in line {evaluation.seq}"
            yield "signature", f"the signature on {subject} is wrong: {evaluation.verdict.detail}"
