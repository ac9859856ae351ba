"""The attestations of a model's log: evaluations, proofs, benchmarks, and signatures on versions.

`RecordedStatement` reads all of them; `attest`, `attest_proof` and `attest_benchmark` put one on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.registry.log.log import read_manifest
from onnxreg.registry.log.lookup import load, read_blob
from onnxreg.registry.read.versions import Release, read_version
from onnxreg.registry.signing import sign_statement
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.signatures import SignatureJudge, SignatureVerdict, judge_for
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.log.events import Attest, Deltas, Event, Hold, OptionalEvent, RolloutStep, Tag
from onnxreg.schema.log.summary import effective_state
from onnxreg.schema.signing.dsse import EVALUATED, PROVEN, RELEASE, Envelope
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.registry.log.log import Log
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.core.digest import Digest
    from onnxreg.schema.core.ref import Ref
    from onnxreg.schema.formats.benchmark import BenchmarkDocument
    from onnxreg.schema.gates.evaluation import Evaluation
    from onnxreg.schema.gates.faithfulness import FaithfulnessReport, RecordedProof
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.manifest.manifest import Artifact, Manifest

BENCHMARK = "application/vnd.onnxreg.benchmark.v1+json"
"""The media type of a statement with the measured speed of a version's artifacts: `schema/formats/benchmark.py`."""
PROOF = "application/vnd.onnxreg.faithfulness.v1+json"
"""The media type of a proof that an artifact is its parent, rounded: `schema/gates/faithfulness.py`."""
KINDS: Mapping[str, str] = {
    "application/vnd.onnxreg.recall-delta.v1+json": "evaluation",
    "application/vnd.onnxreg.evaluation.v1+json": "evaluation",
    PROOF: "proof",
    BENCHMARK: "benchmark",
    EVALUATED: "evaluation",
    PROVEN: "proof",
    RELEASE: "signature",
}
"""The kinds of statements by media type, and for a signed one by predicate type."""


@dataclass(frozen=True, slots=True)
class RecordedStatement:
    """A statement of a log.

    Args:
        kind: a word of `KINDS`; "" if it states something else.
        data: the document, or the payload of the envelope.
        envelope: its signatures, if it is signed.
    """

    kind: str
    data: bytes
    envelope: Envelope | None = None

    @classmethod
    def decode(cls, media_type: str, data: bytes) -> RecordedStatement:
        """Raise InputError for a malformed envelope."""
        if media_type != ENVELOPE:
            return cls(KINDS.get(media_type, ""), data)
        envelope = Envelope.decode(data)
        return cls(KINDS.get(envelope.predicate_type, ""), envelope.payload, envelope)

    def evaluation(self) -> Evaluation | None:
        """The evaluation that it states, if it is of this kind. Raise InputError if it is malformed."""
        from onnxreg.schema.gates.evaluation import read_evaluation, read_statement

        if self.kind != "evaluation":
            return None
        return read_statement(self.data) if self.envelope else read_evaluation(self.data, "an evaluation")[1]

    def proof(self) -> FaithfulnessReport | None:
        """The proof that it states, if it is of this kind. Raise InputError if it is malformed."""
        if self.kind != "proof":
            return None
        from onnxreg.schema.gates.faithfulness import FaithfulnessReport, read_statement

        return read_statement(self.data) if self.envelope else FaithfulnessReport.decode(self.data, "a proof")

    def verdicts(self, judge: SignatureJudge, seq: int) -> list[SignatureVerdict]:
        """Judge its signatures; line `seq` announced it."""
        return [
            judge.verdict(item.keyid, item.sig, self.envelope.signed, seq)
            for item in (self.envelope.signatures if self.envelope else ())
            if self.envelope is not None
        ]


def attestations(log: Log, digest: Digest, manifest: Manifest) -> list[Attest]:
    """The attestations of a manifest, or of its artifacts under another one, that were not taken down."""
    tombstones = set(log.tombstones)
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    events = (event for _, event in log.events(Attest) if event.statement not in tombstones)
    return [event for event in events if event.manifest == digest or event.artifact in artifacts]


def manifest_at(log: Log, digest: Digest) -> Manifest:
    return read_manifest(log.fetch(digest), digest, log.name)


# Evaluations


