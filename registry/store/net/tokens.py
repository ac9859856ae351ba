"""The bearer token of a web server, from the environment: `REG_TOKEN_<HOST>`.

One variable belongs to one host, so that no token ever goes to another one: not to a remote of another name, and not
to the target of a redirect. It goes over TLS, or to this machine itself.
"""

import re
import urllib.request
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import SplitResult, urlsplit

from onnxreg.registry.store.net import redirects
from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

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
        fp.close()
        hops: int = getattr(req, "hops", 0)
        redirects.check_hops(req.full_url, hops)
        url = redirects.target(req.full_url, headers.get("Location"))
        redirected: Any = self.redirect_request(req, fp, code, msg, headers, url)
        redirected.hops = hops + 1
        token: Any = req.unredirected_hdrs.get("Authorization")
        if token and _origin(redirected.full_url) == _origin(req.full_url):
            redirected.add_unredirected_header("Authorization", token)
        return self.parent.open(redirected, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts: SplitResult = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
