"""Signatures over a body whose SHA-256 is known already, since it goes along as the checksum.

botocore would read the body once more to find it; over TLS it would leave the body out of the signature.
"""

from base64 import b64decode
from typing import Any

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

CHECKSUM = "x-amz-checksum-sha256"
PLAIN, KNOWN = ("v4", "s3v4"), "s3v4-known-digest"
"""botocore's names of the usual signature of requests to S3, and ours."""


class KnownDigestAuth(S3SigV4Auth):  # type: ignore[misc]
    """Signs the checksum that the request has; computes the digest if it has none."""

    def payload(self, request: Any) -> str:
        checksum = request.headers.get(CHECKSUM)
        return b64decode(checksum).hex() if checksum else str(super().payload(request))


AUTH_TYPE_MAPS[KNOWN] = KnownDigestAuth


def sign_known_digests(session: Any) -> None:
    """Make the clients of a session sign uploads in this way instead of the plain way."""
    for operation in ("PutObject", "UploadPart"):
        session.register(f"choose-signer.s3.{operation}", _choose)


def _choose(signature_version: Any, **_: Any) -> str | None:
    return KNOWN if signature_version in PLAIN else None
