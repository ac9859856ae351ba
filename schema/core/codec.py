"""Strict reading of plain values from decoded JSON, without pydantic. A value of another type is an InputError."""

from collections.abc import Callable, Collection, Mapping
from operator import call, itemgetter
from typing import Any, TypeVar

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_path

Value = TypeVar("Value")


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
