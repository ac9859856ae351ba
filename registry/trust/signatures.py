"""The signatures on log lines and on recorded statements: evaluations, proofs, benchmarks, releases.

The reader's trust file decides which signatures count and which are required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from onnxreg.registry.log.contents import Release
from onnxreg.registry.log.log import LocatedVersion, Log, load, log_of, read_blob, read_manifest
from onnxreg.registry.store.protocol import MissingBlobError, RegistryReader, StoredObject
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError, about, fault
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.inputs.trust_file import SignatureRequirement, Trust
from onnxreg.schema.log.events import (
    BENCHMARK,
    Attest,
    Deltas,
    Drop,
    Event,
    Hold,
    LogLine,
    OptionalEvent,
    RolloutStep,
    Tag,
    Timing,
)
from onnxreg.schema.log.state import effective_state
from onnxreg.schema.signing import dsse

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.schema.gates.policy import PolicyLog
    from onnxreg.schema.gates.statements import (
        BenchmarkDocument,
        EvaluationDocument,
        FaithfulnessReport,
        RecordedProof,
    )
    from onnxreg.schema.manifest.manifest import Artifact, Manifest

SIGNERS_ADVICE = "reg log shows who signed which line; do not use it until you know why"
PROOF = "application/vnd.onnxreg.faithfulness.v1+json"
KINDS = {
    "application/vnd.onnxreg.evaluation.v1+json": "evaluation",
    PROOF: "proof",
    BENCHMARK: "benchmark",
    dsse.EVALUATED: "evaluation",
    dsse.PROVEN: "proof",
    dsse.RELEASE: "signature",
}
"""The kind of a statement, by its media type or, if it is signed, by its predicate type."""
Status = Literal["trusted", "unsigned", "unknown", "revoked", "foreign", "invalid"]
"""`trusted`: the signature is valid, and its key is trusted for this model. `unknown`: the trust file lacks the key.
`revoked`: the key is revoked. `foreign`: the key is trusted for other models. `invalid`: the key did not sign this.
"""


class SignatureVerdict(Struct, frozen=True):
    """The result of a `SignatureJudge` for one signature."""

    status: Status
    keyid: str | None = None
    key: str | None = None  # the reader's name of the key
    detail: str = ""

    def __str__(self) -> str:
        words = {"unsigned": "", "trusted": str(self.key), "unknown": f"unknown key {str(self.keyid)[:12]}"}
        return words.get(self.status, f"{self.status}: {self.detail or self.key or str(self.keyid)[:12]}")

    def to_json(self) -> dict[str, str | None]:
        return {"status": self.status, "keyid": self.keyid, "key": self.key}


class SignatureJudge(NamedTuple):
    """Judges the signatures on one model in one registry. The trust file `trust` says which keys count.

    `digest_at` returns the digest of a log line.
    """

    trust: Trust
    registry: str
    model: str
    digest_at: Callable[[int], Digest | None]

    def verdict(self, keyid: str, signature: bytes, data: bytes, seq: int) -> SignatureVerdict:
        """Judge a signature over `data`. The signature is in log line `seq`, or in a statement that the line names."""
        if (key := self.trust.keys.get(keyid)) is None:
            return SignatureVerdict("unknown", keyid)
        from onnxreg.registry.signing import is_valid

        if not is_valid(key.key, signature, data):
            return SignatureVerdict("invalid", keyid, key.name, f"{key.name} did not sign this")
        if not key.covers(self.model):
            return SignatureVerdict("foreign", keyid, key.name, f"{key.name} does not sign {self.model}")
        if key.revoked is not None and not any(
            (anchor.registry, anchor.model) == (self.registry, self.model)
            and seq <= anchor.seq  # the line was in the log before the key was revoked
            and self.digest_at(anchor.seq) == anchor.head
            for anchor in key.revoked.until
        ):
            detail = f"{key.name}, {key.revoked.date}: {key.revoked.reason}"
            return SignatureVerdict("revoked", keyid, key.name, detail)
        return SignatureVerdict("trusted", keyid, key.name)

    def line(self, line: LogLine) -> SignatureVerdict:
        if line.sig is None:
            return SignatureVerdict("unsigned")
        try:
            signature = dsse.read_sig(line.sig)
        except InputError as error:
            return SignatureVerdict("invalid", detail=error.message)
        covered = dsse.signed_bytes(self.registry, line.to_json())
        return self.verdict(signature.keyid, signature.sig, covered, line.seq)

    def envelope(self, envelope: dsse.Envelope | None, seq: int) -> list[SignatureVerdict]:
        """Judge the signatures of a statement that line `seq` names. Return [] for an unsigned statement."""
        if envelope is None:
            return []
        return [self.verdict(item.keyid, item.sig, envelope.signed, seq) for item in envelope.signatures]


def judge_for(log: Log, trust: Trust) -> SignatureJudge:
    digest_at = cache(lambda seq: log.digest_at(seq) if seq <= log.seq else None)
    return SignatureJudge(trust, log.registry, log.name, digest_at)


def judge_lines(
    trust: Trust, registry: str, model: str, log: Sequence[LogLine]
) -> list[tuple[LogLine, SignatureVerdict]]:
    judge = SignatureJudge(trust, registry, model, {line.seq: line.digest for line in log}.get)
    return [(line, judge.line(line)) for line in log]


class RecordedStatement(NamedTuple):
    """A statement of a log: its kind (a value of `KINDS`, or ""), its document and, if it is signed, its envelope."""

    kind: str
    data: bytes
    envelope: dsse.Envelope | None = None

    @classmethod
    def decode(cls, media_type: str, data: bytes) -> RecordedStatement:
        """Decode a statement. Raise InputError if the envelope is malformed."""
        if media_type != dsse.MEDIA_TYPE:
            return cls(KINDS.get(media_type, ""), data)
        envelope = dsse.Envelope.decode(data)
        return cls(KINDS.get(envelope.predicate_type, ""), envelope.payload, envelope)

    def report(self, kind: str) -> Any:
        """Return the report of a statement of this kind, else None. Raises InputError if the report is malformed."""
        if self.kind != kind:
            return None
        from onnxreg.schema.gates.statements import FaithfulnessReport, read_evaluation

        signed = None if self.envelope is None else dsse.Statement.decode(self.data)
        data = self.data if signed is None else canonical.encode(signed.predicate)
        read: Any = read_evaluation if kind == "evaluation" else FaithfulnessReport.decode
        report = read(data, f"the {kind}")
        if signed is not None and signed.digest != report.artifact:
            raise InputError(f"a signed {kind} is about another subject than its report")
        return report


def evaluation_of(log: Log, event: Attest) -> EvaluationDocument | None:
    """Return an event's evaluation, or None. Raises IntegrityError if it is malformed or contradicts the event."""
    data = log.fetch(event.statement)
    try:
        statement = RecordedStatement.decode(event.media_type, data)
        evaluation: EvaluationDocument | None = statement.report("evaluation")
        if evaluation and evaluation.external_data and evaluation.state != "refused":
            with suppress(MissingBlobError):
                log.read_manifest(event.manifest).check_weights(evaluation.external_data)
    except InputError as error:
        raise IntegrityError(f"{error.message} of {log.name}", error.hint) from error
    verdict = (evaluation.artifact, evaluation.state) if evaluation else (None, None)
    if verdict != (event.artifact, event.state):
        other = f"says other things than its statement {event.statement.short}..."
        made_up = "its writer made it up: do not rely on this version"
        raise IntegrityError(f"an attest event of {log.name} {other}", made_up)
    return evaluation


