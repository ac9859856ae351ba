"""A client of botocore as the registry needs it: metered, without retries, with known digests in its signatures.

Its own retries and checksums are off: they are ours. botocore would read the body of an upload once more for its
signature; over TLS it would leave it out. The SHA-256 is known already, since it goes along as the checksum.

`SignedRequests` sends frequent requests without the layers above botocore's session, which saves 18 % of the time of a
push of 300 small files (docs/benchmarks.md). If the answer is unexpected, botocore repeats the request, and its answer
counts.
"""

import os
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from botocore import UNSIGNED
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSRequest,
)
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session

from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.internals import botocore_session, use_pools
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.registry.store.streams import FileBlock, UploadBody
from onnxreg.registry.support.parallel import check_stop

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
        read_timeout=requests.timeout(),
        max_pool_connections=MAX_CONNECTIONS,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **style,
        signature_version=UNSIGNED if location.flag("anonymous") else "s3v4",
    )
    client = session.create_client(
        "s3",
        region_name=location.option("region") or os.environ.get("AWS_REGION") or None,
        endpoint_url=location.option("endpoint"),
        config=config,
    )
    http_rules.check_proxy(client.meta.endpoint_url)
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


def _send(connection: Any, send: Callable[[Any], None], data: Any) -> None:
    """Send a block of a file to the connection's socket, and any other data as the library does.

    Only `SignedRequests` sends blocks of files, and never with `Expect: 100-continue`.
    """
    if isinstance(data, FileBlock):
        data.send(connection.sock)
    else:
        send(data)


class MeteredHttpConnection(AWSHTTPConnection):  # type: ignore[misc]
    response_class = requests.MeteredResponse

    def send(self, data: Any) -> None:
        _send(self, super().send, data)


class MeteredHttpsConnection(AWSHTTPSConnection):  # type: ignore[misc]
    response_class = requests.MeteredResponse

    def send(self, data: Any) -> None:
        _send(self, super().send, data)


class PlainPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpConnection


class SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpsConnection


HEADERS = {
    "ChecksumSHA256": "x-amz-checksum-sha256",
    "IfMatch": "If-Match",
    "IfNoneMatch": "If-None-Match",
}
QUERY = {"PartNumber": "partNumber", "UploadId": "uploadId"}
NO_SIGNATURE = "none"
"""The name that botocore has for the signature of an anonymous request."""
REFUSALS = frozenset({301, 302, 307, 308, 400, 401, 403, 405, 501})
"""Statuses of a server that may go on to refuse, such as one in another region."""


@dataclass
class SignedRequests:
    """Makes requests about the objects of a bucket as a usual request went: see `like`.

    Args:
        boto: the client of botocore, whose connections are used.
        credentials: None: requests are not signed.
        address: if the bucket's objects are.
        region: which signatures name.
        refused: True if the server refused a request; then no more are made in this way.
    """

    boto: Any
    credentials: Any
    address: str
    region: str
    refused: bool = False

    @classmethod
    def like(
        cls, boto: Any, session: Any, params: Mapping[str, Any], context: Mapping[str, Any]
    ) -> "SignedRequests | None":
        """Build from the request in botocore's event `before-call`; None if that is signed in another way."""
        url, path, auth_type = params["url"], params["url_path"], context.get("auth_type")
        if not url.endswith(path) or auth_type not in (*PLAIN, NO_SIGNATURE):
            return None
        region = context.get("signing", {}).get("region") or boto.meta.region_name
        credentials = None if auth_type == NO_SIGNATURE else session.get_credentials()
        return cls(boto, credentials, url.removesuffix(path) + "/", region)

    def get(self, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a GET, its body still to be read."""
        return self.send("GET", quote(path, safe="/~"), headers)

    @staticmethod
    def upload(
        Key: str,  # noqa: N803
        Body: bytes | UploadBody,  # noqa: N803
        **parameters: Any,
    ) -> tuple[str, dict[str, str], Any]:
        """The target, headers and data of a PUT of an object or a part of one, with parameters of botocore's."""
        query = urlencode({QUERY[name]: value for name, value in parameters.items() if name in QUERY})
        headers = {HEADERS[name]: value for name, value in parameters.items() if name not in QUERY}
        data: Any = Body
        if isinstance(Body, UploadBody):
            headers["Content-Length"] = str(Body.rewind())
            data = Body.blocks()
        return f"{quote(Key, safe='/~')}?{query}".rstrip("?"), headers, data

    def send(self, method: str, target: str, headers: Mapping[str, str], data: Any = None) -> Any:
        """The answer to a signed request, its body still to be read."""
        check_stop()
        all_headers = {"User-Agent": self.boto.meta.config.user_agent, **headers}
        request = AWSRequest(method, self.address + target, all_headers, data, stream_output=True)
        if self.credentials is not None:
            KnownDigestAuth(self.credentials.get_frozen_credentials(), "s3", self.region).add_auth(request)
        answer = botocore_session(self.boto).send(request.prepare())
        self.refused = self.refused or answer.status_code in REFUSALS
        return answer
