"""Canonical JSON (RFC 8785), the class `Record` of documents, and the class `Digest`.

A record is a JSON document that only onnxreg writes: a frozen msgspec struct. Documents that people and other programs
write are pydantic models (module `document`). Errors name the document by `label`.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Self, TypeVar

import msgspec

from onnxreg.schema.core.bounds import BYTES_PER_VALUE, MAX_DEPTH, MAX_PIECES, MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError, value_error

MAX_INTEGER = 2**53 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]  # from 0 to 2**53 - 1
T = TypeVar("T")
# msgspec's types in words
_TYPES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_TYPES |= {"array": "a list", "object": "keys and values", "null": "null"}

# In UTF-8, characters beyond U+FFFF begin with this byte or a larger one. msgspec sorts them unlike RFC 8785.
_FIRST_BEYOND_BMP = 0xF0


def encode(value: Any, label: str = "document") -> bytes:
    """Encode a value as canonical JSON (RFC 8785). Raise InputError for a value that `decode` refuses."""
    is_plain = _check(value, label)
    try:
        if is_plain:
            data = msgspec.json.encode(value, order="sorted")
            if data.isascii() or max(data) < _FIRST_BEYOND_BMP:
                return data
        import rfc8785

        return rfc8785.dumps(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{label} cannot be written as canonical JSON: {error}") from error


def decode(data: bytes, label: str = "document", max_bytes: int = MAX_RECORD_BYTES) -> Any:
    """Parse JSON. Raise InputError if the JSON is malformed, or if RFC 8785 does not allow it.

    Duplicate keys, NaN, infinities, whole numbers beyond 2**53 - 1 and lone surrogates are refused. JSON with more than
    `MAX_DEPTH` levels, `max_bytes` bytes or `max_bytes / 16` commas is refused too.
    """
    check_size(data, label, max_bytes)
    try:
        value = _PARSER.decode(data.decode("utf-8"))
        if b"\\u" in data:  # maybe half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise InputError(f"{label} is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise InputError(f"{label} is not valid JSON: {error}") from error
    _check(value, label)
    return value


def check_size(data: bytes, label: str = "document", max_bytes: int = MAX_RECORD_BYTES) -> None:
    """Raise InputError if a document is too large for `decode`."""
    if len(data) > max_bytes:
        raise InputError(f"{label} is too large: {len(data)} bytes, at most {max_bytes} are read")
    if data.count(b",") > max_bytes // BYTES_PER_VALUE:
        raise InputError(f"{label} holds too many values, at most {max_bytes // BYTES_PER_VALUE} are read")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return value


_PARSER = json.JSONDecoder(object_pairs_hook=_object)


def _check(value: Any, label: str) -> bool:
    """Raise InputError if a value is too deep or has a number out of range. Return True if msgspec can write the value.

    A float from 2**53 to 1e21 is out of range: RFC 8785 writes it as a whole number, which `decode` refuses.
    """
    is_plain, level = True, [value]
    for _ in range(MAX_DEPTH):
        items, level = level, []
        for item in items:
            kind = item.__class__
            if kind is str or kind is bool or item is None:
                continue
            if isinstance(item, int | float):
                is_large = isinstance(item, float) and 1e21 <= abs(item) < inf
                if not (is_large or -MAX_INTEGER <= item <= MAX_INTEGER):
                    number = item if isinstance(item, float) else "beyond 2**53 - 1"
                    raise InputError(f"{label} holds a number out of range: {number}")
                # not whole and without exponent: every JSON writer agrees with ECMA-262
                is_fraction = kind is float and 1e-3 < abs(item) < 1e15 and item % 1 != 0
                is_plain = is_plain and (kind is int or is_fraction)
            elif isinstance(item, dict):
                is_plain = is_plain and kind is dict and {str}.issuperset(map(type, item))
                level += item.values()
            elif isinstance(item, list | tuple):
                is_plain = is_plain and kind in (list, tuple)
                level += item
            else:
                is_plain = False
        if not level:
            return is_plain
    raise InputError(f"{label} is nested deeper than {MAX_DEPTH} levels")


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON document, or a part of one. Fields with their default values are not written.

    Unknown keys are ignored. A class with `forbid_unknown_fields` refuses unknown keys. If the type of a field has a
    method `parse`, such as `Digest.parse`, the field is read by this method.
    """

    def to_json(self) -> dict[str, Any]:
        return msgspec.json.decode(msgspec.json.encode(self, enc_hook=text_of), type=dict[str, Any])

    def encode(self) -> bytes:
        """Return the canonical bytes. Raise InputError if a number or a text cannot be written as JSON."""
        return encode(self.to_json(), type(self).__name__)

    def replace(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def decode(cls, data: bytes, label: str = "document", max_bytes: int = MAX_RECORD_BYTES) -> Self:
        """Read canonical JSON. Raise InputError, naming the field, if the JSON is malformed or not canonical."""
        check_size(data, label, max_bytes)
        record = decode_json(data, cls, label)
        if encode(decode_json(data, Any, label), label) != data:  # with the keys that the record ignores
            raise InputError(f"{label} is not canonical JSON")
        return record

    @classmethod
    def read(cls, value: Any) -> Self:
        """Read a decoded JSON value. Raise InputError, naming the field, if it is malformed."""
        return convert(value, cls, cls.__name__)


def decode_json(data: bytes, kind: type[T], label: str) -> T:
    """Read JSON, canonical or not, as type `kind`. Raise InputError, naming the field, if it is malformed."""
    try:
        data.isascii() or data.decode("utf-8")  # msgspec does not check keys that it skips
        value: T = _decoder(kind).decode(data)  # type: ignore[arg-type]  # a type is hashable
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(label, error) from error
    return value


def convert(value: Any, kind: type[T], label: str = "value") -> T:
    """Read a decoded JSON value as type `kind`. Raise InputError, naming the field, if it is malformed."""
    try:
        return msgspec.convert(value, kind, dec_hook=_parse, str_keys=True)
    except msgspec.ValidationError as error:
        raise _malformed(label, error) from error


def text_of(value: Any) -> str:
    """Convert a `Digest` or `Version` to a plain str, for msgspec. Raise TypeError for any other type."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _malformed(label: str, error: Exception) -> InputError:
    problem, _, path = str(error).partition(" - at `$")
    problem = re.sub(r"`(\w+)( \| null)?`", lambda type_: _TYPES.get(type_[1], type_[0]), problem)
    problem = re.sub(r"^Object missing required field (\S+)", r"\1 is missing", problem)
    problem, path = problem.replace("Expected", "expected")[:200], path.strip(".`")[:200]
    return InputError(f"{label} is malformed{f' at {path}' if path else ''}: {problem}")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_parse)


def _parse(kind: Any, value: Any) -> Any:
    return value if isinstance(value, kind) else value_error(kind.parse)(value)


PIECE_BYTES = 8 * 2**20  # larger files also have digests of their pieces
PATTERN = "^sha256:[0-9a-f]{64}$"
is_digest = re.compile(PATTERN[1:-1]).fullmatch


class Digest(str):
    """The SHA-256 of some bytes: the text `sha256:<64 lower-case hex digits>`."""

    __slots__ = ()

    def __new__(cls, hex: str) -> Self:
        return cls.parse(f"sha256:{hex}")

    def __getnewargs__(self) -> tuple[str]:
        return (self.hex,)

    @property
    def hex(self) -> str:
        return self[7:]

    @property
    def short(self) -> str:
        """The first twelve hex digits, for display only."""
        return self[7:19]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read `sha256:<hex>`. Raise InputError for other text."""
        if isinstance(text, str) and is_digest(text):
            return str.__new__(cls, text)
        value = repr(text[:80]) if isinstance(text, str) else f"a value of type {type(text).__name__}"
        raise InputError(f"not a digest: {value}", "expected sha256:<64 lower-case hex digits>")

    @classmethod
    def of(cls, data: bytes) -> "Digest":
        return str.__new__(cls, f"sha256:{hashlib.sha256(data).hexdigest()}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            lambda value, _: value_error(cls.parse)(value),
            core_schema.str_schema(pattern=PATTERN),
            serialization=core_schema.to_string_ser_schema(),
        )


def directory_digest(files: Mapping[str, Digest]) -> Digest:
    """Return the digest of a directory: the SHA-256 of the output of `sha256sum` for all its files, sorted by path."""
    return Digest.of("".join(f"{files[path].hex}  {path}\n" for path in sorted(files)).encode())


class Pieces(Record, frozen=True, forbid_unknown_fields=True):
    """The digests of a file's consecutive pieces of `size` bytes. With them, a damaged download is repaired piece by
    piece.
    """

    size: Count
    digests: tuple[Digest, ...]


def piece_size(total: int) -> int:
    """Return the size of a file's pieces: `PIECE_BYTES`, doubled until the file has at most `MAX_PIECES` pieces."""
    size = PIECE_BYTES
    while size * MAX_PIECES < total:
        size *= 2
    return size


class Descriptor(Record, frozen=True, forbid_unknown_fields=True):
    """The digest of a file, and its size in bytes. `pieces` is set for a large file."""

    digest: Digest
    size: Count
    pieces: Pieces | None = None