def check_timing(log: Log, event: Timing) -> None:
    """Raise IntegrityError if an event and its benchmark document state different speeds."""
    from onnxreg.schema.gates.statements import BenchmarkDocument

    (document,) = event.blobs
    with about(f"a timing event of {log.name} cannot be checked", IntegrityError):
        speeds = BenchmarkDocument.decode(log.fetch(document.digest), "the benchmark").speeds
    if speeds != event.speeds:
        raise IntegrityError(
            f"a timing event of {log.name} says other speeds than its benchmark {document.digest.short}...",
            "its writer made them up: do not rely on them",
        )


def audit_timings(log: Log) -> Iterator[tuple[str, str]]:
    """Yield a fault (kind, description) for each timing event whose speeds differ from its document."""
    tombstones = set(log.tombstones)
    for _, event in log.events(Timing):
        try:
            if event.blobs[0].digest not in tombstones:
                check_timing(log, event)
        except RegError as error:
            yield fault("statement", error)


def attestations(log: Log, digest: Digest, manifest: Manifest) -> list[Attest]:
    """List the events about a manifest or its artifacts, without events whose statement was taken down.

    An event about another manifest counts if its artifact is also in this manifest, and is a single file. If a runtime
    also loads other files, such as external data, the other manifest may have different ones: only a refusal counts.
    """
    tombstones = set(log.tombstones)
    artifacts = {item.digest for item in manifest.artifacts}
    single = {item.digest for item in manifest.artifacts if item.own_size == item.size}
    events = (event for _, event in log.statements() if event.statement not in tombstones)
    return [
        event
        for event in events
        if event.manifest == digest or event.artifact in (artifacts if event.state == "refused" else single)
    ]


