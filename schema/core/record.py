"""Records: the JSON documents that only this program writes, as frozen structs of msgspec.

What people and other programs write are models of pydantic (see `document`). The bytes of a record are those of
`canonical.encode`, and other bytes are not read. A field that has its default is left out.
"""

from functools import cache
from typing import Annotated, Any, Self, TypeVar

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_path

Count = Annotated[int, msgspec.Meta(ge=0, le=canonical.MAX_INTEGER)]
"""A whole number of at least 0."""
MAX_FAULT_LETTERS = 300
Kind = TypeVar("Kind", bound="Record")


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document, or a part of one. Subclasses declare its keys; a class `forbid_unknown_fields` or ignores other keys.

    A field may be of a class with a method `parse` that takes its text, such as `Digest`.
    """

    def to_json(self) -> dict[str, Any]:
        """The JSON value."""
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self, enc_hook=text_of))
        return value

    def encode(self) -> bytes:
        """The canonical bytes. InputError for a number or text that JSON does not have."""
        return canonical.encode(self.to_json(), type(self).__name__)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields."""
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def decode(cls, data: bytes, label: str = "document", max_bytes: int = canonical.MAX_BYTES) -> Self:
        """Read a canonical document. InputError, naming `label` and the field, if it is malformed."""
        canonical.check_size(data, label, max_bytes)
        value = decode_json(data, cls, label)
        canonical.check_canonical(data, label)
        return value

    @classmethod
    def read(cls, value: Any) -> Self:
        """Read a JSON value. InputError, naming the field, if it is malformed."""
        try:
            return msgspec.convert(value, cls, dec_hook=_parse, str_keys=True)
        except msgspec.ValidationError as error:
            raise InputError(f"{cls.__name__} is malformed: {_fault(error)}") from error


def check_sorted_paths(paths: tuple[str, ...] | None) -> None:
    """InputError unless these are paths that are safe to create, ascending, each once, and at least one; or None."""
    if paths is None:
        return
    for path in paths:
        check_safe_path(path)
    if not paths or list(paths) != sorted(set(paths)):
        raise InputError("not a sorted list of different paths")


def check_safe_path(path: str) -> None:
    """InputError unless a path is safe to create; see `paths.check_path`."""
    try:
        check_path(path)
    except ValueError as error:
        raise InputError(str(error)) from error


def decode_json(data: bytes, kind: type[Kind], label: str) -> Kind:
    """Read a record from JSON, canonical or not. InputError, naming `label` and the field, if it is malformed."""
    try:
        data.decode("utf-8")  # msgspec does not look at what it skips
        value: Kind = _decoder(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{label} is malformed: {_fault(error)}") from error
    return value


def _fault(error: Exception) -> str:
    """The text of an error, which may quote a key of any length."""
    text = str(error)
    return text if len(text) <= MAX_FAULT_LETTERS else f"{text[:MAX_FAULT_LETTERS]}..."


def text_of(value: Any) -> str:
    """The text of a value that JSON has as a text, for msgspec."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


@cache
def _decoder(kind: type[Kind]) -> msgspec.json.Decoder[Kind]:
    return msgspec.json.Decoder(kind, dec_hook=_parse)


def _parse(kind: Any, value: Any) -> Any:
    try:
        return kind.parse(value)
    except InputError as error:
        raise ValueError(error.message) from error
