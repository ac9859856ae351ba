"""Which part of something a request gets, if any: RFC 9110, sections 13 (conditions) and 14 (ranges). Pure.

Entity tags are strong. There is no date of modification, so conditions on dates do not count, as section 13.1.3 has it.
A request for several ranges at once is answered with the whole, which section 14.2 allows: nobody gets one byte of a
file a thousand times over.
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
    """The outcome for something of `size` bytes with the entity tag `tag`, quotes included.

    `headers`: by lower-case name; a header that came several times is one, joined by commas.
    """
    wanted = headers.get("if-match")
    if wanted is not None and not _matches(wanted, tag, weak=False):
        return RangeDecision(412)
    known = headers.get("if-none-match")
    if known is not None and _matches(known, tag, weak=True):
        return RangeDecision(304)
    span = headers.get("range")
    if method == "GET" and span is not None and headers.get("if-range", tag).strip() == tag:
        return _part(span, size)
    return RangeDecision(200, 0, size)


def _matches(condition: str, tag: str, weak: bool) -> bool:
    """Whether the tag is one of those listed; a weak one in the list counts only where weak comparison will do."""
    if condition.strip() == "*":
        return True
    opaque = tag.strip('"')
    return any(found[2] == opaque and (weak or not found[1]) for found in _TAG.finditer(condition))


def _part(span: str, size: int) -> RangeDecision:
    found = _RANGE.fullmatch(span)
    if found is None or not (found[1] or found[2]):
        return RangeDecision(200, 0, size)
    if not found[1]:
        start, stop = max(0, size - int(found[2])), size
    elif found[2] and int(found[2]) < int(found[1]):
        return RangeDecision(200, 0, size)
    else:
        start = int(found[1])
        stop = min(size, int(found[2]) + 1) if found[2] else size
    return RangeDecision(206, start, stop) if start < stop else RangeDecision(416)