def recorded_proofs(
    log: Log, events: Iterable[Attest], manifest: Manifest, trust: Trust
) -> Iterator[RecordedProof]:
    """Yield the proofs that these events name, oldest first, with the names of the trusted keys that signed them.

    If several statements have the same proof, a later one counts only if it has a new trusted signer, or if it is the
    first without any. Malformed statements are skipped, and proofs about other weights than those of the manifest.
    """
    from onnxreg.schema.gates.statements import RecordedProof

    judge, claimed = judge_for(log, trust), set[tuple[bytes, frozenset[str]]]()
    lines = {event.statement: seq for seq, event in reversed([*log.statements()])}
    for event in events:
        report, verdicts = None, []
        if event.media_type in (PROOF, dsse.MEDIA_TYPE):
            data = log.fetch(event.statement)
            with suppress(InputError):
                statement = RecordedStatement.decode(event.media_type, data)
                if (proof := statement.report("proof")) is not None:
                    manifest.check_weights(proof.external_data)
                    verdicts = judge.envelope(statement.envelope, lines.get(event.statement, 0))
                    report = proof
        if report is not None:
            signers = trust.signers(item.keyid or "" for item in verdicts if item.status == "trusted")
            claims = {(report.encode(), names) for names in signers or (frozenset(),)}
            if not claims <= claimed:
                claimed |= claims
                yield RecordedProof(report, signers)


class SignedStatement(NamedTuple):
    """A signature and the verdict on it. `event` is in line `seq`. `version` is None for an evaluation."""

    seq: int
    event: Attest
    version: Version | None
    verdict: SignatureVerdict

    @property
    def subject(self) -> str:
        """The subject of the signature: `version`, or an artifact's digest and its state after the evaluation."""
        artifact = self.event.artifact
        return "version" if artifact is None else f"{artifact.short} is {self.event.state}"

    def to_json(self) -> dict[str, Any]:
        about = {"artifact": self.event.artifact, "state": self.event.state} if self.version is None else {}
        return {**about, **self.verdict.to_json(), "seq": self.seq}


