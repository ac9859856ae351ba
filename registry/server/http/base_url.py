"""The start of the URLs that a server names in its answers."""

import re

from starlette.requests import Request

from onnxreg.registry.server.http.responses import HttpError
from onnxreg.registry.server.settings import Settings

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


def base_url(request: Request, settings: Settings) -> str:
    """The base URL for clients: the one of the operator, else that of this request. HttpError for a bad Host."""
    if settings.url is not None:
        return settings.url
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise HttpError(400, "the Host header is missing or malformed", "name the server as the URL does")
    return f"{request.scope['scheme']}://{host}"
