"""Putting a later evaluation on record: it must be about bytes that the version holds, and made against their parent."""

from dataclasses import dataclass

from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.signing.crypto import PrivateKey
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.formats.benchmark import MEDIA_TYPE as BENCHMARK
from onnxreg.schema.formats.benchmark import BenchmarkDocument
from onnxreg.schema.gates.evaluation import Evaluation, read_evaluation, statement
from onnxreg.schema.log.artifact_state import effective_state
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.signing.dsse import Envelope, pae
from onnxreg.schema.signing.statement import PAYLOAD_TYPE


@dataclass(frozen=True)
class AttestResult:
    """The version, the artifact by its path, what its manifest states, what the evaluation says, and the effective state."""

    ref: Ref
    path: str
    stated: str
    found: Evaluation
    state: str


def attest(
    decisions: Decisions,
    published: PublishedVersion,
    report: bytes,
    key: PrivateKey | None = None,
    reason: str | None = None,
    what: str = "report",
) -> AttestResult:
    """Put a report on record, as a blob and an event. Twice is as good as once.

    Raise InputError if the report is none, is about bytes that are no artifact of the version, or was made
    against another parent than the artifact's; `what` is how errors call it.
    """
    media_type, found = read_evaluation(report, what)
    ref, artifact = published.ref, _about(published.manifest, found, published.ref)
    if key is not None:
        payload = statement(report, found.artifact)
        signed = Envelope(PAYLOAD_TYPE, payload, (key.sign(pae(PAYLOAD_TYPE, payload)),))
        media_type, report = ENVELOPE, signed.encode()
    decisions.attest(ref, report, media_type, reason, (found.artifact, found.state))
    states = {each.path: each.state for each in published.states}
    state = effective_state(states[artifact.path], found.state)
    return AttestResult(ref, artifact.path, artifact.certification.state, found, state)


def attest_benchmark(decisions: Decisions, ref: Ref, manifest: Manifest, report: bytes, what: str) -> None:
    """Put a benchmark on record, as a blob and an event that no gate looks at. Twice is as good as once.

    Raise InputError if the report is none, or is about bytes that are no artifact of the version.
    """
    found = BenchmarkDocument.decode(report, what)
    known = {artifact.digest for artifact in manifest.artifacts}
    if stranger := next((each for each in found.artifacts if each.artifact not in known), None):
        raise InputError(f"{what} is about {stranger.artifact.short}..., which is no artifact of {ref}")
    decisions.attest(ref, report, BENCHMARK)


def _about(manifest: Manifest, found: Evaluation, ref: Ref) -> Artifact:
    artifact = next((each for each in manifest.artifacts if each.digest == found.artifact), None)
    if artifact is None:
        raise InputError(
            f"the report is about {found.artifact.short}..., which is no artifact of {ref}",
            "name the version whose bytes were evaluated",
        )
    parents = _parents(manifest, artifact)
    if found.parent is not None and parents and found.parent not in parents:
        raise InputError(
            f"the report compares with {found.parent.short}..., which is not what {artifact.path} was made from"
        )
    return artifact


def _parents(manifest: Manifest, artifact: Artifact) -> set[Digest]:
    """What an artifact may be compared with: the artifact or checkpoint that it was made from."""
    evidence, source = artifact.certification.evidence, manifest.source
    known = {artifact.parent, evidence.parent if evidence else None, source.digest if source else None}
    return {digest for digest in known if digest is not None}