def signed_statements(log: Log, trust: Trust, only: Digest | None = None) -> Iterator[SignedStatement]:
    """Yield the signatures on the versions of a model and on later evaluations, oldest first.

    A signature is `invalid` if its statement is missing, or contradicts the event or manifest. Proofs are skipped, and
    so are statements that were taken down, or are about a dropped version. If `only` is given, only signatures on
    versions with this manifest are yielded.
    """
    judge, tombstones = judge_for(log, trust), set(log.tombstones)
    for seq, event in log.statements():
        is_release = event.artifact is None
        if event.media_type != dsse.MEDIA_TYPE or event.statement in tombstones:
            continue
        if only is not None and not (is_release and event.manifest == only):
            continue
        entries = log.versions.items() if is_release else ()
        versions = [version for version, entry in entries if entry.manifest == event.manifest]
        wrong = ""
        try:
            envelope = dsse.Envelope.decode(log.fetch(event.statement))
            if not is_release:
                evaluation_of(log, event)
            elif envelope.predicate_type != dsse.RELEASE:
                continue
            else:
                stated, wrong = _check_release(log, event, dsse.Statement.decode(envelope.payload))
                if stated not in log.versions and any(item.version == stated for _, item in log.events(Drop)):
                    continue
                versions = [stated] if stated in versions else versions
            verdicts = judge.envelope(envelope, seq)
        except (InputError, IntegrityError, NotFoundError) as error:
            verdicts = [SignatureVerdict("invalid", detail=error.message)]
        for verdict in verdicts:
            if wrong and verdict.status not in ("unknown", "invalid"):
                verdict = SignatureVerdict("invalid", verdict.keyid, verdict.key, wrong)
            for version in versions if is_release else (None,):
                yield SignedStatement(seq, event, version, verdict)


def _check_release(log: Log, event: Attest, release: dsse.Statement) -> tuple[Version, str]:
    """Return the version that a release statement names. Also return the statement's error, or "" if it is correct."""
    version = dsse.released_version(release)
    entry, digest = log.versions.get(version), event.manifest
    if entry is None or (release.name, release.digest) != (log.name, digest):
        return version, f"it is about {release.name}:{version} with manifest {release.digest.short}..."
    if entry.manifest != digest:
        return version, f"it is about version {version}"
    is_same = release.predicate == dsse.release_statement(log.name, version, log.fetch(digest)).predicate
    return version, "" if is_same else "its recipe or certificates are not those of the manifest"


def signatures_of(log: Log, trust: Trust, version: Version, manifest: Digest) -> list[SignatureVerdict]:
    return [item.verdict for item in signed_statements(log, trust, manifest) if item.version == version]


def enforce(trust: Trust, reader: RegistryReader, name: str, index: StoredObject) -> None:
    """Raise IntegrityError if a log lacks a required signature, or if its lines contradict the state in `index`."""
    if name == POLICY_LOG:
        from onnxreg.schema.gates.policy import PolicyLog

        enforce_policies(trust, PolicyLog.decode(index.data, reader.registry_id))
        return
    log = log_of(reader, name, index)
    check_lines(trust, log.registry, name, log.lines())
    log.prove()


def enforce_policies(trust: Trust, log: PolicyLog) -> None:
    """Check the signatures of the log of policies.

    Raises IntegrityError if a signature that the trust file requires is missing, or if the trust file requires a policy
    and there is none. If a policy names keys, one of these keys must sign the next policy. This rule is checked if the
    trust file requires signed lines, or if it has all these keys and none of them is revoked.
    """
    if not log.lines and trust.governs(log.registry):
        raise IntegrityError("it has no policy, and must have one", SIGNERS_ADVICE)
    check_lines(trust, log.registry, POLICY_LOG, log.lines)
    is_demanded = any(need.lines for need in trust.required(log.registry, POLICY_LOG))
    valid = {name for key in trust.keys.values() if key.revoked is None for name in (key.name, key.key.id)}
    for named, problem in unauthorized_policies(trust, log.registry, log.lines):
        if is_demanded or named <= valid:
            raise IntegrityError(problem, "ask the registry's owner who set that policy")


