"""Requests to an S3 server: endpoint, credentials, retries, and translation of errors.

Requests go through botocore, not s3fs: file systems have no conditions and checksums. All retries
are made here, since the meaning of a 412 depends on earlier tries of the request.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import cached_property
from http.client import HTTPException
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.requests import UnansweredError, retrying
from onnxreg.registry.store.protocol import CHUNK_BYTES
from onnxreg.registry.store.range_stream import ByteRange, RangeRequest, fill
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.registry.support.parallel import CancelledError, check_stop
from onnxreg.schema.core.errors import HostError, InputError, RegError, RemoteError, missing_extra

if TYPE_CHECKING:
    from onnxreg.registry.store.s3.botocore_client import SignedRequests

READ_OPERATIONS = frozenset({"get_object", "head_object", "list_objects_v2"})
RANGE_HEADERS = frozenset({"ETag", "Content-Length", "Content-Range"})
"""Headers that an answer with a part of an object must have."""
_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})
_PASSING_CODES = frozenset(
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "SlowDown",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_HINTS = {
    "AuthorizationHeaderMalformed": "check the region (AWS_REGION, or ?region= in the URL)",
    "ExpiredToken": "the credentials have expired: get new ones, then run the command again",
    "InvalidAccessKeyId": "check which credentials are used (AWS_PROFILE, AWS_ACCESS_KEY_ID)",
    "NoSuchBucket": "check the bucket's name and the endpoint (AWS_ENDPOINT_URL)",
    "RequestTimeTooSkewed": "set this machine's clock",
    "SignatureDoesNotMatch": "check the secret key of the credentials that are used (AWS_PROFILE)",
}
_WRITES = frozenset({"PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"})
_UNKNOWN_HEADER = (
    "a registry needs a server that takes SHA-256 checksums (x-amz-checksum-sha256) and conditions "
    "(If-None-Match, If-Match)"
)
_DEMANDS = (
    "; a bucket policy may demand headers that reg does not send: default encryption of the bucket needs none"
)
_LOST = "PreconditionFailed"
_DENIED = "check that these credentials (AWS_PROFILE) may do this; who may not list a bucket cannot see what is absent"


class RejectedError(RemoteError):
    """The server answered, and refused. `status` is that of HTTP, `s3_code` is that of S3."""

    def __init__(self, message: str, hint: str, status: int, s3_code: str, pause: float = 0.0) -> None:
        super().__init__(message, hint)
        self.status = status
        self.s3_code = s3_code
        self.pause = pause

    @property
    def is_absence(self) -> bool:
        """True if the object is not there, in a bucket that is."""
        return self.status == 404 and self.s3_code != "NoSuchBucket"

    @property
    def is_passing(self) -> bool:
        return self.status in _PASSING_STATUS or self.s3_code in _PASSING_CODES


class S3Client:
    """Makes requests below one prefix of a bucket, from any number of threads."""

    def __init__(self, location: S3Url) -> None:
        try:
            import botocore  # noqa: F401
        except ModuleNotFoundError as error:
            raise missing_extra(error.name or "botocore", "s3", "a registry in S3") from None
        self.location = location
        self._bare: SignedRequests | None = None

    @property
    def url(self) -> str:
        return self.location.url

    @property
    def host(self) -> str:
        """The server, as far as the URL names it."""
        return urlsplit(self.location.option("endpoint") or "").netloc or f"s3://{self.location.bucket}"

    def path(self, key: str) -> str:
        return f"{self.location.prefix}/{key}" if self.location.prefix else key

    def call(self, doing: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Make a request, and retry passing failures. `doing` completes 'while ...'.

        A `Body`, which is a stream, is read from its beginning each time. RejectedError for an answer that refuses,
        UnansweredError if none came.
        """
        body: Any = parameters.get("Body")

        def attempt() -> dict[str, Any]:
            if hasattr(body, "seek"):
                body.seek(0)
            return self.request(doing, operation, parameters)

        with requests.reading() if operation in READ_OPERATIONS else nullcontext():
            return retrying(attempt, is_passing, self.host)

    def call_once(self, doing: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Make a request; retry only if the server said that it did not do it."""

        def attempt() -> dict[str, Any]:
            return self.request(doing, operation, parameters)

        return retrying(
            attempt, lambda error: isinstance(error, RejectedError) and error.is_passing, self.host
        )

    def try_put(self, doing: str, **parameters: Any) -> dict[str, Any] | None:
        """Send a `Body` of known checksum once, through `SignedRequests`; None if that is not possible, or failed for
        any reason except a condition that does not hold: then `call` sends it, and reports the reason.
        """
        status, tag = 0, None
        with self._trying(doing) as bare:
            if bare is not None:
                answer = bare.send("PUT", *bare.upload(**parameters))
                answer.content  # noqa: B018
                status, tag = answer.status_code, answer.headers.get("ETag")
        if status == 412:
            raise RejectedError(f"{doing} at {self.url} failed: {_LOST}", "", status, _LOST)
        return {"ETag": tag} if status == 200 and tag else None

    @contextmanager
    def _trying(self, doing: str) -> "Iterator[SignedRequests | None]":
        """Give the bare requests, None if they cannot be made; suppress the error of a remote."""
        with suppress(RemoteError), self._errors(doing):
            yield self._bare if self._bare is not None and not self._bare.refused else None

    def read(self, doing: str, limit: int, **parameters: Any) -> tuple[bytearray, dict[str, Any]]:
        """An object's bytes, all of them, and the answer they came with. RemoteError above `limit` bytes."""

        def attempt() -> tuple[bytearray, dict[str, Any]]:
            with self._errors(doing):
                answer = self._make("get_object", parameters)
                with closing(answer["Body"]) as body:
                    size = self._allowed(answer.get("ContentLength", 0), limit)
                    data = _arrived(body, size, limit)
                    self._allowed(len(data), limit)
                return data, answer

        with requests.reading():
            return retrying(attempt, is_passing, self.host)

    def read_range(self, request: RangeRequest) -> ByteRange:
        """Read the bytes of a request; the first try goes through `SignedRequests`."""
        with requests.reading():
            with self._trying(request.doing) as bare:
                part = request.read_on()
                if part is None and bare is not None:
                    part = self._try_range(bare, request)
                if part is not None:
                    return part
            return self._read_plainly(request)

    def _try_range(self, bare: "SignedRequests", request: RangeRequest) -> ByteRange | None:
        """Request a range once; None if the answer is not the one that was hoped for."""
        began = time.monotonic()
        condition = {"If-Match": request.tag} if request.tag else {}
        answer = bare.get(request.key, {"Range": f"bytes={request.start}-{request.end - 1}"} | condition)
        wait, body = time.monotonic() - began, answer.raw
        try:
            if answer.status_code != 206 or not answer.headers.keys() >= RANGE_HEADERS:
                return None
            count = self._allowed(int(answer.headers["Content-Length"]), request.end - request.start)
            size = self._size(request, answer.headers["Content-Range"], count)
            data = request.memory[:count]
            fill(data, body)
            transfer = time.monotonic() - began - wait
            part = ByteRange(len(data), answer.headers["ETag"], size, wait, transfer)
            if request.answer is not None and count > part.count:
                request.answer.hold(body, request.start + part.count, part)
                body = None
            return part
        finally:
            if body is not None:
                body.close()

    def _read_plainly(self, request: RangeRequest) -> ByteRange:
        start, memory = request.start, request.memory
        parameters = {"Key": request.key, "Range": f"bytes={start}-{start + len(memory) - 1}"}
        condition = {"IfMatch": request.tag} if request.tag else {}
        data, answer = self.read(request.doing, len(memory), **parameters, **condition)
        if "ContentRange" in answer:
            size = self._size(request, answer["ContentRange"], len(data))
        elif start:
            raise RemoteError(f"{request.doing} at {self.url} failed: the server does not honour Range")
        else:
            size = len(data)
        memory[: len(data)] = data
        return ByteRange(len(data), answer.get("ETag", ""), size)

    def _size(self, request: RangeRequest, content_range: str, count: int) -> int:
        """The size of an object of which the bytes came that were asked for. RemoteError if others came."""
        try:
            first, end, size = http_rules.content_range(content_range)
            if size is None:
                raise ValueError(f"Content-Range is {content_range!r}, without the size")
        except ValueError as error:
            raise self._malformed(request.doing, error) from None
        if (first, end) != (request.start, request.start + count):
            raise RemoteError(
                f"{request.doing} at {self.url} gave other bytes than those that were asked for"
            )
        return size

    def _malformed(self, doing: str, error: Exception) -> RemoteError:
        return RemoteError(
            f"{doing} at {self.url} failed: the answer is malformed: {_one_line(error)}",
            "is there a proxy in between?",
        )

    def _allowed(self, size: int, limit: int) -> int:
        if not 0 <= size <= limit:
            raise RemoteError(f"{self.url} sends {size:,} bytes where at most {limit:,} were asked for")
        return size

    def request(self, doing: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a request once; for the errors see `call`."""
        with self._errors(doing):
            return self._make(operation, parameters)

    def _make(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        check_stop()
        answer: dict[str, Any] = getattr(self._boto, operation)(Bucket=self.location.bucket, **parameters)
        return answer

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Turn what may go wrong with a request into one family of errors."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.parsers import ResponseParserError
        from urllib3.exceptions import HTTPError

        try:
            yield
        except RegError:
            raise
        except HTTPClientError as error:
            if isinstance(stopped := error.__context__, CancelledError):
                raise stopped from None
            raise self._translated(doing, error) from error
        except (BotoCoreError, ClientError, ResponseParserError, HTTPError, HTTPException, OSError) as error:
            raise self._translated(doing, error) from error
        except (ValueError, KeyError, TypeError) as error:
            if "_boto" in vars(self):
                raise self._malformed(doing, error) from error
            raise self._translated(doing, error) from error

    def _translated(self, doing: str, error: BaseException) -> RegError:
        from botocore import exceptions as boto
        from botocore.parsers import ResponseParserError

        failure = f"{doing} at {self.url} failed"
        if isinstance(error, boto.ClientError):
            answer = error.response.get("ResponseMetadata", {})
            status = int(answer.get("HTTPStatusCode", 0))
            pause = http_rules.pause_seconds(answer.get("HTTPHeaders", {}))
            code = str(error.response.get("Error", {}).get("Code", status))
            is_write = error.operation_name in _WRITES
            hint = _HINTS.get(code, "")
            if not hint and status in (401, 403):
                hint = _DENIED + (_DEMANDS if is_write else "")
            elif not hint and is_write and status in (400, 501):
                hint = _UNKNOWN_HEADER
            elif status in _PASSING_STATUS:
                hint = http_rules.later(pause)
            detail = str(error.response.get("Error", {}).get("Message", ""))[:200]
            return RejectedError(f"{failure}: {code} {detail}".rstrip(), hint, status, code, pause)
        if isinstance(error, (boto.NoCredentialsError, boto.PartialCredentialsError)):
            hint = "set AWS_PROFILE or AWS_ACCESS_KEY_ID; a public bucket is read with ?anonymous=yes"
            return RemoteError(f"{failure}: no credentials were found", hint)
        if isinstance(error, ResponseParserError):
            return UnansweredError(f"{failure}: the answer is not from S3", "is there a proxy in between?")
        if isinstance(error, (*_mistakes(), ValueError)):
            return InputError(
                f"{failure}: {_one_line(error)}", "check AWS_PROFILE, ~/.aws/config and the URL"
            )
        message = f"{failure}: {_one_line(error) or type(error).__name__}"
        if isinstance(error, (boto.SSOError, boto.TokenRetrievalError)):
            profile = self.location.option("profile") or os.environ.get("AWS_PROFILE")
            return RemoteError(
                message, f"run aws sso login{f' --profile {quote(profile)}' if profile else ''}"
            )
        if isinstance(error, boto.MissingDependencyException):
            return HostError(message, "install what it names")
        if not _may_pass(error):
            hint = requests.final_hint(error, "AWS_CA_BUNDLE")
            proxies = http_rules.proxy_variables()
            return RemoteError(message, hint or f"check AWS_PROFILE, ~/.aws/config and {proxies}")
        hint = "check the network and the endpoint (AWS_ENDPOINT_URL)"
        return requests.unanswered(message, error, hint, "AWS_CA_BUNDLE")

    def _learn(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        """Make bare requests from now on as this usual one is made."""
        from onnxreg.registry.store.s3.botocore_client import SignedRequests

        self._bare = self._bare or SignedRequests.like(self._boto, self._session, params, context)

    @cached_property
    def _session(self) -> Any:
        from onnxreg.registry.store.s3.botocore_client import new_session

        return new_session(self.location.option("profile"))

    @cached_property
    def _boto(self) -> Any:
        from onnxreg.registry.store.s3.botocore_client import new_client

        client = new_client(self._session, self.location)
        client.meta.events.register("before-call.s3.GetObject", self._learn)
        return client


def _arrived(body: Any, size: int, limit: int) -> bytearray:
    """The bytes of an answer, as many as it promised, in memory that grows as they arrive.

    The last read meets the end, where botocore compares the checksum.
    """
    data = bytearray()
    while len(data) <= limit and (part := body.read(CHUNK_BYTES)):
        check_stop()
        data += part
    if len(data) < size:
        raise ConnectionError(f"{len(data):,} of {size:,} bytes arrived")
    return data


def is_passing(error: Exception) -> bool:
    """True if a request that failed so may succeed the next time."""
    return isinstance(error, UnansweredError) or (isinstance(error, RejectedError) and error.is_passing)


def _may_pass(error: BaseException) -> bool:
    """True for a connection that failed, broke or was silent, and for bytes that changed on their way."""
    from botocore import exceptions as boto

    if isinstance(error, boto.ProxyConnectionError):
        return False
    if not isinstance(error, boto.BotoCoreError):
        return True
    if type(error) is boto.HTTPClientError:
        return isinstance(error.__context__, OSError | HTTPException)
    kinds = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, boto.ChecksumError)
    return isinstance(error, (*kinds, boto.FlexibleChecksumError))


def _mistakes() -> tuple[type[Exception], ...]:
    """Errors of botocore for a request or a configuration that can never work."""
    from botocore import exceptions as boto

    return (
        boto.ConfigNotFound,
        boto.ConfigParseError,
        boto.InvalidConfigError,
        boto.InvalidRegionError,
        boto.NoRegionError,
        boto.ParamValidationError,
        boto.ProfileNotFound,
        boto.UnknownCredentialError,
        boto.ValidationError,
    )


def _one_line(error: BaseException) -> str:
    """An error's text without the queries of URLs: those of signed URLs are as good as credentials."""
    return re.sub(r"""\?[^\s"']+""", "", " ".join(str(error).split()))[:300]
