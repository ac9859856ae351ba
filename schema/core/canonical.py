"""JSON: one canonical encoder (RFC 8785), one strict decoder, and strict readers of decoded values.

The encoder and the decoder refuse the same values. A reader raises InputError for a value of another type; it
needs no pydantic.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from onnxreg.schema.core.errors import InputError

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
BYTES_PER_VALUE = 16
"""A document may have one value for this many bytes: none of ours is as dense as a list of a million zeros."""
Value = TypeVar("Value")

_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIRST_BEYOND_BMP = 0xF0
"""The first byte in UTF-8 of the smallest character that UTF-16 writes as two units, and so sorts otherwise."""


def encode(value: Any, label: str = "document") -> bytes:
    """The RFC 8785 bytes of a JSON value.

    Raises InputError naming `label` for anything that `decode` would refuse: NaN and infinities, whole numbers beyond
    2**53 - 1, lone surrogates, keys that are not strings, types that JSON does not have, more than `MAX_DEPTH` levels.
    """
    try:
        if _check_tree(value, label):
            data = msgspec.json.encode(value, order="sorted")
            if _sorts_alike(data):
                return data
        import rfc8785

        return rfc8785.dumps(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{label} cannot be written as canonical JSON: {error}") from error


def decode(data: bytes, label: str = "document", max_bytes: int = MAX_BYTES) -> Any:
    """Parse JSON as RFC 8785 expects it, or raise InputError naming `label`.

    Refused beyond malformed text: duplicate keys, NaN and infinities, whole numbers beyond 2**53 - 1, lone
    surrogates, more than `MAX_DEPTH` levels, more than `max_bytes` bytes, more than `max_bytes / 16` commas.
    """
    check_size(data, label, max_bytes)
    try:
        value = _PARSER.decode(data.decode("utf-8"))
        if _MAYBE_SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{label} holds a lone surrogate") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise InputError(f"{label} is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise InputError(f"{label} is not valid JSON: {error}") from error
    _check_tree(value, label)
    return value


def check_canonical(data: bytes, label: str = "document") -> None:
    """InputError, naming `label`, for bytes that `encode` writes otherwise. They are JSON that msgspec decoded before.

    A key that a record ignores is first decoded here, and its text may not be UTF-8.
    """
    floats: list[float] = []

    def note(text: str) -> float:
        floats.append(float(text))
        return floats[-1]

    try:
        value = msgspec.json.Decoder(float_hook=note).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{label} is malformed: {error}") from error
    is_plain = _sorts_alike(data) and all(map(_is_written_alike, floats))
    if is_plain and msgspec.json.encode(value, order="sorted") == data:
        return
    if encode(value, label) != data:
        raise InputError(f"{label} is not canonical JSON")


def check_size(data: bytes, label: str = "document", max_bytes: int = MAX_BYTES) -> None:
    """InputError, naming `label`, for a document larger than `decode` reads; writers check before they write."""
    if len(data) > max_bytes:
        raise InputError(f"{label} is too large: {len(data)} bytes, at most {max_bytes} are read")
    if data.count(b",") > max_bytes // BYTES_PER_VALUE:
        raise InputError(f"{label} holds too many values, at most {max_bytes // BYTES_PER_VALUE} are read")


def _sorts_alike(data: bytes) -> bool:
    """True if keys in this text have one order in UTF-8 and in UTF-16."""
    return data.isascii() or max(data) < _FIRST_BEYOND_BMP


def _is_written_alike(number: float) -> bool:
    """True for a float that every JSON writer writes as ECMA-262 does: neither whole nor with an exponent."""
    return 1e-3 < abs(number) < 1e15 and not number.is_integer()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_PARSER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _check_tree(value: Any, label: str) -> bool:
    """Check depth and numbers, level by level. True if msgspec writes the value as RFC 8785 does, but for the order of keys.

    InputError for a number that would not come back as it is written.
    """
    is_plain = True
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        below = [item for container in level for item in _items(container)]
        level = []
        for item in below:
            kind = item.__class__
            if kind is str or kind is bool or item is None:
                continue
            if isinstance(item, (dict, list, tuple)):
                level.append(item)
                is_plain = is_plain and kind in _CONTAINERS and (kind is not dict or all(map(_is_text, item)))
            elif isinstance(item, (int, float)):
                if not -MAX_INTEGER <= item <= MAX_INTEGER and (reason := _beyond(item)):
                    raise InputError(f"{label} holds a {reason}{_at(value, item)}")
                is_plain = is_plain and (kind is int or (kind is float and _is_written_alike(item)))
            else:
                is_plain = False
        if not level:
            return is_plain
    if any(level):
        raise InputError(f"{label} is nested deeper than {MAX_DEPTH} levels")
    return is_plain


_CONTAINERS = frozenset({dict, list, tuple})


def _is_text(value: Any) -> bool:
    return value.__class__ is str


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _beyond(number: float) -> str:
    """The fault of a number whose absolute value is not at most `MAX_INTEGER`, or "".

    A whole float below 1e21 is written without a point (ECMA-262), so the same limit applies to it.
    """
    if isinstance(number, float) and not math.isfinite(number):
        return f"number out of range: {number}"
    is_whole = isinstance(number, int) or (abs(number) < 1e21 and number.is_integer())
    if is_whole:
        text = f"{number:.0f}" if isinstance(number, float) else "beyond 2**53 - 1"
        return f"whole number out of range: {text}"
    return ""


def _at(value: Any, number: float) -> str:
    """The path of a number in a value, such as ` at limits.parity.int8`; "" if the number is the whole value."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, container = stack.pop()
        if not isinstance(container, dict | list | tuple):
            continue
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            inner = f"{path}.{ascii(key).strip(chr(39))[:80]}" if path else ascii(key).strip("'")[:80]
            if item is number:
                return f" at {inner[:200]}"
            stack.append((inner, item))
    return ""


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise InputError(f"not an object: {str(value)[:40]!r}")
    return value


def items(value: Any, read: Callable[[Any], Value]) -> tuple[Value, ...]:
    """A JSON array, each item read by `read`."""
    if not isinstance(value, list):
        raise InputError(f"not an array: {str(value)[:40]!r}")
    return tuple([read(item) for item in value])


def optional(value: Any, read: Callable[[Any], Value]) -> Value | None:
    """Read a value; None if the key is absent or null."""
    return None if value is None else read(value)


def required(value: dict[str, Any], key: str) -> Any:
    """A key that must be there."""
    if key not in value:
        raise InputError(f"{key} is missing")
    return value[key]


def check_keys(value: dict[str, Any], required: set[str], optional: set[str], label: str) -> None:
    """Check the keys of an object. InputError, naming `label`, if a required key is missing or a key is unknown."""
    missing, unknown = required - value.keys(), value.keys() - required - optional
    if missing or unknown:
        words = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        words += [f"has unknown {', '.join(sorted(unknown))[:200]}"] if unknown else []
        raise InputError(f"{label} {' and '.join(words)}")


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise InputError(f"not a string: {str(value)[:40]!r}")
    return value


def count(value: Any) -> int:
    """An integer of at least 0."""
    if type(value) is not int or value < 0:
        raise InputError(f"not a count: {str(value)[:40]!r}")
    return value


def number(value: Any) -> float:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"not a number: {str(value)[:40]!r}")
    return float(value)
