"""A question as a document: `{"ref", "formats"?, "precision"?}`, what `reg resolve` is told in options.

A key that this build does not know is refused: an answer that left out a condition would be wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onnxreg.schema import canonical
from onnxreg.schema.errors import InputError
from onnxreg.schema.query import Query
from onnxreg.schema.reading import items, mapping, required, text
from onnxreg.schema.ref import Ref

CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "formats": lambda value: items(value, text),
    "precision": text,
}
"""How each condition is read: the keys of a request are the fields of `Query`."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which model or version, and what its artifact must be."""

    ref: Ref
    query: Query

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """Read a request; InputError where it is malformed. A condition that is null is as good as absent."""
        value = mapping(canonical.decode(data, "the request"))
        unknown = sorted(value.keys() - CONDITIONS.keys() - {"ref"})
        if unknown:
            known = ", ".join(["ref", *CONDITIONS])
            raise InputError(f"the request has an unknown key: {unknown[0][:40]!r}", f"there are {known}")
        ref = Ref.parse(_named("ref", text, required(value, "ref")))
        given = {key: value[key] for key in CONDITIONS if value.get(key) is not None}
        return cls(ref, Query(**{key: _named(key, CONDITIONS[key], item) for key, item in given.items()}))


def _named(key: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except InputError as error:
        raise InputError(f"{key} is {error.message}", error.hint) from error
