"""The statements of a log, and the signatures on them and on its lines, judged by the keys that the reader trusts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from onnxreg.registry.log.log import Log
from onnxreg.registry.signing import is_valid
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.inputs.trust_file import Trust, TrustedKey
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.dsse import (
    EVALUATED,
    MEDIA_TYPE,
    PROVEN,
    RELEASE,
    Envelope,
    Statement,
    read_sig,
    release_statement,
    released_version,
)

if TYPE_CHECKING:
    from onnxreg.schema.gates.evaluation import EvaluationDocument

BENCHMARK = "application/vnd.onnxreg.benchmark.v1+json"
"""The media type of a statement with the measured speed of a version's artifacts: `schema/formats/benchmark.py`."""
PROOF = "application/vnd.onnxreg.faithfulness.v1+json"
"""The media type of a proof that an artifact is its parent, rounded: `schema/gates/faithfulness.py`."""
KINDS = {
    "application/vnd.onnxreg.recall-delta.v1+json": "evaluation",
    "application/vnd.onnxreg.evaluation.v1+json": "evaluation",
    PROOF: "proof",
    BENCHMARK: "benchmark",
    EVALUATED: "evaluation",
    PROVEN: "proof",
    RELEASE: "signature",
}
"""The kinds of statements by media type, and for a signed one by predicate type."""
Status = Literal["trusted", "unsigned", "unknown", "revoked", "foreign", "invalid"]
"""`trusted`: valid, by a key that counts for this model. `unknown`: by a key that the trust file does not
hold, so it was not checked. `revoked`, `foreign`: by a key that no longer counts, or not for this model.
`invalid`: not what its key signed."""


@dataclass(frozen=True, slots=True)
class SignatureVerdict:
    """The judgement of a signature: its status, its key id, and the reader's name of that key."""

    status: Status
    keyid: str | None = None
    key: str | None = None
    detail: str = ""

    def __str__(self) -> str:
        match self.status:
            case "unsigned":
                return ""
            case "trusted":
                return str(self.key)
            case "unknown":
                return f"unknown key {str(self.keyid)[:12]}"
            case _:
                return f"{self.status}: {self.detail or self.key or str(self.keyid)[:12]}"

    def to_json(self) -> dict[str, str | None]:
        return {"status": self.status, "keyid": self.keyid, "key": self.key}


@dataclass(frozen=True)
class SignatureJudge:
    """Judges the signatures on one model in one registry.

    `digest_at` gives the digest of a line of the log that is judged. It is called only for a revoked key.
    """

    trust: Trust
    registry: str
    model: str
    digest_at: Callable[[int], Digest | None]

    def verdict(self, keyid: str, signature: bytes, data: bytes, seq: int) -> SignatureVerdict:
        """Judge a signature over these bytes; line `seq` carries or announces it."""
        key = self.trust.keys.get(keyid)
        if key is None:
            return SignatureVerdict("unknown", keyid)
        if not is_valid(key.key, signature, data):
            return SignatureVerdict("invalid", keyid, key.name, f"{key.name} did not sign this")
        if not key.covers(self.model):
            return SignatureVerdict("foreign", keyid, key.name, f"{key.name} does not sign {self.model}")
        if key.revoked is not None and not self._before(key, seq):
            return SignatureVerdict(
                "revoked", keyid, key.name, f"{key.name}, {key.revoked.date}: {key.revoked.reason}"
            )
        return SignatureVerdict("trusted", keyid, key.name)

    def _before(self, key: TrustedKey, seq: int) -> bool:
        """Return True if the line stood in the log before the key was revoked."""
        untils = key.revoked.until if key.revoked else ()
        return any(
            (anchor.registry, anchor.model) == (self.registry, self.model)
            and seq <= anchor.seq
            and self.digest_at(anchor.seq) == anchor.head
            for anchor in untils
        )

    def line(self, line: LogLine) -> SignatureVerdict:
        """Judge the signature of a line."""
        if line.sig is None:
            return SignatureVerdict("unsigned")
        try:
            signature = read_sig(line.sig)
        except InputError as error:
            return SignatureVerdict("invalid", detail=error.message)
        return self.verdict(signature.keyid, signature.sig, line.signed_bytes(self.registry), line.seq)

    def envelope(self, envelope: Envelope, seq: int) -> list[SignatureVerdict]:
        """Judge the signatures of a statement that line `seq` announced."""
        return [self.verdict(item.keyid, item.sig, envelope.signed, seq) for item in envelope.signatures]


def judge_lines(
    trust: Trust, registry: str, model: str, lines: Iterable[LogLine]
) -> list[tuple[LogLine, SignatureVerdict]]:
    """Judge the signature of each line of a whole log."""
    log = list(lines)
    judge = SignatureJudge(trust, registry, model, {line.seq: line.digest for line in log}.get)
    return [(line, judge.line(line)) for line in log]


