"""DSSE, the Dead Simple Signing Envelope, version 1.0.2 (github.com/secure-systems-lab/dsse).

A signature covers the type of the payload and the payload's exact bytes, so that bytes signed as one kind of document
are never accepted as another.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import items, mapping, required, text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.keys import decode_base64

MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
MAX_SIGNATURES = 64


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: the pre-authentication encoding of a payload and its type."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature with the key id of its claimed signer, which proves nothing by itself."""

    keyid: str
    sig: bytes


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


def _signature(value: Any) -> Signature:
    fields = mapping(value)
    return Signature(text(fields.get("keyid", "")), decode_base64(required(fields, "sig"), "a signature"))
