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
HINTS = {
    "AuthorizationHeaderMalformed": "check the region (AWS_REGION, or ?region= in the URL)",
    "ContainerNotFound": "check the container's name and the account",
    "ExpiredToken": "the credentials have expired: get new ones, then run the command again",
    "InvalidAccessKeyId": "check which credentials are used (AWS_PROFILE, AWS_ACCESS_KEY_ID)",
    "NoSuchBucket": "check the bucket's name and the endpoint (AWS_ENDPOINT_URL)",
    "RequestTimeTooSkewed": "set this machine's clock",
    "SignatureDoesNotMatch": "check the secret key of the credentials that are used (AWS_PROFILE)",
}
DENIED = "check that these credentials (AWS_PROFILE) may do this; who may not list a bucket cannot see what is absent"
DEMANDS = (
    "; a bucket policy may demand headers that reg does not send: default encryption of the bucket needs none"
)
UNKNOWN_HEADER = (
    "a registry needs a server that takes SHA-256 checksums (x-amz-checksum-sha256) and conditions "
    "(If-None-Match, If-Match)"
)
CAUSES: dict[str, tuple[str, str]] = {
    "InvalidCertificate": (
        "certificate verify failed",
        "if the server is right, name its certificate in AWS_CA_BUNDLE or SSL_CERT_FILE",
    ),
    "InvalidMessage": ("no TLS", "does the server speak TLS there, without certificates of its clients?"),
    "AlertReceived": ("no TLS", "does the server speak TLS there, without certificates of its clients?"),
    "TunnelUnsuccessful": ("the proxy refuses", "check {proxies}"),
    "BareRedirect": ("the bucket is elsewhere", "check the region (AWS_REGION, or ?region= in the URL)"),
    "credential provider": (
        "there are no credentials any more",
        "log in again: aws sso login, or get new ones",
    ),
}
"""Causes that no further try can change: words in the text, what they mean, and a hint."""
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
        hint = HINTS.get(code, "")
        if not hint and number in (401, 403):
            hint = DENIED + (DEMANDS if is_write else "")
        elif not hint and is_write and number in (400, 501):
            hint = UNKNOWN_HEADER
        return RefusedError(f"{failure}: {code} {detail}".rstrip(), number, hint, reason=code)
    for word, (meaning, hint) in CAUSES.items():
        if word in text:
            return RemoteError(f"{failure}: {meaning}", hint.format(proxies=http_rules.proxy_variables()))
    if "HTTP error" not in summary:
        problem = re.sub(r"\?\S+", "", " ".join(summary.split()))[:200]
        return RemoteError(f"{failure}: the answer is malformed: {problem}", "is there a proxy in between?")
    reasons = [first or second for first, second in _REASON.findall(causes)]
    reason = reasons[-1] if reasons else "the connection broke"
    hint = "check the network and the endpoint (AWS_ENDPOINT_URL)"
    if reason == "TimedOut":
        return UnansweredError(f"{failure}: the server was silent, or took too long", hint)
    return UnansweredError(f"{failure}: {reason}", hint)


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
