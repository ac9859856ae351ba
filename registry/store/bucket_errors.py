"""Errors of requests to a bucket: what obstore raises, as one family of ours.

obstore describes a failure in a text: a summary, which has the server's answer, then its causes, which nobody is shown.
"""

import re

from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.requests import RefusedError, UnansweredError
from onnxreg.schema.core.errors import RegError, RemoteError

GARBLED = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
"""Codes for bytes that were changed on their way."""
PASSING_CODES = GARBLED | {
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "SlowDown",
}
CHECK = "check the bucket's name, the endpoint (AWS_ENDPOINT_URL), the region (AWS_REGION) and the credentials (AWS_PROFILE)"
DENIED = "check that these credentials (AWS_PROFILE) may do this; who may not list a bucket cannot see what is absent"
UNKNOWN_HEADER = (
    "a registry needs a server that takes SHA-256 checksums (x-amz-checksum-sha256) and conditions "
    "(If-None-Match, If-Match)"
)
CAUSES = {
    "InvalidCertificate": "certificate verify failed",
    "InvalidMessage": "no TLS",
    "AlertReceived": "no TLS",
    "TunnelUnsuccessful": "the proxy refuses",
    "BareRedirect": "the bucket is elsewhere",
    "credential provider": "there are no credentials any more",
}
"""Causes that no further try can change: words in the text, and what they mean."""
_STATUS = re.compile(r"\bcode: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_REASON = re.compile(r'message: "([^"]{1,100})"|\b(TimedOut|UnexpectedEof|IncompleteMessage)\b')


def translated(failure: str, text: str, is_write: bool) -> RegError:
    """The error for a text of obstore. RefusedError if the server answered, UnansweredError if the next try may succeed."""
    summary, _, causes = text.partition("\n\nDebug source:")
    status = _STATUS.search(summary)
    if status is not None:
        number = int(status[1])
        code = match[1] if (match := _CODE.search(summary)) else str(number)
        detail = " ".join(match[1].split())[:200] if (match := _MESSAGE.search(summary)) else ""
        is_unknown = is_write and number in (400, 501)
        hint = UNKNOWN_HEADER if is_unknown else DENIED if code in ("403", "AccessDenied") else CHECK
        return RefusedError(f"{failure}: {code} {detail}".rstrip(), number, hint, reason=code)
    for word, meaning in CAUSES.items():
        if word in text:
            certificates = (
                f"the certificate (AWS_CA_BUNDLE, SSL_CERT_FILE) and {http_rules.proxy_variables()}"
            )
            return RemoteError(f"{failure}: {meaning}", f"{CHECK}, {certificates}")
    if "HTTP error" not in summary:
        problem = re.sub(r"\?\S+", "", " ".join(summary.split()))[:200]
        return RemoteError(f"{failure}: the answer is malformed: {problem}", "is there a proxy in between?")
    reasons = [first or second for first, second in _REASON.findall(causes)]
    reason = reasons[-1] if reasons else "the connection broke"
    if reason == "TimedOut":
        reason = "the server was silent, or took too long"
    return UnansweredError(f"{failure}: {reason}", "check the network and the endpoint (AWS_ENDPOINT_URL)")


def is_passing(error: Exception) -> bool:
    """True if a request that failed so may succeed the next time."""
    is_code = isinstance(error, RefusedError) and error.reason in PASSING_CODES
    return is_code or requests.is_passing(error)


def is_busy(error: Exception) -> bool:
    """True if the server itself, no gateway, said that it did not do what was asked for, and may do it the next time."""
    return isinstance(error, RefusedError) and error.status not in (502, 504) and is_passing(error)


def is_absence(error: RefusedError) -> bool:
    """True if the object is not there, in a bucket that is."""
    return error.status == 404 and error.reason not in ("NoSuchBucket", "ContainerNotFound")
