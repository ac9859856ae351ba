"""Requests of which there are many, signed and sent without the layers of botocore's client above its session.

They cost a third of the processor time of that client's. Where the server does not answer one as hoped, the usual way is
gone, whose answer counts: so errors, redirects and a server that takes no such request need no words here.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from botocore.awsrequest import AWSRequest

from onnxreg.registry.backends.s3signing import KnownDigestAuth
from onnxreg.registry.backends.sentfile import SentFile

HEADERS = {
    "ChecksumSHA256": "x-amz-checksum-sha256",
    "IfMatch": "If-Match",
    "IfNoneMatch": "If-None-Match",
}
QUERY = {"PartNumber": "partNumber", "UploadId": "uploadId"}


class Bare:
    """Makes requests about the objects of a bucket with a client's address, credentials and connections.

    Args:
        boto: the client of botocore.
        credentials: of the session that made it; None: requests are not signed.
    """

    def __init__(self, boto: Any, credentials: Any, bucket: str) -> None:
        self._boto = boto
        self._credentials = credentials
        self._bucket = bucket

    def get(self, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a GET, its body still to be read."""
        return self._send("GET", quote(path, safe="/~"), headers)

    def put(self, Key: str, Body: bytes | SentFile, **parameters: Any) -> tuple[int, str | None]:  # noqa: N803
        """Send an object or a part of one, with parameters of botocore's. The status of the answer, and its ETag."""
        headers = {HEADERS[name]: value for name, value in parameters.items() if name in HEADERS}
        query = urlencode({QUERY[name]: value for name, value in parameters.items() if name in QUERY})
        data: Any = Body
        if isinstance(Body, SentFile):
            headers["Content-Length"] = str(Body.size)
            data = Body.blocks()
        answer = self._send("PUT", f"{quote(Key, safe='/~')}?{query}".rstrip("?"), headers, data)
        answer.content  # noqa: B018
        return answer.status_code, answer.headers.get("ETag")

    def _send(self, method: str, target: str, headers: Mapping[str, str], data: Any = None) -> Any:
        address, region = self._address
        said = {"User-Agent": self._boto.meta.config.user_agent, **headers}
        request = AWSRequest(method, address + target, said, data, stream_output=True)
        if self._credentials is not None:
            KnownDigestAuth(self._credentials.get_frozen_credentials(), "s3", region).add_auth(request)
        return self._boto._endpoint.http_session.send(request.prepare())

    @cached_property
    def _address(self) -> tuple[str, str]:
        """Where the bucket's objects are, and the region that signatures name: as in an address that botocore signs."""
        target = {"Bucket": self._bucket, "Key": "x"}
        address, _, query = self._boto.generate_presigned_url("get_object", Params=target).partition("?")
        scope = parse_qs(query).get("X-Amz-Credential", ["////"])[0]
        return address.removesuffix("x"), scope.split("/")[-3]
