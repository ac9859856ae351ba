"""The signatures on log lines and on versions, judged by the keys that the reader trusts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from onnxreg.registry.log.log import Log
from onnxreg.registry.signing import is_valid
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.inputs.trust_file import Trust, TrustedKey
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.dsse import MEDIA_TYPE, RELEASE, Envelope, Release, read_sig

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


UNSIGNED = SignatureVerdict("unsigned")
DigestAt = Callable[[int], Digest | None]
"""The digest of a line of the log that is judged."""


@dataclass(frozen=True)
class SignatureJudge:
    """Judges the signatures on one model in one registry.

    `digest_at` is called only for a revoked key.
    """

    trust: Trust
    registry: str
    model: str
    digest_at: DigestAt

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
            return UNSIGNED
        try:
            signature = read_sig(line.sig)
        except InputError as error:
            return SignatureVerdict("invalid", detail=error.message)
        return self.verdict(signature.keyid, signature.sig, line.signed_bytes(self.registry), line.seq)


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
class SignedRelease:
    """One signature on one version, the line that announced it, and its verdict."""

    version: Version
    manifest: Digest
    seq: int
    verdict: SignatureVerdict


def signatures(log: Log, trust: Trust, only: Iterable[Digest] | None = None) -> Iterator[SignedRelease]:
    """Yield the signatures on the versions of a model, oldest first.

    A statement that is missing or contradicts the manifest is `invalid`. Other attestations are skipped.

    Args:
        only: skip versions with other manifests.
    """
    judge, manifests = judge_for(log, trust), None if only is None else set(only)
    for seq, event in log.events(Attest):
        if event.media_type != MEDIA_TYPE or (manifests is not None and event.manifest not in manifests):
            continue
        versions = [version for version, entry in log.versions.items() if entry.manifest == event.manifest]
        try:
            envelope = Envelope.decode(log.fetch(event.statement))
            if envelope.predicate_type != RELEASE:
                continue
            release = Release.decode(envelope.payload)
            wrong = _wrong(log, release, event.manifest)
            versions = [release.version] if release.version in versions else versions
            verdicts = [
                judge.verdict(item.keyid, item.sig, envelope.signed, seq) for item in envelope.signatures
            ]
        except (InputError, IntegrityError, NotFoundError) as error:
            taken_down = event.statement in log.tombstones
            wrong, verdicts = "", [] if taken_down else [SignatureVerdict("invalid", detail=error.message)]
        for verdict in verdicts:
            if wrong and verdict.status not in ("unknown", "invalid"):
                verdict = SignatureVerdict("invalid", verdict.keyid, verdict.key, wrong)
            for version in versions:
                yield SignedRelease(version, event.manifest, seq, verdict)


def _wrong(log: Log, release: Release, manifest: Digest) -> str:
    """Find a contradiction between a release statement and its manifest. Return "" if they agree."""
    if release.name != log.name:
        return f"it is about {release.name}"
    if release.manifest != manifest:
        return f"it is about manifest {release.manifest.short}..., not {manifest.short}..."
    entry = log.versions.get(release.version)
    if entry is None or entry.manifest != manifest:
        return f"it is about version {release.version}"
    return release.contradiction(log.fetch(manifest)) or ""


def signatures_of(log: Log, trust: Trust, version: Version, manifest: Digest) -> list[SignatureVerdict]:
    """Judge the signatures on one version of the model."""
    return [release.verdict for release in signatures(log, trust, [manifest]) if release.version == version]