def unauthorized_policies(
    trust: Trust, registry: str, lines: Sequence[LogLine]
) -> Iterator[tuple[frozenset[str], str]]:
    """Find policies without a signature by a key that the previous policy names.

    For each, yield the keys that the previous policy names, and the text of an error. A signature counts if the trust
    file trusts its key, even if only for other models. Raises IntegrityError if a policy is unreadable.
    """
    from onnxreg.schema.gates.policy import policy_of

    for (before, _), (line, verdict) in pairwise(judge_lines(trust, registry, POLICY_LOG, lines)):
        named = frozenset(name for rule in policy_of(before).rules for name in rule.signed_by)
        signers = trust.signers([verdict.keyid or ""] if verdict.status in ("trusted", "foreign") else [])
        if named and not any(named & names for names in signers):
            keys, why = ", ".join(sorted(named)), str(verdict) or "it is unsigned"
            text = f"policy {line.seq} is not signed by a key that policy {before.seq} names ({keys}): {why}"
            yield named, text


def check_lines(trust: Trust, registry: str, name: str, lines: Iterable[LogLine]) -> None:
    """Raise IntegrityError at the first line with a wrong signature, or without a required signature."""
    log = list(lines)
    judged = judge_lines(trust, registry, name, log)
    needs = [need for need in trust.required(registry, name) if need.lines]
    exempt = {need: _exempt(need, registry, name, log) for need in needs}
    for line, verdict in judged:
        if verdict.status == "invalid":
            wrong = f"the signature of line {line.seq} of {name} is wrong: {verdict.detail}"
            raise IntegrityError(wrong, SIGNERS_ADVICE)
        if any(line.seq > exempt[need] and not _counts(verdict, need) for need in needs):
            lack = f"line {line.seq} of {name} must be signed by a trusted key"
            raise IntegrityError(f"{lack}: {str(verdict) or 'it is unsigned'}", SIGNERS_ADVICE)


def _exempt(need: SignatureRequirement, registry: str, name: str, lines: Sequence[LogLine]) -> int:
    """Return how many lines at the start of a log need no signature.

    If `need.after` has an anchor for the log, these are the lines up to the anchor, and IntegrityError is raised if the
    log lacks it. Otherwise, they are the lines before `need.since`, but never the last line of the log.
    """
    anchor = next((point for point in need.after if (point.registry, point.model) == (registry, name)), None)
    if anchor is None:
        return min(need.since, len(lines)) - 1
    digest = lines[anchor.seq - 1].digest if 0 < anchor.seq <= len(lines) else None
    if digest != anchor.head:
        which = "has no such line" if digest is None else f"has {digest.short}... there"
        must = f"line {anchor.seq} must be {anchor.head.short}..., it {which}"
        raise IntegrityError(f"{name} is not the log that the trust file names: {must}", SIGNERS_ADVICE)
    return anchor.seq


def audit_signatures(trust: Trust, log: Log) -> Iterator[tuple[str, str]]:
    """Yield each fault (kind, description) in a model's log: a wrong signature, or a missing required signature."""
    try:
        check_lines(trust, log.registry, log.name, log.lines())
        statements = list(signed_statements(log, trust))
    except RegError as error:
        yield fault("signature", error)
        return
    for item in statements:
        if item.verdict.status == "invalid":
            artifact = item.event.artifact
            subject = f"the evaluation of {artifact.short}..." if artifact else str(item.version)
            detail = f"the signature on {subject} in line {item.seq} is wrong: {item.verdict.detail}"
            yield "signature", detail
    for version in unsigned_versions(trust, log, statements):
        yield "signature", f"version {version} is not signed by a trusted key, as it must be"


def unsigned_versions(trust: Trust, log: Log, statements: Sequence[SignedStatement]) -> list[Version]:
    """List the usable versions that lack a required signature. `statements` has all signatures of the model."""
    needs = [need for need in trust.required(log.registry, log.name) if need.versions]
    good = [{item.version for item in statements if _counts(item.verdict, need)} for need in needs]
    entries = log.versions.items()
    return [item for item, entry in entries if entry.usable and any(item not in signed for signed in good)]


def check_copied(log: Log, trust: Trust) -> None:
    """Check a log before it is copied. Raise IntegrityError if a line or version lacks a required signature."""
    if trust.concerns(log.registry, log.name):
        for _, problem in audit_signatures(trust, log):
            raise IntegrityError(f"{log.name} is not copied: {problem}", SIGNERS_ADVICE)


