"""Reading of the documents of a question: a query and a device, which phones and people write."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import size
from onnxreg.schema.query.expression import parse

Document = TypeVar("Document", bound=msgspec.Struct)


def digests(value: Any) -> tuple[Digest, ...]:
    """One digest, or several."""
    return tuple(Digest.parse(item) for item in (value if isinstance(value, list) else [value]))


READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("max_size", "ram", "free_space"), size),
    "app_version": lambda value: str(Version.parse(str(value))),
    "contract": digests,
    "where": lambda value: parse(str(value)),
}
"""The keys whose values JSON has no type for."""


def read_document(value: Any, kind: type[Document], label: str) -> Document:
    """Read a JSON object as a struct; a key that is null counts as absent. InputError, naming the key, if it is malformed."""
    if not isinstance(value, dict):
        raise InputError(f"{label} is not an object: {str(value)[:40]!r}")
    keys = [field.encode_name for field in msgspec.structs.fields(kind)]
    given = {}
    for key, item in value.items():
        if key not in keys:
            hint = suggest(str(key), keys, f"its keys are {', '.join(keys)}")
            raise InputError(f"{label} has no {str(key)[:40]!r}", hint)
        if item is not None:
            with about(key):
                given[key] = READERS.get(key, lambda value: value)(item)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        raise InputError(f"{path.removesuffix('`') or label}: {problem}") from error
