"""Lines of a log in a few words: the kind of an event, what it says, and for an attestation the kind of its statement,
its artifact, and who signed it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxreg.registry.log.lookup import read_blob, read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import SignatureJudge
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest, Deltas, Event, Hold, OptionalEvent, RolloutStep, Tag
from onnxreg.schema.log.logline import LogLine, LogLineHeader
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.signing.dsse import Envelope, is_release

if TYPE_CHECKING:
    from onnxreg.schema.gates.faithfulness import FaithfulnessReport

BENCHMARK = "application/vnd.onnxreg.benchmark.v1+json"
"""The media type of a statement with the measured speed of a version's artifacts: `schema/formats/benchmark.py`."""
PROOF = "application/vnd.onnxreg.faithfulness.v1+json"
"""The media type of a proof that an artifact is its parent, rounded: `schema/gates/faithfulness.py`."""


def word_of(event: Event) -> str:
    """The kind of an event for people: a move with evidence is a promotion."""
    return "promote" if isinstance(event, Tag) and event.evidence is not None else event.kind


class StatementReader:
    """Reads what the attestations of a model's log state.

    Args:
        reader: the registry that has the statements and manifests.
        log: every line of the model's log.
        trust: the reader's keys, which give signers their names.
    """

    def __init__(
        self, reader: RegistryReader, name: str, log: Sequence[LogLine | LogLineHeader], trust: Trust
    ) -> None:
        self._reader = reader
        self._name = name
        digests = {line.seq: line.digest for line in log}
        self._judge = SignatureJudge(trust, reader.registry_id, name, digests.get)

    def words(self, event: Event, seq: int) -> list[str]:
        """The words of the event of line `seq` beside its channel and its version."""
        if isinstance(event, Attest):
            return [self.describe(event, seq)]
        if isinstance(event, Deltas):
            count = max(0, len(event.blobs) - 1)
            return [f"({count} delta{'' if count == 1 else 's'})"]
        if isinstance(event, RolloutStep):
            share = "halted" if event.percent is None else f"{event.percent:g} %"
            return [share, *([f"of {event.where}"] if event.where else []), *_proof_of(event)]
        if isinstance(event, OptionalEvent):
            return [f"(optional, of a newer onnxreg; {len(event.blobs)} blobs)"]
        if isinstance(event, Hold):
            return [", ".join(event.paths or ["everything"])]
        return _proof_of(event) if isinstance(event, Tag) else []

    def describe(self, event: Attest, seq: int) -> str:
        """The statement of line `seq`, such as `proof of model_int8.onnx by release`; `statement` if it cannot be read."""
        try:
            subject, signers = self._read(event, seq)
        except (InputError, IntegrityError, NotFoundError):
            subject, signers = "statement", ""
        if event.artifact is not None:
            subject = f"{self._path(event.manifest, event.artifact)} {event.state}"
        return f"{subject} by {signers}" if signers else subject

    def _read(self, event: Attest, seq: int) -> tuple[str, str]:
        """The subject of a statement, and its signers. Raise NotFoundError, IntegrityError or InputError if it is
        missing, damaged or malformed.
        """
        if event.media_type == BENCHMARK:
            return "benchmark", ""
        if event.media_type == PROOF:
            from onnxreg.schema.gates.faithfulness import FaithfulnessReport

            report = FaithfulnessReport.decode(read_blob(self._reader, event.statement), "a proof")
            return self._proof(event, report), ""
        if event.media_type != ENVELOPE:
            return "statement", ""
        envelope = Envelope.decode(read_blob(self._reader, event.statement))
        verdicts = (
            self._judge.verdict(one.keyid, one.sig, envelope.signed, seq) for one in envelope.signatures
        )
        return self._subject(event, envelope), ", ".join(map(str, verdicts))

    def _subject(self, event: Attest, envelope: Envelope) -> str:
        if is_release(envelope.payload_type, envelope.payload):
            return "signature"
        from onnxreg.schema.gates.faithfulness import read_statement

        report = read_statement(envelope.payload)
        return self._proof(event, report) if report else "statement"

    def _proof(self, event: Attest, report: "FaithfulnessReport") -> str:
        return f"proof of {self._path(event.manifest, report.artifact)}"

    def _path(self, digest: Digest, artifact: Digest) -> str:
        """The path of an artifact in a manifest, or its short digest if the manifest cannot be read."""
        try:
            manifest = read_manifest(read_blob(self._reader, digest), digest, self._name)
        except (IntegrityError, NotFoundError):
            return artifact.short
        return next((item.path for item in manifest.artifacts if item.digest == artifact), artifact.short)


def _proof_of(event: Tag | RolloutStep) -> list[str]:
    """The policy that a promotion met, and its evidence."""
    digests = {"policy": event.policy, "evidence": event.evidence}
    return [f"{key} {digest.short}" for key, digest in digests.items() if digest is not None]