def judge_for(log: Log, trust: Trust) -> SignatureJudge:
    """Make a judge for a log. The whole log is read only if a revocation names one of its lines."""
    digest_at = cache(lambda seq: log.digest_at(seq) if seq <= log.seq else None)
    return SignatureJudge(trust, log.registry, log.name, digest_at)


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
    def decode(cls, media_type: str, data: bytes) -> "RecordedStatement":
        """Raise InputError for a malformed envelope."""
        if media_type != MEDIA_TYPE:
            return cls(KINDS.get(media_type, ""), data)
        envelope = Envelope.decode(data)
        return cls(KINDS.get(envelope.predicate_type, ""), envelope.payload, envelope)

    def report(self, kind: str) -> Any:
        """The evaluation or proof that it states, None if it is of another kind. InputError if it is malformed."""
        if self.kind != kind:
            return None
        data, signed = self.data, None if self.envelope is None else Statement.decode(self.data)
        if signed is not None:
            data = canonical.encode(signed.predicate)
        if kind == "evaluation":
            from onnxreg.schema.gates.evaluation import read_evaluation

            report: Any = read_evaluation(data, "an evaluation")[1]
        else:
            from onnxreg.schema.gates.faithfulness import FaithfulnessReport

            report = FaithfulnessReport.decode(data, "a proof")
        if signed is not None and signed.digest != report.artifact:
            raise InputError(f"a signed {kind} is about another subject than its report")
        return report

    def verdicts(self, judge: SignatureJudge, seq: int) -> list[SignatureVerdict]:
        """Judge its signatures; line `seq` announced it."""
        return [] if self.envelope is None else judge.envelope(self.envelope, seq)


def evaluation_of(log: Log, event: Attest) -> "EvaluationDocument | None":
    """Read the evaluation of an attest event. Return None for another statement.

    Raise IntegrityError if it is malformed, or the event contradicts its statement.
    """
    data = log.fetch(event.statement)
    try:
        statement = RecordedStatement.decode(event.media_type, data)
        evaluation: EvaluationDocument | None = statement.report("evaluation")
    except InputError as error:
        raise IntegrityError(f"{error.message} of {log.name}", error.hint) from error
    verdict = (evaluation.artifact, evaluation.state) if evaluation else (None, None)
    if verdict != (event.artifact, event.state):
        raise IntegrityError(
            f"an attest event of {log.name} says other things than its statement {event.statement.short}...",
            "its writer made it up: do not rely on this version",
        )
    return evaluation


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """One signature on a version, or on an evaluation of an artifact (`version` is None), and its verdict.

    Line `seq` announced it by `event`.
    """

    seq: int
    event: Attest
    version: Version | None
    verdict: SignatureVerdict


def signed_statements(log: Log, trust: Trust, only: Digest | None = None) -> Iterator[SignedStatement]:
    """Yield the signatures on the versions of a model and on later evaluations, oldest first.

    A statement that is missing, or contradicts its event or manifest, is `invalid`. Skipped are those taken down, and
    proofs, which only gates read.

    Args:
        only: yield only the signatures on versions with this manifest.
    """
    judge, tombstones = judge_for(log, trust), set(log.tombstones)
    for seq, event in log.events(Attest):
        if event.media_type != MEDIA_TYPE or event.statement in tombstones:
            continue
        if only is not None and (event.manifest != only or event.artifact is not None):
            continue
        versions: list[Version | None] = [None]
        if event.artifact is None:
            versions = [
                version for version, entry in log.versions.items() if entry.manifest == event.manifest
            ]
        wrong = ""
        try:
            envelope = Envelope.decode(log.fetch(event.statement))
            if event.artifact is not None:
                evaluation_of(log, event)
            elif envelope.predicate_type != RELEASE:
                continue
            else:
                release = Statement.decode(envelope.payload)
                stated = released_version(release)
                wrong = _contradiction(log, release, stated, event.manifest)
                versions = [stated] if stated in versions else versions
            verdicts = judge.envelope(envelope, seq)
        except (InputError, IntegrityError, NotFoundError) as error:
            verdicts = [SignatureVerdict("invalid", detail=error.message)]
        for verdict in verdicts:
            if wrong and verdict.status not in ("unknown", "invalid"):
                verdict = SignatureVerdict("invalid", verdict.keyid, verdict.key, wrong)
            for version in versions:
                yield SignedStatement(seq, event, version, verdict)


def _contradiction(log: Log, release: Statement, version: Version, manifest: Digest) -> str:
    """The contradiction between the statement of a version's release and its manifest; "" if they agree."""
    if release.name != log.name:
        return f"it is about {release.name}"
    if release.digest != manifest:
        return f"it is about manifest {release.digest.short}..., not {manifest.short}..."
    entry = log.versions.get(version)
    if entry is None or entry.manifest != manifest:
        return f"it is about version {version}"
    if release != release_statement(log.name, version, log.fetch(manifest)):
        return "its recipe or certificates are not those of the manifest"
    return ""


def signatures_of(log: Log, trust: Trust, version: Version, manifest: Digest) -> list[SignatureVerdict]:
    """Judge the signatures on one version of the model."""
    return [item.verdict for item in signed_statements(log, trust, manifest) if item.version == version]