def require_signed(reader: RegistryReader, located: LocatedVersion, trust: Trust) -> None:
    """Raise IntegrityError if the trust file demands signed versions of a model, and this version is not signed."""
    needs = [need for need in trust.required(reader.registry_id, located.name) if need.versions]
    manifest = located.entry.manifest
    verdicts = signatures_of(load(reader, located.name), trust, located.version, manifest)
    if not all(any(_counts(verdict, need) for verdict in verdicts) for need in needs):
        why = "; ".join(dict.fromkeys(map(str, verdicts))) or "nobody signed it"
        which = f"{located.ref} with manifest {manifest.short}..."
        hint = "`reg verify --signatures` lists the signatures"
        raise IntegrityError(f"{which} must be signed by a trusted key: {why}", hint)


def _counts(verdict: SignatureVerdict, need: SignatureRequirement) -> bool:
    return verdict.status == "trusted" and (not need.keys or verdict.key in need.keys)


def attest(
    decisions: Decisions,
    published: Release,
    report: bytes,
    key: PrivateKey | None = None,
    reason: str | None = None,
    label: str = "report",
) -> tuple[Artifact, EvaluationDocument, str]:
    """Record an evaluation as a blob and an event, signed if a key is given. A repeated call changes nothing.

    Return the artifact, the evaluation, and the artifact's new state. Errors call the report `label`. Raise InputError
    if the report is malformed, is not about an artifact of the version, or uses a wrong parent.
    """
    from onnxreg.schema.gates.statements import EVALUATION, read_evaluation

    evaluation = read_evaluation(report, label)
    artifact = _artifact(published, evaluation.artifact, "the report")
    evidence, source = artifact.certification.evidence, published.manifest.source
    parents = {artifact.parent, evidence.parent if evidence else None, source.digest if source else None}
    if evaluation.parent is not None and evaluation.parent not in parents and any(parents):
        source_digest = f"{evaluation.parent.short}..., which is not what {artifact.path} was made from"
        raise InputError(f"the report compares with {source_digest}")
    if evaluation.state != "refused":
        published.manifest.check_weights(evaluation.external_data)
    data = _encode_report(dsse.EVALUATED, artifact.digest, report, key)
    verdict = (artifact.digest, evaluation.state)
    decisions.attest(published.ref, data, dsse.MEDIA_TYPE if key else EVALUATION, reason, verdict)
    return artifact, evaluation, effective_state(published.states[artifact.path].state, evaluation.state)


def attest_proof(
    decisions: Decisions, published: Release, report: FaithfulnessReport, key: PrivateKey | None = None
) -> None:
    """Record a proof, signed if a key is given. Raises InputError if the version lacks the artifact."""
    _artifact(published, report.artifact, "the proof")
    published.manifest.check_weights(report.external_data)
    data = _encode_report(dsse.PROVEN, report.artifact, report.encode(), key)
    decisions.attest(published.ref, data, dsse.MEDIA_TYPE if key else PROOF)


def attest_benchmark(
    decisions: Decisions, published: Release, report: bytes, label: str, reason: str | None = None
) -> None:
    """Record a benchmark as a blob and an event. Raises InputError if it compares with a file of reduced precision."""
    from onnxreg.schema.gates.statements import FULL_PRECISION, BenchmarkDocument

    precisions = {item.digest: item.precision for item in published.manifest.artifacts}
    for item in BenchmarkDocument.decode(report, label).artifacts:
        _artifact(published, item.artifact, label)
        if item.parent is not None and precisions.get(item.parent, FULL_PRECISION) != FULL_PRECISION:
            raise InputError(f"{label} compares {item.path} with a file that is not in full precision")
    decisions.attest(published.ref, report, BENCHMARK, reason)


def _encode_report(predicate_type: str, artifact: Digest, report: bytes, key: PrivateKey | None) -> bytes:
    if key is None:
        return report
    from onnxreg.registry.signing import sign_statement

    return sign_statement(dsse.Statement.of(predicate_type, artifact, canonical.decode(report)), key).encode()


