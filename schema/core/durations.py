"""Lengths of time as people write them: `90s`, `15min`, `12h`, `7d`, `2w`."""

import re

from onnxreg.schema.core.errors import InputError

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}

_DURATION = re.compile(r"([0-9]{1,9})([A-Za-z]*)")


def parse_duration(text: str) -> int:
    """DURATION = DIGITS UNIT: whole seconds; anything else is an InputError."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in UNITS:
        units = ", ".join(UNITS)
        raise InputError(f"not a length of time: {text[:40]!r}", f"write 12h or 7d; units are {units}")
    return int(match[1]) * UNITS[match[2]]
