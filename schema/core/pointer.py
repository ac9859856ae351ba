"""JSON pointers (RFC 6901), patterns of them, and relative ones (draft-bhutton-relative-json-pointer), as texts."""

import re
from typing import Any

from onnxreg.schema.core.errors import InputError

EACH = "*"
"""The token of a pattern that means every item of a list or every key of an object."""
ABSENT: Any = object()
"""The result for a place that does not exist."""


def child(pointer: str, token: str | int) -> str:
    """The pointer of a key or index below a place."""
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"


def tokens(pointer: str) -> list[str]:
    """The keys and indexes of a pointer. InputError if it is malformed."""
    if pointer and not pointer.startswith("/"):
        raise InputError(f"not a JSON pointer: {pointer[:80]!r}", "it is empty or begins with a slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _children(value: Any) -> dict[str, Any]:
    """The items of an object or a list by their keys or indexes; keys in ascending order."""
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def find(value: Any, pointer: str) -> Any:
    """The value at a place; `ABSENT` if there is none."""
    for token in tokens(pointer):
        value = _children(value).get(token, ABSENT)
    return value


def expand(value: Any, pattern: str) -> list[str]:
    """The places that a pattern means, in the order of the document; keys in ascending order."""
    locations = [("", value)]
    for token in tokens(pattern):
        locations = [
            (child(location, key), inside)
            for location, item in locations
            for key, inside in _children(item).items()
            if token in (EACH, key)
        ]
    return [location for location, _ in locations]


def relative(pointer: str, text: str) -> tuple[str, bool]:
    """The place of a relative pointer, and True if it means the key or index there (`1#`), not the value (`1/name`).

    InputError if it is malformed, or goes above the document, which has no key itself.
    """
    match = re.fullmatch(r"(0|[1-9][0-9]*)(#|(?:/.*)?)", text, re.DOTALL)
    parts = pointer.split("/")
    levels = int(match[1]) if match else len(parts)
    if match is None or levels >= len(parts) - (match[2] == "#"):
        raise InputError(
            f"not a relative JSON pointer below {pointer!r}: {text[:80]!r}", "write 0/name or 1#"
        )
    above = "/".join(parts[: len(parts) - levels])
    return (above, True) if match[2] == "#" else (f"{above}{match[2]}", False)
