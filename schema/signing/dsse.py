"""Public keys, DSSE envelopes 1.0.2 (github.com/secure-systems-lab/dsse), in-toto statements, and signed log lines.

A signature covers the type and the exact bytes of the payload. Therefore a document that was signed as one type is not
accepted as another type.

A signed log line has the key `sig`, `<key id>:<base64>`. The signature covers the registry's id and the line. The line
has the digest `prev` of the line before, so the signature covers the whole log up to the line.
"""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from textwrap import fill
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES, MAX_SIGNATURES
from onnxreg.schema.core.canonical import Digest, Record, convert
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version, check_name

# The bytes before the raw key in a DER SubjectPublicKeyInfo (RFC 8410, RFC 5480).
SPKI = {
    "ed25519": bytes.fromhex("302a300506032b6570032100"),
    "ecdsa-p256": bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200"),
}
SIZES = {"ed25519": 32, "ecdsa-p256": 65}  # of raw keys, in bytes (RFC 8032; SEC 1, uncompressed)


class PublicKey(Struct, frozen=True):
    """A public key. As text it is `<kind>:<base64>`, such as `ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=`."""

    kind: str
    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != SIZES.get(self.kind, -1) or (self.kind == "ecdsa-p256" and self.raw[0] != 4):
            raise InputError(f"not a public key of a known kind: {self.kind[:20]!r}", _HINT)

    def __str__(self) -> str:
        return f"{self.kind}:{b64encode(self.raw).decode()}"

    @property
    def spki(self) -> bytes:
        """The key as `openssl pkey -pubout -outform DER` writes it."""
        return SPKI[self.kind] + self.raw

    @property
    def pem(self) -> str:
        """The key as PEM (RFC 7468)."""
        body = fill(b64encode(self.spki).decode(), 64)
        return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"

    @property
    def id(self) -> str:
        """The SHA-256 of `spki`, as 64 hex digits."""
        return hashlib.sha256(self.spki).hexdigest()

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read the text form of a key. Raise InputError for other text."""
        kind, _, encoded = text.strip().partition(":")
        try:
            return cls(kind, decode_base64(encoded, "the public key"))
        except InputError as error:
            raise InputError(error.message, _HINT) from error


_HINT = "a public key is written ed25519:<base64> or ecdsa-p256:<base64>; `reg key show NAME` prints one"


def decode_base64(text: str, label: str) -> bytes:
    """Decode canonical base64 (RFC 4648). Raise InputError, which names `label`, for other text."""
    with suppress(ValueError):
        data = b64decode(text, validate=True)
        if b64encode(data).decode() == text:
            return data
    raise InputError(f"{label} is not base64")


MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
RELEASE = "urn:onnxreg:release:v1"  # subject: a manifest; predicate: version, certificates and recipe
EVALUATED = "urn:onnxreg:evaluation:v1"  # subject: an artifact; predicate: the report
PROVEN = "urn:onnxreg:faithfulness:v1"  # subject: an artifact; predicate: the report
CERTIFICATE = ("format", "precision", "path", "digest", "certification")  # of an artifact in a release
LINE_PAYLOAD_TYPE = "application/vnd.onnxreg.line.v1+json"
BUNDLE_KEY_KIND = "ecdsa-p256"
SignLine = Callable[[Mapping[str, Any]], str]  # line as JSON -> its `sig`


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes to sign for a payload: DSSE's pre-authentication encoding (PAE)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


class Signature(Record, frozen=True):
    """A signature, and the id of the key that claims to have made it. Neither is verified yet."""

    sig: bytes
    keyid: str = ""


Sign = Callable[[bytes], Signature]  # signs bytes with a key of the user


class Envelope(Record, frozen=True):
    """A payload as exact bytes, and its signatures. Unknown keys are ignored, as DSSE requires."""

    payload_type: str = field(name="payloadType")
    payload: bytes
    signatures: Annotated[tuple[Signature, ...], Meta(min_length=1, max_length=MAX_SIGNATURES)]

    @property
    def signed(self) -> bytes:
        return pae(self.payload_type, self.payload)

    @property
    def predicate_type(self) -> str:
        """The predicate type of an in-toto payload, else "". Raise InputError if an in-toto payload is not JSON."""
        if self.payload_type != PAYLOAD_TYPE:
            return ""
        value = canonical.decode(self.payload, "statement")
        return str(value.get("predicateType", "")) if isinstance(value, dict) else ""

    @classmethod
    def decode(cls, data: bytes, label: str = "envelope", max_bytes: int = MAX_RECORD_BYTES) -> "Envelope":
        """Read an envelope, canonical or not. Raise InputError if it is malformed."""
        value = canonical.decode(data, label)
        envelope = convert(value, cls, label)
        for text in (value["payload"], *(signature["sig"] for signature in value["signatures"])):
            decode_base64(text, f"a part of the {label}")  # msgspec accepts several texts of the same bytes
        return envelope


class Subject(Record, frozen=True):
    """The subject of a statement: its digests by algorithm, and its name."""

    digest: dict[str, str]
    name: str | None = None


class Statement(Record, frozen=True):
    """An in-toto Statement v1 (github.com/in-toto/attestation): a predicate about one subject.

    `predicate_type` says how to read the predicate. The property `digest` is the SHA-256 of the subject.
    """

    predicate_type: str = field(name="predicateType")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1, max_length=1)]
    predicate: Any
    kind: Literal[STATEMENT] = field(name="_type")  # type: ignore[valid-type]

    @classmethod
    def of(cls, predicate_type: str, digest: Digest, predicate: Any, name: str | None = None) -> "Statement":
        return cls(predicate_type, (Subject({"sha256": digest.hex}, name),), predicate, STATEMENT)

    @property
    def digest(self) -> Digest:
        return Digest(self.subject[0].digest.get("sha256", ""))

    @property
    def name(self) -> str | None:
        return self.subject[0].name

    @classmethod
    def decode(cls, data: bytes, label: str = "statement", max_bytes: int = MAX_RECORD_BYTES) -> "Statement":
        """Read a statement, canonical or not. Raise InputError if it is malformed or has several subjects."""
        statement = convert(canonical.decode(data, label, max_bytes), cls, label)
        _ = statement.digest
        return statement


def release_statement(name: str, version: Version, manifest: bytes) -> Statement:
    """Return the statement that a version of the model `name` has this manifest. `manifest` has the manifest's bytes.

    The statement repeats the recipe and all certificates of the manifest, so that an auditor can read them without
    onnxreg.
    """
    value = convert(canonical.decode(manifest, "manifest"), dict[str, Any], "manifest")
    artifacts = [
        {key: artifact[key] for key in CERTIFICATE if key in artifact}
        for artifact in convert(value.get("artifacts", []), list[dict[str, Any]], "artifacts")
    ]
    recipe = {"recipe": value["recipe"]} if "recipe" in value else {}
    predicate = {"version": str(version), "artifacts": artifacts, **recipe}
    return Statement.of(RELEASE, Digest.of(manifest), predicate, name)


def released_version(release: Statement) -> Version:
    """Return the version in a release statement. Raise InputError for a statement of another type."""
    if release.predicate_type != RELEASE:
        raise InputError("not the statement of a release")
    check_name(release.name or "")
    predicate = convert(release.predicate, dict[str, Any], "predicate")
    return Version.parse(str(predicate.get("version", "")))


def signed_bytes(registry: str, line: Mapping[str, Any]) -> bytes:
    """Return the bytes to sign for a log line, which is given as JSON."""
    value = {key: line[key] for key in ("seq", "prev", "event", "via") if key in line}
    value |= {"registry": registry, "name": line["event"]["name"]}
    return pae(LINE_PAYLOAD_TYPE, canonical.encode(value))


def sign_line(registry: str, sign: Sign, line: Mapping[str, Any]) -> str:
    """Return the `sig` of a log line, which is given as JSON."""
    signature = sign(signed_bytes(registry, line))
    return f"{signature.keyid}:{b64encode(signature.sig).decode()}"


def read_sig(text: str) -> Signature:
    """Read the `sig` of a line. Raise InputError if it is malformed."""
    match = re.fullmatch(r"([0-9a-f]{64}):([A-Za-z0-9+/=]+)", text)
    if match is None:
        raise InputError("the signature of a line is malformed")
    return Signature(decode_base64(match[2], "the signature of a line"), match[1])


def make_bundle(name: str, files: Mapping[str, Digest], key: PublicKey, sign: Sign) -> bytes:
    """Sign a directory that has the `files` and no others. Return a bundle of OpenSSF Model Signing 1.0 (key mode).

    With the bundle, other programs can check the directory (github.com/sigstore/model-transparency). The bundle is a
    Sigstore bundle 0.3 whose statement lists every file with its SHA-256. Raise InputError if the key is not ECDSA
    P-256.
    """
    if key.kind != BUNDLE_KEY_KIND:
        hint = f"reg key new NAME --kind {BUNDLE_KEY_KIND} makes such a key"
        raise InputError(f"a bundle for model_signing is signed with {BUNDLE_KEY_KIND}, not {key.kind}", hint)
    resources = [{"name": path, "algorithm": "sha256", "digest": files[path].hex} for path in sorted(files)]
    root = Digest.of(b"".join(bytes.fromhex(files[path].hex) for path in sorted(files)))
    serialization = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
    predicate = {"serialization": serialization, "resources": resources}
    payload = Statement.of("https://model_signing/signature/v1.0", root, predicate, name).encode()
    envelope = Envelope(PAYLOAD_TYPE, payload, (sign(pae(PAYLOAD_TYPE, payload)),))
    hint = hashlib.sha256(key.pem.encode()).hexdigest()
    return canonical.encode(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
            "dsseEnvelope": envelope.to_json(),
        }
    )
