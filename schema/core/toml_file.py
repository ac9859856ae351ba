"""TOML files of a user, read within bounds: what a parser would take minutes or the whole stack for is refused first."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from onnxreg.schema.core.errors import InputError

MAX_BYTES = 4 * 2**20
MAX_KEY_PARTS = 32
"""So many parts a dotted key or the name of a table has at most. The parser's time grows with their square."""

_PART = re.compile(r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*(\.[ \t]*)?""")


def read_toml(data: bytes, what: str) -> dict[str, Any]:
    """Parse a TOML file. InputError, naming `what`, if it is none, or too large, too deep, or has a key of too many parts."""
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{what} is larger than {MAX_BYTES} bytes", "split it, or remove what is no longer needed"
        )
    try:
        text = data.decode()
        for number, line in enumerate(text.split("\n"), 1):
            if line.count(".") >= MAX_KEY_PARTS and max(_joined(line), default=0) > MAX_KEY_PARTS:
                raise InputError(f"{what} has a key of more than {MAX_KEY_PARTS} parts in line {number}")
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(
            f"{what} is nested too deeply", "no value in it needs more than three levels"
        ) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{what} is not TOML: {error}") from error


def _joined(line: str) -> Iterator[int]:
    """How many parts each dotted key of a line has. A quoted text is one part."""
    parts, end = 0, -1
    for match in _PART.finditer(line):
        parts = parts + 1 if match.start() == end else 1
        end = match.end() if match[1] else -1
        yield parts
