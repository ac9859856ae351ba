"""The attestations of a model's log: evaluations, proofs and benchmarks are put on record, and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.registry.log.log import read_manifest
from onnxreg.registry.log.lookup import load, read_blob
from onnxreg.registry.read.versions import Release, read_version
from onnxreg.registry.signing import sign_statement
from onnxreg.registry.trust.signatures import (
    BENCHMARK,
    PROOF,
    RecordedStatement,
    SignatureJudge,
    judge_for,
)
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.log.events import Attest, Deltas, Event, Hold, OptionalEvent, RolloutStep, Tag
from onnxreg.schema.log.summary import effective_state
from onnxreg.schema.signing.dsse import EVALUATED, PROVEN, Statement
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.registry.log.log import Log
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.core.digest import Digest
    from onnxreg.schema.core.ref import Ref
    from onnxreg.schema.gates.statements import (
        BenchmarkDocument,
        EvaluationDocument,
        FaithfulnessReport,
        RecordedProof,
    )
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.manifest.manifest import Artifact, Manifest


def attestations(log: Log, digest: Digest, manifest: Manifest) -> list[Attest]:
    """The attestations of a manifest, or of its artifacts under another one, that were not taken down."""
    tombstones = set(log.tombstones)
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    events = (event for _, event in log.events(Attest) if event.statement not in tombstones)
    return [event for event in events if event.manifest == digest or event.artifact in artifacts]


class AttestResult(NamedTuple):
    """The artifact by its path, the state in its manifest, the evaluation, and the effective state."""

    path: str
    stated: str
    evaluation: EvaluationDocument
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
    from onnxreg.schema.gates.statements import EVALUATION, read_evaluation

    media_type, evaluation = EVALUATION, read_evaluation(report, label)
    artifact = _artifact(published, evaluation.artifact, "the report")
    evidence, source = artifact.certification.evidence, published.manifest.source
    parents = {artifact.parent, evidence.parent if evidence else None, source.digest if source else None}
    if evaluation.parent is not None and evaluation.parent not in parents and any(parents):
        raise InputError(
            f"the report compares with {evaluation.parent.short}..., which is not what {artifact.path} was made from"
        )
    if key is not None:
        media_type, report = ENVELOPE, _signed(EVALUATED, artifact.digest, report, key)
    decisions.attest(published.ref, report, media_type, reason, (artifact.digest, evaluation.state))
    before = next(item.state for item in published.states if item.path == artifact.path)
    state = effective_state(before, evaluation.state)
    return AttestResult(artifact.path, artifact.certification.state, evaluation, state)


def attest_proof(
    decisions: Decisions, published: Release, report: FaithfulnessReport, key: PrivateKey | None = None
) -> None:
    """Put a proof on record, as `attest` does an evaluation."""
    _artifact(published, report.artifact, "the proof")
    media_type, data = PROOF, report.encode()
    if key is not None:
        media_type, data = ENVELOPE, _signed(PROVEN, report.artifact, data, key)
    decisions.attest(published.ref, data, media_type)


def attest_benchmark(decisions: Decisions, published: Release, report: bytes, label: str) -> None:
    """Put a benchmark on record, as `attest` does an evaluation. No gate looks at it."""
    from onnxreg.schema.gates.statements import BenchmarkDocument

    for item in BenchmarkDocument.decode(report, label).artifacts:
        _artifact(published, item.artifact, label)
    decisions.attest(published.ref, report, BENCHMARK)


def _signed(predicate_type: str, artifact: Digest, report: bytes, key: PrivateKey) -> bytes:
    return sign_statement(Statement(predicate_type, artifact, canonical.decode(report)), key).encode()


def _artifact(published: Release, digest: Digest, subject: str) -> Artifact:
    """The artifact of a version with these bytes. InputError if there is none."""
    for artifact in published.manifest.artifacts:
        if artifact.digest == digest:
            return artifact
    raise InputError(
        f"{subject} is about {digest.short}..., which is not an artifact of {published.ref}",
        "name the version whose bytes were evaluated",
    )


def recorded_proofs(log: Log, events: Iterable[Attest], trust: Trust) -> Iterator[RecordedProof]:
    """Yield the proofs among some attestations, oldest first, with the trusted keys that validly signed each.

    The same report by the same signers counts once, at its first line. A repeated line does not make it newer.
    A malformed statement is skipped: it proves nothing. Raise NotFoundError or IntegrityError if one cannot be read.
    """
    from onnxreg.schema.gates.statements import RecordedProof

    judge, claimed = judge_for(log, trust), set[tuple[bytes, frozenset[str]]]()
    lines: dict[Digest, int] = {}
    for seq, line in log.events(Attest):
        lines.setdefault(line.statement, seq)
    for event in events:
        if event.media_type not in (PROOF, ENVELOPE):
            continue
        data = log.fetch(event.statement)
        try:
            statement = RecordedStatement.decode(event.media_type, data)
            report: FaithfulnessReport | None = statement.report("proof")
        except InputError:
            continue
        if report is None:
            continue
        verdicts = statement.verdicts(judge, lines.get(event.statement, 0))
        signers = trust.signers(item.keyid or "" for item in verdicts if item.status == "trusted")
        claims = {(report.encode(), names) for names in signers or (frozenset(),)}
        if not claims <= claimed:
            claimed |= claims
            yield RecordedProof(report, signers)


def latest_proofs(log: Log, digest: Digest, manifest: Manifest, trust: Trust) -> dict[str, RecordedProof]:
    """Return the newest proof of each artifact by its path; a signed proof comes before an unsigned one.

    Reports by other rules than this program's do not count.
    """
    children = {artifact.digest: artifact for artifact in manifest.artifacts if artifact.parent}
    latest: dict[str, RecordedProof] = {}
    proofs = recorded_proofs(log, attestations(log, digest, manifest), trust) if children else ()
    for proof in sorted(proofs, key=lambda item: bool(item.signers)):
        child = children.get(proof.report.artifact)
        parents = [parent.digest for parent in manifest.ancestors(child)] if child else []
        if child is not None and proof.report.parent in parents and proof.report.is_current:
            latest[child.path] = proof
    return latest


def proofs_by_path(reader: RegistryReader, version: Release) -> dict[str, RecordedProof]:
    """The same for a version that was read with its index file; empty if no artifact has a parent, or a statement
    cannot be read.
    """
    if any(artifact.parent for artifact in version.manifest.artifacts):
        with suppress(IntegrityError, NotFoundError):
            log = load(reader, version.name, index=version.index)
            return latest_proofs(log, version.digest, version.manifest, load_trust())
    return {}


def read_benchmarks(reader: RegistryReader, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a version, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    from onnxreg.schema.gates.statements import BenchmarkDocument

    version = read_version(reader, ref)
    log = load(reader, version.name)
    events = attestations(log, version.digest, version.manifest)
    documents = (log.fetch(event.statement) for event in events if event.media_type == BENCHMARK)
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]


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
        case Hold():
            return [", ".join(event.paths or ["everything"])]
        case Deltas():
            return [f"(deltas: {max(0, len(event.blobs) - 1)})"]
        case Tag() | RolloutStep():
            share = []
            if isinstance(event, RolloutStep):
                share = ["halted" if event.percent is None else f"{event.percent:g} %"]
                share += [f"of {event.where}"] if event.where else []
            digests = {"policy": event.policy, "evidence": event.evidence}
            return share + [f"{key} {digest.short}" for key, digest in digests.items() if digest is not None]
        case OptionalEvent():
            return [f"(optional, of a newer onnxreg; {len(event.blobs)} blobs)"]
        case _:
            return []


def _describe(event: Attest, seq: int, reader: RegistryReader, judge: SignatureJudge) -> str:
    """A statement, such as `proof of model_int8.onnx by release`; `statement` if it cannot be read."""
    subject, signers, artifact = "statement", "", event.artifact
    with suppress(InputError, IntegrityError, NotFoundError):
        statement = RecordedStatement.decode(event.media_type, read_blob(reader, event.statement))
        signers = ", ".join(map(str, statement.verdicts(judge, seq)))
        if statement.kind in ("signature", "benchmark"):
            subject = statement.kind
        elif (report := statement.report("proof")) is not None:
            artifact = report.artifact
    path = artifact.short if artifact else ""
    with suppress(IntegrityError, NotFoundError):
        manifest = read_manifest(read_blob(reader, event.manifest), event.manifest, judge.model)
        path = next((item.path for item in manifest.artifacts if item.digest == artifact), path)
    if artifact is not None:
        subject = f"{path} {event.state}" if event.artifact else f"proof of {path}"
    return f"{subject} by {signers}" if signers else subject
