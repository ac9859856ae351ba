"""Bounded reading of TOML files: input that costs the parser minutes, or the whole stack, is refused first."""

import re
from collections.abc import Iterator
from typing import Any

from onnxreg.schema.core.errors import InputError

MAX_BYTES = 4 * 2**20
MAX_KEY_PARTS = 32
"""The most parts of a dotted key or of a table's name. The parser's time grows with their square."""

_PART = re.compile(r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*(\.[ \t]*)?""")


def read_toml(data: bytes, label: str) -> dict[str, Any]:
    """Parse a TOML file. InputError, naming `label`, if it is not TOML, is too large or too deep, or has a key of too many parts."""
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{label} is larger than {MAX_BYTES} bytes", "split it, or remove what is no longer needed"
        )
    try:
        text = data.decode()
        for number, line in enumerate(text.split("\n"), 1):
            if line.count(".") >= MAX_KEY_PARTS and max(_joined(line), default=0) > MAX_KEY_PARTS:
                raise InputError(f"{label} has a key of more than {MAX_KEY_PARTS} parts in line {number}")
        import tomllib

        return tomllib.loads(text)
    except RecursionError:
        raise InputError(
            f"{label} is nested too deeply", "no value in it needs more than three levels"
        ) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{label} is not TOML: {error}") from error


def _joined(line: str) -> Iterator[int]:
    """Count the parts of each dotted key of a line. A quoted text is one part."""
    parts, end = 0, -1
    for match in _PART.finditer(line):
        parts = parts + 1 if match.start() == end else 1
        end = match.end() if match[1] else -1
        yield parts
