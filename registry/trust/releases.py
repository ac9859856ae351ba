"""The signed versions of a model and their signers: attestations that are signed statements of a release."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnxreg.registry.log.index_file import read_line
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.trust.signatures import SignatureJudge, SignatureVerdict
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.version import Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Attest
from onnxreg.schema.signing.dsse import MEDIA_TYPE, Envelope, Release, is_release


@dataclass(frozen=True, slots=True)
class SignedRelease:
    """One signature on one version, the line that announced it, and what it is worth."""

    version: Version
    manifest: Digest
    seq: int
    verdict: SignatureVerdict


def judge_for(ledger: Ledger, trust: Trust) -> SignatureJudge:
    """Judges the signatures in a log; reads it whole only if a revocation names one of its lines."""
    digests: dict[int, Digest] = {}

    def digest_at(seq: int) -> Digest | None:
        if not digests:
            digests.update({line.seq: line.digest for line in ledger.skim()})
        return digests.get(seq)

    return SignatureJudge(trust, ledger.registry, ledger.name, digest_at)


def signatures(ledger: Ledger, trust: Trust, only: Iterable[Digest] | None = None) -> Iterator[SignedRelease]:
    """Yield every signature on the versions of a model, or on those with the manifests `only`, oldest first.

    A statement that is missing or says other things than the manifest is `invalid`. Other attestations are
    skipped.
    """
    judge = judge_for(ledger, trust)
    manifests = None if only is None else {str(digest) for digest in only}
    for line in ledger.skim():
        if line.kind == Attest.kind and (manifests is None or line.manifest in manifests):
            event = read_line(line.raw, ledger.name).event
            if isinstance(event, Attest) and event.media_type == MEDIA_TYPE:
                yield from _judged(ledger, judge, event, line.seq)


def _judged(ledger: Ledger, judge: SignatureJudge, event: Attest, seq: int) -> Iterator[SignedRelease]:
    versions = [version for version, entry in ledger.entries.items() if entry.manifest == event.manifest]
    try:
        envelope = Envelope.decode(ledger.fetch(event.statement))
        if not is_release(envelope.payload_type, envelope.payload):
            return
        release = Release.decode(envelope.payload)
        wrong = _wrong(ledger, release, event.manifest)
    except (InputError, IntegrityError, NotFoundError) as error:
        if event.statement in ledger.tombstones:
            return
        for version in versions:
            yield SignedRelease(
                version, event.manifest, seq, SignatureVerdict("invalid", detail=error.message)
            )
        return
    for signature in envelope.signatures:
        verdict = judge.verdict(signature.keyid, signature.sig, envelope.signed, seq)
        if wrong is not None and verdict.status not in ("unknown", "invalid"):
            verdict = SignatureVerdict("invalid", verdict.keyid, verdict.key, wrong)
        about = [release.version] if release.version in versions else versions
        for version in about:
            yield SignedRelease(version, event.manifest, seq, verdict)


def _wrong(ledger: Ledger, release: Release, manifest: Digest) -> str | None:
    """The contradiction between a release statement and the manifest that it is attested of.

    None if they agree.
    """
    if release.name != ledger.name:
        return f"it is about {release.name}"
    if release.manifest != manifest:
        return f"it is about manifest {release.manifest.short}..., not {manifest.short}..."
    entry = ledger.entries.get(release.version)
    if entry is None or entry.manifest != manifest:
        return f"it is about version {release.version}"
    return release.contradiction(ledger.fetch(manifest))


def signatures_of(ledger: Ledger, trust: Trust, version: Version, manifest: Digest) -> list[SignatureVerdict]:
    """Judge the signatures that say that a manifest is this version of the model."""
    return [
        release.verdict for release in signatures(ledger, trust, [manifest]) if release.version == version
    ]
