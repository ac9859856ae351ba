"""Strict reading of response headers. Contradictory headers are a ValueError that names the header."""

import re
from collections.abc import Mapping
from email.message import Message

_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,1000}"')
_LENGTH = re.compile(r"[0-9]{1,19}")


def content_range(text: str) -> tuple[int, int, int]:
    """First byte, end and whole size of `bytes FIRST-LAST/SIZE`."""
    match = _RANGE.fullmatch(text)
    first, last, size = map(int, match.groups()) if match else (1, 0, 0)
    if not first <= last < size:
        raise ValueError(f"Content-Range is {text[:60]!r}")
    return first, last + 1, size


def entity_tag(headers: Mapping[str, str] | Message) -> str:
    """The ETag, which is sent back later; empty if there is none that could be."""
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
