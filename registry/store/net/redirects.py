"""The places to which an answer may redirect: every hop is held to the rules of a registry's own URL.

A hop never goes from TLS to plain HTTP, from the internet into a private network or to this machine, to another scheme
(`file:`), or to a URL with a user name in it. Messages name hosts only: the query of a signed address is a secret.
"""

import socket
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

from onnxreg.schema.core.errors import RemoteError

MAX_HOPS = 10
MAX_BODY = 2**20
"""Bytes of an answer that redirects."""


def target(url: str, location: str | None) -> str:
    """The URL to which a request for `url` is redirected. RemoteError if it must not be followed."""
    here = urlsplit(url)
    try:
        there = urlsplit(urljoin(url, location or ""))
        port = there.port
    except ValueError:
        raise _refused(here, "to a malformed URL") from None
    if not location or not there.hostname or (port is not None and not port):
        raise _refused(here, "without a URL to go on to")
    if there.scheme not in ("http", "https"):
        raise _refused(here, f"to a {there.scheme[:20]}: URL")
    if there.username is not None or there.password is not None:
        raise _refused(here, "to a URL with credentials in it")
    if there.scheme == "http" and (here.scheme == "https" or not is_loopback(there.hostname)):
        raise _refused(here, f"to plain http:// at {there.hostname}")
    if not is_private(there.hostname) or is_private(here.hostname or ""):
        return there.geturl()
    raise _refused(here, f"into a private network, to {there.hostname}")


def check_hops(url: str, hops: int) -> None:
    """RemoteError if a request was redirected too often."""
    if hops >= MAX_HOPS:
        raise _refused(urlsplit(url), f"more than {MAX_HOPS} times")


def check_size(url: str, size: int) -> None:
    """RemoteError if an answer that redirects has too many bytes."""
    if size > MAX_BODY:
        raise _refused(urlsplit(url), "and does not come to an end")


def _refused(here: SplitResult, where: str) -> RemoteError:
    shown = f"{here.scheme}://{here.netloc.rpartition('@')[2]}{here.path}"
    return RemoteError(f"{shown} redirects {where}", "this is not followed; check the URL of the registry")


def is_loopback(host: str) -> bool:
    """Whether a host, by its name alone, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_private(host: str) -> bool:
    """Whether a host is in a private network or is this machine; a name that cannot be resolved here is not."""
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return any(_is_inside(address.partition("%")[0]) for address in found)


def _is_inside(address: str) -> bool:
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return not parsed.is_global
