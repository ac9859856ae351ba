"""Frequent requests, signed and sent without the layers of botocore's client above its session.

They save 18 % of the time of a push of 300 small files (docs/benchmarks.md). If one is not answered as hoped, the usual way is gone,
whose answer counts: so errors, redirects and a server that takes no such request need no words here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from botocore.awsrequest import AWSRequest

from onnxreg.registry.store.net.internals import botocore_session
from onnxreg.registry.store.s3.connection import PLAIN, KnownDigestAuth
from onnxreg.registry.store.streams import UploadBody
from onnxreg.registry.support.cancellation import check_stop

HEADERS = {
    "ChecksumSHA256": "x-amz-checksum-sha256",
    "IfMatch": "If-Match",
    "IfNoneMatch": "If-None-Match",
}
QUERY = {"PartNumber": "partNumber", "UploadId": "uploadId"}
UNSIGNED = "none"
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
        if not url.endswith(path) or auth_type not in (*PLAIN, UNSIGNED):
            return None
        region = context.get("signing", {}).get("region") or boto.meta.region_name
        credentials = None if auth_type == UNSIGNED else session.get_credentials()
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
