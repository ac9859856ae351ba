"""JSON pointers (RFC 6901), patterns of them, and paths relative to one, as texts."""

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


def relative(pointer: str, path: str) -> str:
    """The place at a path from another: its keys and indexes as in a pointer, and `..` for one level up."""
    for step in path.split("/") if path else ():
        pointer = pointer.rpartition("/")[0] if step == ".." else f"{pointer}/{step}"
    return pointer