def evaluation_of(log: Log, event: Attest) -> Evaluation | None:
    """Read the evaluation of an attest event. Return None for another statement.

    Raise IntegrityError if it is malformed, or the event contradicts its statement.
    """
    data = log.fetch(event.statement)
    try:
        evaluation = RecordedStatement.decode(event.media_type, data).evaluation()
    except InputError as error:
        raise IntegrityError(f"{error.message} of {log.name}", error.hint) from error
    verdict = (evaluation.artifact, evaluation.state) if evaluation else (None, None)
    if verdict != (event.artifact, event.state):
        raise IntegrityError(
            f"an attest event of {log.name} says other things than its statement {event.statement.short}...",
            "its writer made it up: do not rely on this version",
        )
    return evaluation


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
    published: Release,
    report: bytes,
    key: PrivateKey | None = None,
    reason: str | None = None,
    label: str = "report",
) -> AttestResult:
    """Put an evaluation on record, as a blob and an event, signed if a key is given. Idempotent.

    Raise InputError if the report is malformed, is about bytes that are not an artifact of the version, or
    was made against another parent than the artifact's; `label` is its name in errors.
    """
    from onnxreg.schema.gates.evaluation import read_evaluation, statement

    media_type, evaluation = read_evaluation(report, label)
    artifact = _artifact(published, evaluation.artifact, "the report")
    evidence, source = artifact.certification.evidence, published.manifest.source
    parents = {artifact.parent, evidence.parent if evidence else None, source.digest if source else None}
    if evaluation.parent is not None and evaluation.parent not in parents and any(parents):
        raise InputError(
            f"the report compares with {evaluation.parent.short}..., which is not what {artifact.path} was made from"
        )
    if key is not None:
        media_type, report = ENVELOPE, sign_statement(statement(report, artifact.digest), key).encode()
    decisions.attest(published.ref, report, media_type, reason, (artifact.digest, evaluation.state))
    before = next(item.state for item in published.states if item.path == artifact.path)
    state = effective_state(before, evaluation.state)
    return AttestResult(published.ref, artifact.path, artifact.certification.state, evaluation, state)


def _artifact(published: Release, digest: Digest, subject: str) -> Artifact:
    """The artifact of a version with these bytes. Raise InputError if there is none."""
    for artifact in published.manifest.artifacts:
        if artifact.digest == digest:
            return artifact
    raise InputError(
        f"{subject} is about {digest.short}..., which is not an artifact of {published.ref}",
        "name the version whose bytes were evaluated",
    )


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


def signed_evaluations(log: Log, trust: Trust) -> Iterator[SignedEvaluation]:
    """Yield every signature on an evaluation in a log, oldest first, without statements taken down.

    A statement that is missing, damaged, or says other things than its event is `invalid`.
    """
    judge = judge_for(log, trust)
    for seq, event in log.events(Attest):
        if event.media_type != ENVELOPE or event.artifact is None or event.statement in log.tombstones:
            continue
        try:
            evaluation_of(log, event)
            statement = RecordedStatement.decode(ENVELOPE, log.fetch(event.statement))
            verdicts = statement.verdicts(judge, seq)
        except (InputError, IntegrityError, NotFoundError) as error:
            verdicts = [SignatureVerdict("invalid", detail=error.message)]
        for verdict in verdicts:
            yield SignedEvaluation(event.manifest, event.artifact, event.state or "", seq, verdict)


def audit_evaluations(log: Log, trust: Trust) -> Iterator[tuple[str, str]]:
    """Yield the wrong signatures on evaluations; see `verify.Audit`."""
    try:
        evaluations = list(signed_evaluations(log, trust))
    except RegError:
        return  # the log cannot be read, which is said of the log
    for evaluation in evaluations:
        if evaluation.verdict.status == "invalid":
            subject = f"the evaluation of {evaluation.artifact.short}... in line {evaluation.seq}"
            yield "signature", f"the signature on {subject} is wrong: {evaluation.verdict.detail}"


# Proofs


def attest_proof(
    decisions: Decisions,
    published: Release,
    report: FaithfulnessReport,
    key: PrivateKey | None = None,
    reason: str | None = None,
) -> None:
    """Put a proof on record, as a blob and an event, signed if a key is given. Idempotent.

    Raise InputError if it is about bytes that are not an artifact of the version.
    """
    from onnxreg.schema.gates.faithfulness import statement

    _artifact(published, report.artifact, "the proof")
    data = report.encode() if key is None else sign_statement(statement(report), key).encode()
    decisions.attest(published.ref, data, PROOF if key is None else ENVELOPE, reason)


def recorded_proofs(log: Log, events: Iterable[Attest], trust: Trust) -> Iterator[RecordedProof]:
    """Yield the proofs among some attestations, oldest first, with the trusted keys that validly signed each.

    The same report by the same signers counts once, at its first line. A repeated line does not make it newer.
    A malformed statement is skipped: it proves nothing. Raise NotFoundError or IntegrityError if one cannot be read.
    """
    from onnxreg.schema.gates.faithfulness import RecordedProof

    judge, numbers = judge_for(log, trust), dict[str, int]()
    claimed: set[tuple[bytes, frozenset[str]]] = set()
    for event in events:
        if event.media_type not in (PROOF, ENVELOPE):
            continue
        data = log.fetch(event.statement)
        try:
            statement = RecordedStatement.decode(event.media_type, data)
            report = statement.proof()
        except InputError:
            continue
        if report is None:
            continue
        if statement.envelope is not None and not numbers:
            for seq, line in log.events(Attest):
                numbers.setdefault(line.statement, seq)
        verdicts = statement.verdicts(judge, numbers.get(event.statement, 0))
        signers = trust.signers(item.keyid or "" for item in verdicts if item.status == "trusted")
        claims = {(report.encode(), names) for names in signers or (frozenset(),)}
        if not claims <= claimed:
            claimed |= claims
            yield RecordedProof(report, signers)