def _artifact(published: Release, digest: Digest, subject: str) -> Artifact:
    for artifact in published.manifest.artifacts:
        if artifact.digest == digest:
            return artifact
    problem = f"{subject} is about {digest.short}..., which is not an artifact of {published.ref}"
    raise InputError(problem, "name the version whose bytes were evaluated")


def latest_proofs(log: Log, digest: Digest, manifest: Manifest, trust: Trust) -> dict[str, RecordedProof]:
    """Return a proof of each artifact by path: the newest signed proof or, without one, the newest unsigned proof."""
    children = {artifact.digest: artifact for artifact in manifest.artifacts if artifact.parent}
    latest: dict[str, RecordedProof] = {}
    proofs = recorded_proofs(log, attestations(log, digest, manifest), manifest, trust) if children else ()
    for proof in sorted(proofs, key=lambda item: bool(item.signers)):
        child = children.get(proof.report.artifact)
        parents = [parent.digest for parent in manifest.ancestors(child)] if child else []
        if child and proof.report.parent in parents and proof.report.is_current:
            latest[child.path] = proof
    return latest


def proofs_by_path(version: Release, trust: Trust) -> dict[str, RecordedProof]:
    """Return the `latest_proofs` of a version, or {} if a statement cannot be read."""
    with suppress(IntegrityError, NotFoundError):
        return latest_proofs(version.log.check(), version.digest, version.manifest, trust)
    return {}


def read_benchmarks(version: Release) -> list[BenchmarkDocument]:
    """Read the benchmarks of a version, oldest first. Raises NotFoundError or IntegrityError if that is impossible."""
    from onnxreg.schema.gates.statements import BenchmarkDocument

    log = version.log.check()
    events = attestations(log, version.digest, version.manifest)
    documents = (log.fetch(event.statement) for event in events if event.media_type == BENCHMARK)
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]


def word_of(event: Event) -> str:
    """Return the word that lists show for an event: its kind, or `promote` for a channel's move with evidence."""
    return "promote" if isinstance(event, Tag) and event.evidence is not None else event.kind


def event_details(event: Event, seq: int, reader: RegistryReader, judge: SignatureJudge) -> list[str]:
    """Return the details of an event for a list, such as `["10 %", "of IOS"]`, without channel and version."""
    match event:
        case Attest():
            return [_describe(event, seq, reader, judge)]
        case Hold():
            return [", ".join(event.paths or ["everything"])]
        case Timing():
            paths = _paths(reader, event.manifest, judge.model)
            timed = [f"{paths.get(key, key.short)} {item.ratio:.2f} x" for key, item in event.speeds.items()]
            return [f"{', '.join(timed)} on {next(iter(event.speeds.values())).machine}"]
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


def _paths(reader: RegistryReader, manifest: Digest, name: str) -> dict[Digest, str]:
    with suppress(IntegrityError, NotFoundError):
        artifacts = read_manifest(read_blob(reader, manifest), manifest, name).artifacts
        return {artifact.digest: artifact.path for artifact in artifacts}
    return {}


def _describe(event: Attest, seq: int, reader: RegistryReader, judge: SignatureJudge) -> str:
    """Describe a statement: `proof of model_int8.onnx by release`. If the blob cannot be read, return `statement`."""
    kind, signers, artifact = "statement", "", event.artifact
    with suppress(InputError, IntegrityError, NotFoundError):
        statement = RecordedStatement.decode(event.media_type, read_blob(reader, event.statement))
        signers = ", ".join(map(str, judge.envelope(statement.envelope, seq)))
        if statement.kind in ("signature", "benchmark"):
            kind = statement.kind
        elif (report := statement.report("proof")) is not None:
            artifact = report.artifact
    if artifact is not None:
        path = _paths(reader, event.manifest, judge.model).get(artifact, artifact.short)
        kind = f"{path} {event.state}" if event.artifact else f"proof of {path}"
    return f"{kind} by {signers}" if signers else kind
