"""One request to an OCI server, or to its token endpoint, and the whole answer."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from onnxreg.registry.store.http import PASSING_STATUS, RefusedError, make_opener, read_body
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.schema.core.errors import why

MAX_ANSWER_BYTES = 4 * 2**20
"""Bytes of a manifest, an index or a page of referrers, as the distribution specification recommends."""
MAX_ERROR_BYTES = 2**16
_opener = lru_cache(make_opener)
"""Of a server: it has read the trusted certificates."""


class Answer(NamedTuple):
    """The answer to a request; an error of the server is one, too."""

    status: int
    headers: Message
    data: bytes


def exchange(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    authorization: Mapping[str, str] | None = None,
    body: Any = None,
) -> Answer:
    """Send a request; the `body`, bytes or a stream, is closed. No redirect takes the `authorization` to another server.

    RefusedError for a status that may pass, UnansweredError without an answer, RemoteError for one that is too long.
    """
    request = urllib.request.Request(url, data=body, headers=dict(headers or {}), method=method)
    for name, value in (authorization or {}).items():
        request.add_unredirected_header(name, value)
    shown = url.partition("?")[0]
    try:
        with _opener(urlunsplit((*urlsplit(url)[:2], "", "", ""))).open(
            request, timeout=requests.timeout()
        ) as answer:
            content = b"" if method == "HEAD" else bytes(read_body(answer, shown, MAX_ANSWER_BYTES))
            return Answer(answer.status, answer.headers, content)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in PASSING_STATUS:
                pause = http_rules.pause_seconds(error.headers)
                message = f"{shown} answers {error.code} {error.reason}"
                raise RefusedError(message, error.code, "", pause) from None
            return Answer(error.code, error.headers, b"" if method == "HEAD" else error.read(MAX_ERROR_BYTES))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise requests.unanswered(f"{method} {shown} failed: {why(reason)}", error) from error
    finally:
        if hasattr(body, "close"):
            body.close()
