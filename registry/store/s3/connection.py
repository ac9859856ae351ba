"""A client of botocore as the registry needs it: metered, without retries, with known digests in its signatures.

Its own retries and checksums are off: they are ours. botocore would read the body of an upload once more for its
signature; over TLS it would leave it out. The SHA-256 is known already, since it goes along as the checksum.
"""

from base64 import b64decode
from functools import cache
from typing import Any

from botocore import UNSIGNED
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session

from onnxreg.registry.store.net import pace
from onnxreg.registry.store.net.internals import botocore_session, use_pools
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.registry.store.streams import UploadBody

CONNECT_TIMEOUT_SECONDS = 10
MAX_CONNECTIONS = 32
CHECKSUM = "x-amz-checksum-sha256"
PLAIN, KNOWN = ("v4", "s3v4"), "s3v4-known-digest"
"""botocore's names of the usual signature of requests to S3, and ours."""


def new_session(profile: str | None) -> Session:
    """Make a session of its own for each client; the descriptions of the service, which are large, are read once."""
    session = Session(profile=profile)
    session.register_component("data_loader", _loader())
    session.register("before-send.s3", _begin_body)
    for operation in ("PutObject", "UploadPart"):
        session.register(f"choose-signer.s3.{operation}", _choose_signature)
    return session


def new_client(session: Session, location: S3Url) -> Any:
    """Make the client of botocore for a place."""
    style = {"s3": {"addressing_style": "path"}} if location.flag("path_style") else {}
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=pace.timeout(),
        max_pool_connections=MAX_CONNECTIONS,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **style,
        signature_version=UNSIGNED if location.flag("anonymous") else "s3v4",
    )
    client = session.create_client(
        "s3",
        region_name=location.option("region"),
        endpoint_url=location.option("endpoint"),
        config=config,
    )
    use_pools(botocore_session(client), PlainPool, SecurePool)
    return client


@cache
def _loader() -> Any:
    return create_loader()


def _begin_body(request: Any, **_: Any) -> None:
    """A request is signed and about to be sent: its body counts from now on."""
    if isinstance(request.body, UploadBody):
        request.body.begin()


def _choose_signature(signature_version: Any, **_: Any) -> str | None:
    return KNOWN if signature_version in PLAIN else None


class KnownDigestAuth(S3SigV4Auth):  # type: ignore[misc]
    """Signs the checksum that the request has; computes the digest if it has none."""

    def payload(self, request: Any) -> str:
        checksum = request.headers.get(CHECKSUM)
        return b64decode(checksum).hex() if checksum else str(super().payload(request))


AUTH_TYPE_MAPS[KNOWN] = KnownDigestAuth


class MeteredHttpConnection(AWSHTTPConnection):  # type: ignore[misc]
    response_class = pace.MeteredResponse


class MeteredHttpsConnection(AWSHTTPSConnection):  # type: ignore[misc]
    response_class = pace.MeteredResponse


class PlainPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpConnection


class SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpsConnection
