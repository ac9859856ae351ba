"""Records: the JSON documents that only this program writes, as frozen structs of msgspec.

What people and other programs write are models of pydantic (see `document`). The bytes of a record are those of
`canonical.encode`, and other bytes are not read. A field that has its default is left out.
"""

from functools import cache
from typing import Annotated, Any, Self, TypeVar

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError, value_error

Count = Annotated[int, msgspec.Meta(ge=0, le=canonical.MAX_INTEGER)]
"""A whole number of at least 0."""
MAX_FAULT_LETTERS = 200
"""An error may quote a key of any length."""
T = TypeVar("T")


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
    def decode(cls, data: bytes, label: str = "document", max_bytes: int = MAX_RECORD_BYTES) -> Self:
        """Read a canonical document. InputError, naming `label` and the field, if it is malformed."""
        canonical.check_size(data, label, max_bytes)
        value = decode_json(data, cls, label)
        canonical.check_canonical(data, label)
        return value

    @classmethod
    def read(cls, value: Any) -> Self:
        """Read a JSON value. InputError, naming the field, if it is malformed."""
        return convert(value, cls, cls.__name__)


def decode_json(data: bytes, kind: type[T], label: str) -> T:
    """Read JSON, canonical or not, as a type. InputError, naming `label` and the field, if it is malformed."""
    try:
        data.decode("utf-8")  # msgspec does not look at what it skips
        value: T = _decoder(kind).decode(data)  # type: ignore[arg-type]  # a type is hashable
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(label, error) from error
    return value


def convert(value: Any, kind: type[T], label: str = "value") -> T:
    """Read a decoded JSON value as a type. InputError, naming `label` and the field, if it is malformed."""
    try:
        return msgspec.convert(value, kind, dec_hook=_parse, str_keys=True)
    except msgspec.ValidationError as error:
        raise _malformed(label, error) from error


def text_of(value: Any) -> str:
    """The text of a value that JSON has as a text, for msgspec."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _malformed(label: str, error: Exception) -> InputError:
    problem, _, path = str(error).partition(" - at `$")
    location = f" at {path.strip('.`')[:MAX_FAULT_LETTERS]}" if path else ""
    return InputError(f"{label} is malformed{location}: {problem[:MAX_FAULT_LETTERS]}")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_parse)


def _parse(kind: Any, value: Any) -> Any:
    return value_error(kind.parse)(value)
