"""Checks of redirects: every hop must keep the rules of a registry's own URL.

A hop never goes from TLS to plain HTTP, from the internet into a private network or to this machine, to
another scheme (`file:`), or to a URL with a user name in it. Messages name hosts only: the query of a signed
address is a secret.
"""

import socket
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

from onnxreg.schema.core.errors import RemoteError

MAX_HOPS = 10
MAX_BODY_BYTES = 2**20
"""Bytes of an answer that redirects."""


def target(url: str, location: str | None) -> str:
    """The URL to which a request for `url` is redirected. RemoteError if it must not be followed."""
    source = urlsplit(url)
    try:
        destination = urlsplit(urljoin(url, location or ""))
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


def check_hops(url: str, hops: int) -> None:
    """RemoteError if a request was redirected too often."""
    if hops >= MAX_HOPS:
        raise _refused(urlsplit(url), f"more than {MAX_HOPS} times")


def check_size(url: str, size: int) -> None:
    """RemoteError if an answer that redirects has too many bytes."""
    if size > MAX_BODY_BYTES:
        raise _refused(urlsplit(url), "and does not come to an end")


def _refused(source: SplitResult, reason: str) -> RemoteError:
    source_text = f"{source.scheme}://{source.netloc.rpartition('@')[2]}{source.path}"
    return RemoteError(
        f"{source_text} redirects {reason}", "this is not followed; check the URL of the registry"
    )


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
