"""JSON: one canonical encoder (RFC 8785), one strict decoder, and strict readers of decoded values.

The encoder and the decoder refuse the same values. A reader raises InputError for a value of another type; it
needs no pydantic.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from operator import call, itemgetter
from typing import Any, NamedTuple, TypeVar

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_path

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
BYTES_PER_VALUE = 16
"""A document may have one value for this many bytes: none of ours is as dense as a list of a million zeros."""
Json = Any
"""A JSON value; the documents above give it a shape."""
Value = TypeVar("Value")

_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
"""Writes a plain value (see `_Tree`) as RFC 8785 does, at a tenth of the cost of the library."""


def encode(value: Any, label: str = "document") -> bytes:
    """The RFC 8785 bytes of a JSON value.

    Raises InputError naming `label` for anything that `decode` would refuse: NaN and infinities, whole numbers beyond
    2**53 - 1, lone surrogates, keys that are not strings, types that JSON does not have, more than `MAX_DEPTH` levels.
    """
    return _write(value, _check_tree(value, label).is_plain, label)


def _write(value: Any, is_plain: bool, label: str) -> bytes:
    if is_plain:
        with suppress(UnicodeEncodeError):
            return _PLAIN.encode(value).encode("utf-8")
    import rfc8785

    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InputError(f"{label} cannot be written as canonical JSON: {error}") from error


def decode(data: bytes, label: str = "document", max_bytes: int = MAX_BYTES) -> Any:
    """Parse JSON as RFC 8785 expects it, or raise InputError naming `label`.

    Refused beyond malformed text: duplicate keys, NaN and infinities, whole numbers beyond 2**53 - 1, lone
    surrogates, more than `MAX_DEPTH` levels, more than `max_bytes` bytes, more than `max_bytes / 16` commas.
    """
    return _read(data, label, max_bytes, False)[0]


def decode_canonical(data: bytes, label: str = "document", max_bytes: int = MAX_BYTES) -> Any:
    """Parse as `decode` does; InputError also if `encode` writes the value in other bytes."""
    value, is_plain = _read(data, label, max_bytes, True)
    if _write(value, is_plain, label) != data:
        raise InputError(f"{label} is not canonical JSON")
    return value


def _read(data: bytes, label: str, max_bytes: int, may_be_plain: bool) -> tuple[Any, bool]:
    """The value, and True if it is plain (see `_Tree`)."""
    check_size(data, label, max_bytes)
    try:
        text = data.decode("utf-8")
        value = _PARSER.decode(text)
        tree = _check_tree(value, label, may_be_plain)
        if not _has_only(data, tree.keys):
            _PARSER_OF_PAIRS.decode(text)
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
    return value, tree.is_plain


def check_size(data: bytes, label: str = "document", max_bytes: int = MAX_BYTES) -> None:
    """InputError, naming `label`, for a document larger than `decode` reads; writers check before they write."""
    if len(data) > max_bytes:
        raise InputError(f"{label} is too large: {len(data)} bytes, at most {max_bytes} are read")
    if data.count(b",") > max_bytes // BYTES_PER_VALUE:
        raise InputError(f"{label} holds too many values, at most {max_bytes // BYTES_PER_VALUE} are read")


def _has_only(data: bytes, keys: int) -> bool:
    """True if JSON text that parses to this many different keys has surely none twice; False also if it may have.

    Each key is followed by a quote and a colon, unless a space is between them; a string may hold these too, escaped.
    """
    is_spaced = any(space in data for space in _SPACES) and any(space + b":" in data for space in _SPACES)
    return not is_spaced and data.count(b'":') == keys


_SPACES = (b" ", b"\t", b"\n", b"\r")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"duplicate key {key[:80]!r}")
        keys.add(key)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_PARSER = json.JSONDecoder(parse_constant=_constant)
_PARSER_OF_PAIRS = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_constant)
"""Refuses a key that is there twice; its value is of no use."""


class _Tree(NamedTuple):
    """A value that was walked: plain if it has JSON types without a float and keys in ASCII; its number of keys."""

    is_plain: bool
    keys: int


def _check_tree(value: Any, label: str, is_plain: bool = True) -> _Tree:
    """Walk the value level by level: depth, and numbers that would not come back as they are written.

    With `is_plain` False that is not looked at.
    """
    keys = 0
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                keys += len(container)
                is_plain = is_plain and _has_ascii_keys(container)
                below += container.values()
            else:
                below += container
        level = []
        for item in below:
            kind = item.__class__
            if kind is str:
                continue
            is_plain = is_plain and kind in _PLAIN_TYPES
            if kind is dict:
                level.append(item)
            elif kind is int or isinstance(item, (int, float)):
                if not -MAX_INTEGER <= item <= MAX_INTEGER and (reason := _beyond(item)):
                    raise InputError(f"{label} holds a {reason}{_at(value, item)}")
            elif isinstance(item, (dict, list, tuple)):
                level.append(item)
        if not level:
            return _Tree(is_plain, keys)
    if any(level):
        raise InputError(f"{label} is nested deeper than {MAX_DEPTH} levels")
    return _Tree(is_plain, keys)


_PLAIN_TYPES = frozenset({str, dict, list, tuple, int, bool, type(None)})


def _has_ascii_keys(value: dict[Any, Any]) -> bool:
    try:
        return "".join(value).isascii()
    except TypeError:
        return False


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
    level: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while level:
        if match := next((path for path, item in level if item is number), None):
            keys, path = [], match
            while path:
                path, key = path
                keys.append(ascii(key).strip("'")[:80])
            return f" at {'.'.join(reversed(keys))[:200]}"
        level = [((path, key), item) for path, container in level for key, item in _items(container)]
    return ""


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


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


Read = Callable[[Any], Any]
"""Returns the value of some JSON; raises InputError if it is malformed."""


def record(
    make: Callable[..., Value], needed: Mapping[str, Read], more: Mapping[str, Read] = {}
) -> Callable[[Any], Value]:
    """A reader of a JSON object with these keys, each read by its reader; other keys are ignored.

    Args:
        make: takes the needed keys (at least two) as its first arguments, in this order, and those of `more` by name.
    """
    if len(needed) < 2:
        raise ValueError("a record has at least two needed keys")
    readers, number, values_of = tuple(needed.values()), len(needed), itemgetter(*needed)

    def read(value: Any) -> Value:
        given = mapping(value)
        try:
            first = map(call, readers, values_of(given))
        except KeyError:
            for key, read_item in needed.items():
                read_item(required(given, key))
            raise
        if len(given) == number:
            return make(*first)
        return make(*first, **{key: more[key](item) for key, item in given.items() if key in more})

    return read


def table_of(
    read_key: Callable[[str], Any], read: Callable[[Any], Value]
) -> Callable[[Any], dict[Any, Value]]:
    """A reader of a JSON object whose keys are data."""
    return lambda value: {read_key(key): read(item) for key, item in mapping(value).items()}


def nullable(read: Callable[[Any], Value]) -> Callable[[Any], Value | None]:
    """A reader that takes null too."""
    return lambda value: None if value is None else read(value)


def array_of(read: Callable[[Any], Value]) -> Callable[[Any], tuple[Value, ...]]:
    """A reader of a JSON array."""
    return lambda value: items(value, read)


def pick(value: Any, keys: Collection[str]) -> dict[str, Any]:
    """A JSON object without any other keys than these."""
    return {key: item for key, item in mapping(value).items() if key in keys}


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


def flag(value: Any) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise InputError(f"neither true nor false: {str(value)[:40]!r}")
    return value


def number(value: Any) -> float:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"not a number: {str(value)[:40]!r}")
    return float(value)


def sorted_paths(value: Any) -> tuple[str, ...]:
    """Paths in ascending order, each once, and at least one."""
    paths = items(value, path)
    if not paths or list(paths) != sorted(set(paths)):
        raise InputError("not a sorted list of different paths")
    return paths


def path(value: Any) -> str:
    """A path that is safe to create; see `paths.check_path`."""
    try:
        return check_path(text(value))
    except ValueError as error:
        raise InputError(str(error)) from error
