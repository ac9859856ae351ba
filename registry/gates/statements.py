"""The attestations of a model's log: record and read evaluations, proofs and benchmarks.

Also the status of each channel: its version, since when, moved by whom and why, and signed by whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.registry.log.log import read_manifest
from onnxreg.registry.log.lookup import Release, load, read_blob, read_version
from onnxreg.registry.signing import sign_statement
from onnxreg.registry.trust.signatures import (
    BENCHMARK,
    PROOF,
    RecordedStatement,
    SignatureJudge,
    attestations,
    judge_for,
    recorded_proofs,
    signatures_of,
)
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG
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
    from onnxreg.schema.core.ref import Ref, Version
    from onnxreg.schema.gates.statements import (
        BenchmarkDocument,
        EvaluationDocument,
        FaithfulnessReport,
        RecordedProof,
    )
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.log.logline import LogLine
    from onnxreg.schema.log.state import Rollout
    from onnxreg.schema.manifest.manifest import Artifact, Manifest


class AttestResult(NamedTuple):
    """The path of an artifact, its state in the manifest, the evaluation, and the state after the evaluation."""

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
    """Record an evaluation as a blob and an event, signed if a key is given. A repeated call changes nothing.

    Raise InputError if the report is malformed, is about bytes that are not an artifact of the version, or
    was made against another parent than the artifact's. `label` is the name of the report in errors.
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
    """Record a proof as `attest` records an evaluation."""
    _artifact(published, report.artifact, "the proof")
    media_type, data = PROOF, report.encode()
    if key is not None:
        media_type, data = ENVELOPE, _signed(PROVEN, report.artifact, data, key)
    decisions.attest(published.ref, data, media_type)


def attest_benchmark(decisions: Decisions, published: Release, report: bytes, label: str) -> None:
    """Record a benchmark as `attest` records an evaluation. No gate uses benchmarks."""
    from onnxreg.schema.gates.statements import BenchmarkDocument

    for item in BenchmarkDocument.decode(report, label).artifacts:
        _artifact(published, item.artifact, label)
    decisions.attest(published.ref, report, BENCHMARK)


def _signed(predicate_type: str, artifact: Digest, report: bytes, key: PrivateKey) -> bytes:
    return sign_statement(Statement(predicate_type, artifact, canonical.decode(report)), key).encode()


def _artifact(published: Release, digest: Digest, subject: str) -> Artifact:
    """The artifact of a version that has this digest. Raise InputError if no artifact has it."""
    for artifact in published.manifest.artifacts:
        if artifact.digest == digest:
            return artifact
    raise InputError(
        f"{subject} is about {digest.short}..., which is not an artifact of {published.ref}",
        "name the version whose bytes were evaluated",
    )


def latest_proofs(log: Log, digest: Digest, manifest: Manifest, trust: Trust) -> dict[str, RecordedProof]:
    """Return the newest proof of each artifact, by path; any signed proof is preferred to an unsigned proof.

    Reports that were made by other rules than this program's are ignored.
    """
    children = {artifact.digest: artifact for artifact in manifest.artifacts if artifact.parent}
    latest: dict[str, RecordedProof] = {}
    proofs = recorded_proofs(log, attestations(log, digest, manifest), trust) if children else ()
    for proof in sorted(proofs, key=lambda item: bool(item.signers)):
        child = children.get(proof.report.artifact)
        parents = [parent.digest for parent in manifest.ancestors(child)] if child else []
        if child and proof.report.parent in parents and proof.report.is_current:
            latest[child.path] = proof
    return latest


def proofs_by_path(reader: RegistryReader, version: Release) -> dict[str, RecordedProof]:
    """Return `latest_proofs` of a version that was read with its index file; empty if no artifact has a parent, or
    if a statement cannot be read.
    """
    if any(artifact.parent for artifact in version.manifest.artifacts):
        with suppress(IntegrityError, NotFoundError):
            log = load(reader, version.name, index=version.index)
            return latest_proofs(log, version.digest, version.manifest, load_trust())
    return {}


def read_benchmarks(reader: RegistryReader, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks of a version that its model's log records, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    from onnxreg.schema.gates.statements import BenchmarkDocument

    version = read_version(reader, ref)
    log = load(reader, version.name)
    events = attestations(log, version.digest, version.manifest)
    documents = (log.fetch(event.statement) for event in events if event.media_type == BENCHMARK)
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]


def word_of(event: Event) -> str:
    """The word for the kind of an event; a move with evidence is called a promotion."""
    return "promote" if isinstance(event, Tag) and event.evidence is not None else event.kind


def words(event: Event, seq: int, reader: RegistryReader, judge: SignatureJudge) -> list[str]:
    """The words that describe the event of line `seq`, without channel and version; `judge` names signers of statements."""
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
    return []


def _describe(event: Attest, seq: int, reader: RegistryReader, judge: SignatureJudge) -> str:
    """Describe a statement, such as `proof of model_int8.onnx by release`; `statement` if the blob cannot be read."""
    subject, signers, artifact = "statement", "", event.artifact
    with suppress(InputError, IntegrityError, NotFoundError):
        statement = RecordedStatement.decode(event.media_type, read_blob(reader, event.statement))
        signers = ", ".join(map(str, statement.verdicts(judge, seq)))
        if statement.kind in ("signature", "benchmark"):
            subject = statement.kind
        elif (report := statement.report("proof")) is not None:
            artifact = report.artifact
    if artifact is not None:
        path = artifact.short
        with suppress(IntegrityError, NotFoundError):
            manifest = read_manifest(read_blob(reader, event.manifest), event.manifest, judge.model)
            path = next((item.path for item in manifest.artifacts if item.digest == artifact), path)
        subject = f"{path} {event.state}" if event.artifact else f"proof of {path}"
    return f"{subject} by {signers}" if signers else subject


class ChannelStatus(NamedTuple):
    """The version of a channel, and the line that moved the channel to this version.

    `signed` names the signers: `the move by release, the version by release`. `gate` is empty if no policy governs the
    channel, `met` if its version passes, else the reason why the channel does not resolve.
    """

    tag: str
    version: Version
    line: LogLine
    signed: str
    gate: str
    rollout: Rollout | None


def in_production(reader: RegistryReader, log: Log, trust: Trust) -> Iterator[ChannelStatus]:
    """Yield the status of each channel of a model, judged by `trust`. Raise the errors of reading the model's log."""
    seqs = {channel.seq for channel in log.channels.values()}
    lines = {line.seq: line for line in log.lines() if line.seq in seqs}
    judge = judge_for(log, trust)
    for tag, channel in sorted(log.channels.items()):
        line, version = lines[channel.seq], channel.version
        verdicts = dict.fromkeys(map(str, signatures_of(log, trust, version, channel.manifest)))
        signers = {"the move": str(judge.line(line)), "the version": ", ".join(verdicts)}
        signed = ", ".join(f"{part} by {signer}" for part, signer in signers.items() if signer)
        gate = _gate(reader, log, tag, trust)
        yield ChannelStatus(tag, version, line, signed, gate, log.rollouts.get(tag))


def _gate(reader: RegistryReader, log: Log, tag: str, trust: Trust) -> str:
    """The `gate` of a channel; see `ChannelStatus`."""
    if log.versions[log.channels[tag].version].yanked:
        return f"{log.channels[tag].version} is yanked"
    try:
        if reader.read_index(POLICY_LOG) is None:
            return ""
        from onnxreg.registry.gates.enforce import ChannelGate, read_policies

        gate = ChannelGate(log, read_policies(reader), tag, trust)
        gate.check()
    except RegError as error:
        return error.message
    return "met" if gate.rules else ""
