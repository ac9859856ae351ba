"""DSSE, the Dead Simple Signing Envelope, version 1.0.2 (github.com/secure-systems-lab/dsse), and what is signed with it.

A signature covers the type of the payload and the payload's exact bytes, so that bytes signed as one kind of document
are never accepted as another. A `Release` is the statement that an envelope covers.

The signature of a log line is `"<key id>:<base64>"` in its `sig`. It covers `{registry, name, seq, prev, event, via?}`,
and through `prev` every line before it: the last signed line is the signed head of the log.

The signature bundle of OpenSSF Model Signing 1.0 (github.com/sigstore/model-transparency), key mode, is a Sigstore
bundle 0.3 around a DSSE envelope whose statement lists every file of a model with its SHA-256. So a program that knows
nothing of registries can check a directory. It wants ECDSA P-256.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version, check_name
from onnxreg.schema.signing.keys import PublicKey, decode_base64

MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
MAX_SIGNATURES = 64
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
RELEASE = "urn:onnxreg:release:v1"
"""The predicate type: this manifest is this version of this model."""
ROTATION = "urn:onnxreg:rotation:v1"
"""The predicate type: the subject is a key that replaces another."""
CERTIFICATE = ("format", "precision", "path", "digest", "certification")
"""The keys of each artifact that the predicate of a release repeats."""
LINE_PAYLOAD_TYPE = "application/vnd.onnxreg.line.v1+json"
BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BUNDLE_PREDICATE = "https://model_signing/signature/v1.0"
BUNDLE_KEY_KIND = "ecdsa-p256"
SignLine = Callable[[Mapping[str, Any]], str]
"""Makes the `sig` of a line, given its JSON value."""

_SIG = re.compile(r"([0-9a-f]{64}):([A-Za-z0-9+/=]+)")


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: the pre-authentication encoding of a payload and its type."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature with the key id of its claimed signer, which proves nothing by itself."""

    keyid: str
    sig: bytes


Sign = Callable[[bytes], Signature]
"""Signs bytes with some key."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with the signatures over it. `payload` are its exact bytes."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def signed(self) -> bytes:
        """The bytes that each signature covers."""
        return pae(self.payload_type, self.payload)

    def encode(self) -> bytes:
        """The envelope's canonical JSON."""
        return canonical.encode(
            {
                "payloadType": self.payload_type,
                "payload": b64encode(self.payload).decode(),
                "signatures": [
                    {"keyid": signature.keyid, "sig": b64encode(signature.sig).decode()}
                    for signature in self.signatures
                ],
            }
        )

    @classmethod
    def decode(cls, data: bytes, label: str = "envelope") -> "Envelope":
        """Read an envelope; unknown keys are ignored, as DSSE asks. InputError if it is malformed."""
        value = mapping(canonical.decode(data, label))
        signatures = items(required(value, "signatures"), _signature)
        if not 0 < len(signatures) <= MAX_SIGNATURES:
            raise InputError(f"{label} has no signature, or more than {MAX_SIGNATURES}")
        payload = decode_base64(required(value, "payload"), f"the payload of the {label}")
        return cls(text(required(value, "payloadType")), payload, signatures)


