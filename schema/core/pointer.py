"""JSON pointers (RFC 6901), such as `/artifacts/0/path`, and patterns of pointers, such as `/artifacts/*/path`."""

from typing import Any

from onnxreg.schema.core.errors import InputError

ABSENT: Any = object()  # the result of `find` if there is no value


def child(pointer: str, token: str | int) -> str:
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"


def tokens(pointer: str) -> list[str]:
    """Split a pointer into keys and indexes. Raise InputError if it is malformed."""
    if pointer and not pointer.startswith("/"):
        raise InputError(f"not a JSON pointer: {pointer[:80]!r}", "it is empty or begins with a slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _children(value: Any) -> dict[str, Any]:
    """Return the values of an object by key, sorted, or the items of a list by index. Other values have no children."""
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def find(value: Any, pointer: str) -> Any:
    """Return the value at a pointer, or `ABSENT`."""
    for token in tokens(pointer):
        value = _children(value).get(token, ABSENT)
    return value


def expand(value: Any, pattern: str) -> list[str]:
    """Return the pointers that match a pattern, in order. `*` matches every index of a list and every key of an object."""
    places = {"": value}
    for token in tokens(pattern):
        places = {
            child(location, key): inside
            for location, item in places.items()
            for key, inside in _children(item).items()
            if token in ("*", key)
        }
    return list(places)


def relative(pointer: str, path: str) -> str:
    """Follow a path from a pointer: `../1/b` leads from `/a/0` to `/a/1/b`."""
    for step in path.split("/") if path else ():
        pointer = pointer.rpartition("/")[0] if step == ".." else f"{pointer}/{step}"
    return pointer