def latest_proofs(log: Log, digest: Digest, manifest: Manifest, trust: Trust) -> dict[str, RecordedProof]:
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
    proofs = recorded_proofs(log, attestations(log, digest, manifest), trust)
    for proof in sorted(proofs, key=lambda item: bool(item.signers)):
        path, parents = lineages.get(proof.report.artifact, ("", set()))
        if proof.report.parent in parents and proof.report.is_current:
            latest[path] = proof
    return latest


def proofs_by_path(reader: RegistryReader, version: Release) -> dict[str, RecordedProof]:
    """The same for a version that was read with its index file; empty if no artifact has a parent, or a statement
    cannot be read.
    """
    if not any(artifact.parent for artifact in version.manifest.artifacts):
        return {}
    try:
        log = load(reader, version.name, index=version.index)
        return latest_proofs(log, version.digest, version.manifest, load_trust())
    except (IntegrityError, NotFoundError):
        return {}


# Benchmarks


def attest_benchmark(decisions: Decisions, published: Release, report: bytes, label: str) -> None:
    """Put a benchmark on record, as a blob and an event that no gate looks at. Idempotent.

    Raise InputError if the report is malformed, or is about bytes that are not an artifact of the version.
    """
    from onnxreg.schema.formats.benchmark import BenchmarkDocument

    for item in BenchmarkDocument.decode(report, label).artifacts:
        _artifact(published, item.artifact, label)
    decisions.attest(published.ref, report, BENCHMARK)


def read_benchmarks(reader: RegistryReader, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a version, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    from onnxreg.schema.formats.benchmark import BenchmarkDocument

    version = read_version(reader, ref)
    log = load(reader, version.name)
    events = attestations(log, version.digest, version.manifest)
    documents = (log.fetch(event.statement) for event in events if event.media_type == BENCHMARK)
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]


# Words


def word_of(event: Event) -> str:
    """The kind of an event for people: a move with evidence is a promotion."""
    return "promote" if isinstance(event, Tag) and event.evidence is not None else event.kind


def words(event: Event, seq: int, reader: RegistryReader, judge: SignatureJudge) -> list[str]:
    """The words of the event of line `seq` beside its channel and its version.

    Args:
        reader: the registry that has the statements and manifests.
        judge: names the signers of statements.
    """
    match event:
        case Attest():
            return [_describe(event, seq, reader, judge)]
        case Deltas():
            count = max(0, len(event.blobs) - 1)
            return [f"({count} delta{'' if count == 1 else 's'})"]
        case Hold():
            return [", ".join(event.paths or ["everything"])]
        case Tag() | RolloutStep():
            share = []
            if isinstance(event, RolloutStep):
                share = ["halted" if event.percent is None else f"{event.percent:g} %"]
                share += [f"of {event.where}"] if event.where else []
            digests = {"policy": event.policy, "evidence": event.evidence}
            return share + [f"{key} {digest.short}" for key, digest in digests.items() if digest is not None]
        case OptionalEvent():
            return [f"(optional, of a newer onnxreg; {len(event.blobs)} blobs)"]
    return []


def _describe(event: Attest, seq: int, reader: RegistryReader, judge: SignatureJudge) -> str:
    """A statement, such as `proof of model_int8.onnx by release`; `statement` if it cannot be read."""

    def path(artifact: Digest) -> str:
        try:
            manifest = read_manifest(read_blob(reader, event.manifest), event.manifest, judge.model)
        except (IntegrityError, NotFoundError):
            return artifact.short
        return next((item.path for item in manifest.artifacts if item.digest == artifact), artifact.short)

    subject, signers = "statement", ""
    with suppress(InputError, IntegrityError, NotFoundError):
        statement = RecordedStatement.decode(event.media_type, read_blob(reader, event.statement))
        signers = ", ".join(map(str, statement.verdicts(judge, seq)))
        if statement.kind in ("signature", "benchmark"):
            subject = statement.kind
        elif (report := statement.proof()) is not None:
            subject = f"proof of {path(report.artifact)}"
    if event.artifact is not None:
        subject = f"{path(event.artifact)} {event.state}"
    return f"{subject} by {signers}" if signers else subject
