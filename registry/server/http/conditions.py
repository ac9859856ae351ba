"""Conditional requests and ranges: RFC 9110, sections 13 (conditions) and 14 (ranges). Pure.

Entity tags are strong. There is no date of modification, so conditions on dates do not count, as in section
13.1.3. The answer to a request for several ranges is the whole file, which section 14.2 allows: nobody can
request one byte a thousand times.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RangeDecision:
    """A status (200, 206, 304, 412 or 416), and for 200 and 206 the bytes from `start` up to `stop`."""

    status: int
    start: int = 0
    stop: int = 0


def decide(method: str, headers: Mapping[str, str], tag: str, size: int) -> RangeDecision:
    """Decide the answer for a file of `size` bytes with the entity tag `tag`, quotes included.

    `headers`: by lower-case name; repeated headers are joined by commas.
    """
    if_match = headers.get("if-match")
    if if_match is not None and not _matches(if_match, tag, weak=False):
        return RangeDecision(412)
    if_none_match = headers.get("if-none-match")
    if if_none_match is not None and _matches(if_none_match, tag, weak=True):
        return RangeDecision(304)
    range_header = headers.get("range")
    if method == "GET" and range_header is not None and headers.get("if-range", tag).strip() == tag:
        return _part(range_header, size)
    return RangeDecision(200, 0, size)


def _matches(condition: str, tag: str, weak: bool) -> bool:
    """Check if the condition lists the tag; a weak tag in the list counts only for weak comparison."""
    if condition.strip() == "*":
        return True
    opaque = tag.strip('"')
    return any(match[2] == opaque and (weak or not match[1]) for match in _TAG.finditer(condition))


def _part(range_header: str, size: int) -> RangeDecision:
    match = _RANGE.fullmatch(range_header)
    if match is None or not (match[1] or match[2]):
        return RangeDecision(200, 0, size)
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    elif match[2] and int(match[2]) < int(match[1]):
        return RangeDecision(200, 0, size)
    else:
        start = int(match[1])
        stop = min(size, int(match[2]) + 1) if match[2] else size
    return RangeDecision(206, start, stop) if start < stop else RangeDecision(416)
