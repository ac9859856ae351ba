"""Rules for HTTP: where a redirect may go, which headers contradict each other, and who gets a token.

A hop never goes from TLS to plain HTTP, from the internet into a private network or to this machine, to
another scheme (`file:`), or to a URL with a user name in it. Messages name hosts only: the query of a signed
address is a secret. The bearer token of `REG_TOKEN_<HOST>` goes to that one host only, over TLS or to this machine
itself; no redirect takes it along.

A server says when to come back by `Retry-After`, in seconds or as a date, or by `RateLimit`.
"""

import os
import re
import socket
import string
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPMessage
from ipaddress import IPv6Address, ip_address
from typing import IO, Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError, RemoteError

MAX_HOPS = 10


def target(url: str, location: str | None) -> str:
    """The URL to which a request for `url` is redirected. RemoteError if it must not be followed."""
    source = urlsplit(url)
    try:
        encoded = quote(location or "", encoding="iso-8859-1", safe=string.punctuation)
        destination = urlsplit(urljoin(url, encoded))
        port = destination.port
    except ValueError:
        raise _refused(source, "to a malformed URL") from None
    if not location or not destination.hostname or (port is not None and not port):
        raise _refused(source, "without a URL to go on to")
    if destination.scheme not in ("http", "https"):
        raise _refused(source, f"to a {destination.scheme[:20]}: URL")
    if destination.username is not None or destination.password is not None:
        raise _refused(source, "to a URL with credentials in it")
    if destination.scheme == "http" and (source.scheme == "https" or not is_loopback(destination.hostname)):
        raise _refused(source, f"to plain http:// at {destination.hostname}")
    if not is_private(destination.hostname) or is_private(source.hostname or ""):
        return destination.geturl()
    raise _refused(source, f"into a private network, to {destination.hostname}")


def _refused(source: SplitResult, reason: str) -> RemoteError:
    source_text = f"{source.scheme}://{source.netloc.rpartition('@')[2]}{source.path}"
    return RemoteError(
        f"{source_text} redirects {reason}", "this is not followed; check the URL of the registry"
    )


def proxy_variables() -> str:
    """The variables of the environment that name a proxy."""
    names = [name for name, value in os.environ.items() if value and name.lower().endswith("_proxy")]
    return ", ".join(sorted(name for name in names if name.lower() != "no_proxy")) or "the proxy"


def is_loopback(host: str) -> bool:
    """True if a host, by its name alone, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_private(host: str) -> bool:
    """True if a host is in a private network or is this machine.

    A name that cannot be resolved here is not.
    """
    try:
        addresses = {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return any(_is_inside(address.partition("%")[0]) for address in addresses)


def _is_inside(address: str) -> bool:
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return not parsed.is_global


_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,1000}"')
_LENGTH = re.compile(r"[0-9]{1,19}")


def content_range(text: str) -> tuple[int, int, int | None]:
    """First byte, end and whole size of `bytes FIRST-LAST/SIZE`; the size of `bytes FIRST-LAST/*` is None."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    size = int(match[3]) if match and match[3] != "*" else None
    if not first <= last < (last + 1 if size is None else size):
        raise ValueError(f"Content-Range is {text[:60]!r}")
    return first, last + 1, size


def entity_tag(headers: Mapping[str, str] | Message) -> str:
    """The ETag, which is sent back later; empty if the answer has none that can be."""
    text = headers.get("ETag") or ""
    return text if _TAG.fullmatch(text) else ""


def check_framing(headers: Message) -> None:
    """Check the framing of the body. ValueError if its end is not clear, or if it is compressed without a request."""
    lengths = {part.strip() for value in headers.get_all("Content-Length", ()) for part in value.split(",")}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise ValueError(f"Content-Length is {', '.join(sorted(lengths))[:60]!r}")
    packed = headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise ValueError(f"Content-Encoding is {packed[:20]!r}, which was not asked for")


_SECONDS = re.compile(r"[0-9]{1,9}")
_NO_QUOTA = re.compile(r"\b(?:r|remaining)=0\b.*\b(?:t|reset)=([0-9]{1,9})\b")
"""`RateLimit` of a client that has nothing left, by the newest and by the older drafts of its standard."""


def pause_seconds(headers: Mapping[str, str] | Message) -> float:
    """The seconds for which a server wants no more requests; 0 if it does not say."""
    fields = {name.lower(): str(value).strip() for name, value in headers.items()}
    retry_after = fields.get("retry-after", "")
    if _SECONDS.fullmatch(retry_after):
        return int(retry_after)
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    quota = _NO_QUOTA.search(fields.get("ratelimit", ""))
    return int(quota[1]) if quota else 0.0


def later(pause: float) -> str:
    """The hint for a request that may succeed later."""
    if not pause:
        return "run the command again later"
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + pause))
    return f"the server wants no requests until {moment}; run the command again then"


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token as RFC 6750 defines it."""


def variable(url: str) -> str:
    """The variable for the host of a URL: in capitals, `-` as two underscores, `.` and the `:` of a port as one."""
    host = urlsplit(url).netloc.upper()
    return environment.TOKEN_PREFIX + re.sub(r"[^A-Z0-9_]", "_", host.replace("-", "__"))


def bearer(url: str) -> dict[str, str]:
    """The header for requests to a URL, empty if no token is set. InputError, without the token, for a malformed one."""
    name = variable(url)
    token = (environment.read(name) or "").strip()
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise InputError(f"{name} holds no bearer token", "it has only letters, digits and -._~+/=")
    return {"Authorization": f"Bearer {token}"}


class SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirect that keeps the rules, and takes the token along only if it stays within the server."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> Any:
        hops: int = getattr(req, "hops", 0)
        try:
            if hops >= MAX_HOPS:
                raise _refused(urlsplit(req.full_url), f"more than {MAX_HOPS} times")
            url = target(req.full_url, headers.get("Location"))
        except RemoteError:
            fp.close()
            raise
        redirected: Any = self.redirect_request(req, fp, code, msg, headers, url)  # an HTTPError reads fp
        fp.close()
        redirected.hops = hops + 1
        redirected.remove_header("Proxy-authorization")  # the next host may be reached without the proxy
        token: Any = req.unredirected_hdrs.get("Authorization")
        if token and _origin(redirected.full_url) == _origin(req.full_url):
            redirected.add_unredirected_header("Authorization", token)
        return self.parent.open(redirected, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts: SplitResult = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