@dataclass(frozen=True, slots=True)
class Release:
    """The statement that a manifest is one version of a model: an in-toto Statement v1 (github.com/in-toto/attestation).

    The subject is the manifest by name and digest; the predicate repeats the recipe and the certificate of
    every artifact, so that an auditor reads them without our software. They must be those of the manifest.
    """

    name: str
    version: Version
    manifest: Digest
    predicate: dict[str, Any]

    @classmethod
    def about(cls, name: str, version: Version, manifest: bytes) -> "Release":
        """The statement about a manifest, given its exact bytes."""
        return cls(name, version, Digest.of(manifest), _predicate(version, manifest))

    def encode(self) -> bytes:
        """The canonical bytes of the statement, the payload to be signed."""
        subject = {"name": self.name, "digest": {"sha256": self.manifest.hex}}
        return canonical.encode(
            {
                "_type": STATEMENT,
                "subject": [subject],
                "predicateType": RELEASE,
                "predicate": self.predicate,
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> "Release":
        """Read a statement. InputError if it is malformed, or has another predicate or several subjects."""
        value = mapping(canonical.decode(payload, "statement"))
        if value.get("_type") != STATEMENT or value.get("predicateType") != RELEASE:
            raise InputError("not the statement of a release")
        subjects = items(required(value, "subject"), mapping)
        if len(subjects) != 1:
            raise InputError("the statement has not exactly one subject")
        digest = Digest(text(required(mapping(required(subjects[0], "digest")), "sha256")))
        predicate = mapping(required(value, "predicate"))
        version = Version.parse(text(required(predicate, "version")))
        return cls(check_name(text(required(subjects[0], "name"))), version, digest, predicate)

    def contradiction(self, manifest: bytes) -> str | None:
        """The first difference between the statement and the manifest with these bytes; None if they agree."""
        if Digest.of(manifest) != self.manifest:
            return f"it is about manifest {self.manifest.short}..."
        if self.predicate != _predicate(self.version, manifest):
            return "its recipe or certificates are not those of the manifest"
        return None


def is_release(payload_type: str, payload: bytes) -> bool:
    """True if a payload claims to be the statement of a release: others may be attested by the same kind of envelope."""
    if payload_type != PAYLOAD_TYPE:
        return False
    value = canonical.decode(payload, "statement")
    return isinstance(value, dict) and value.get("predicateType") == RELEASE


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """The key `new` replaces the key `old`."""

    old: PublicKey
    new: PublicKey

    def encode(self) -> bytes:
        """The canonical bytes of the statement, the payload to be signed."""
        return canonical.encode(
            {
                "_type": STATEMENT,
                "subject": [{"name": str(self.new), "digest": {"sha256": self.new.id}}],
                "predicateType": ROTATION,
                "predicate": {"replaces": str(self.old)},
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> "KeyRotation":
        """Read a statement. InputError if it is malformed or says anything else."""
        value = mapping(canonical.decode(payload, "statement"))
        subjects = items(required(value, "subject"), mapping)
        if value.get("predicateType") != ROTATION or len(subjects) != 1:
            raise InputError("not the statement of a rotation")
        old = PublicKey.parse(text(required(mapping(required(value, "predicate")), "replaces")))
        rotation = cls(old, PublicKey.parse(text(required(subjects[0], "name"))))
        if rotation.encode() != payload:
            raise InputError("the statement of a rotation has other parts than the two keys")
        return rotation


def signed_bytes(registry: str, line: Mapping[str, Any]) -> bytes:
    """The bytes that the signature of a line (its JSON value) covers in the log of a registry."""
    value = {key: line[key] for key in ("seq", "prev", "event", "via") if key in line}
    value |= {"registry": registry, "name": line["event"]["name"]}
    return pae(LINE_PAYLOAD_TYPE, canonical.encode(value))


def sign_line(registry: str, sign: Sign, line: Mapping[str, Any]) -> str:
    """The `sig` of a line in the log of a registry."""
    signature = sign(signed_bytes(registry, line))
    return f"{signature.keyid}:{b64encode(signature.sig).decode()}"


def read_sig(text: str) -> Signature:
    """InputError if it is not `<key id>:<base64>`."""
    match = _SIG.fullmatch(text)
    if match is None:
        raise InputError("the signature of a line is malformed")
    return Signature(match[1], decode_base64(match[2], "the signature of a line"))


def make_bundle(name: str, files: Mapping[str, Digest], key: PublicKey, sign: Sign) -> bytes:
    """The bundle of a directory with exactly these files. InputError if the key is of a kind that it cannot have."""
    if key.kind != BUNDLE_KEY_KIND:
        raise InputError(
            f"a bundle for model_signing is signed with {BUNDLE_KEY_KIND}, not {key.kind}",
            f"reg key new NAME --kind {BUNDLE_KEY_KIND} makes such a key",
        )
    payload = _bundle_statement(name, files)
    signature = sign(pae(PAYLOAD_TYPE, payload))
    envelope: dict[str, object] = json.loads(Envelope(PAYLOAD_TYPE, payload, (signature,)).encode())
    hint = hashlib.sha256(key.pem.encode()).hexdigest()
    material = {"publicKey": {"hint": hint}, "tlogEntries": []}
    return canonical.encode(
        {"mediaType": BUNDLE_MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": envelope}
    )


def _signature(value: Any) -> Signature:
    fields = mapping(value)
    return Signature(text(fields.get("keyid", "")), decode_base64(required(fields, "sig"), "a signature"))


def _predicate(version: Version, manifest: bytes) -> dict[str, Any]:
    value = mapping(canonical.decode(manifest, "manifest"))
    artifacts = [
        {key: artifact[key] for key in CERTIFICATE if key in artifact}
        for artifact in items(value.get("artifacts", []), mapping)
    ]
    recipe = {"recipe": value["recipe"]} if "recipe" in value else {}
    return {"version": str(version), "artifacts": artifacts, **recipe}


def _bundle_statement(name: str, files: Mapping[str, Digest]) -> bytes:
    """The subject is the SHA-256 over the digests of all files, in the order in which the predicate lists them."""
    resources = [{"name": path, "algorithm": "sha256", "digest": files[path].hex} for path in sorted(files)]
    root = hashlib.sha256(b"".join(bytes.fromhex(files[path].hex) for path in sorted(files)))
    serialization = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
    return canonical.encode(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": root.hexdigest()}}],
            "predicateType": BUNDLE_PREDICATE,
            "predicate": {"serialization": serialization, "resources": resources},
        }
    )
