"""The signers of later evaluations, and what each signature is worth."""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.gates.gate_history import evaluation_of
from onnxreg.registry.log.index_file import read_line
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.trust.releases import judge_for
from onnxreg.registry.trust.signatures import SignatureVerdict
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest
from onnxreg.schema.signing.dsse import MEDIA_TYPE, Envelope


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
    for line in ledger.skim():
        event = read_line(line.raw, ledger.name).event if line.kind == Attest.kind else None
        if not isinstance(event, Attest) or event.media_type != MEDIA_TYPE:
            continue
        if event.artifact is not None and event.statement not in ledger.tombstones:
            yield event, event.artifact, line.seq


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
