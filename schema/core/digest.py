"""Digests, which name bytes, and descriptors: the digest and size by which bytes are fetched and checked."""

import hashlib
import re
from collections.abc import Mapping
from typing import Self

from onnxreg.schema.core.bounds import MAX_PIECES
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.errors import InputError, value_error

PIECE_BYTES = 8 * 2**20
"""The size in bytes above which a file also has digests of its pieces."""
PATTERN = "^sha256:[0-9a-f]{64}$"
"""The pattern of a digest in JSON Schema."""
is_digest = re.compile(PATTERN[1:-1]).fullmatch
"""Match a text that is a digest."""


class Digest(str):
    """A SHA-256 digest of some bytes: the text `sha256:<64 lower-case hex digits>`."""

    __slots__ = ()

    def __new__(cls, hex: str) -> Self:
        """Make a digest of 64 lower-case hex digits. Raise InputError for other text."""
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
        """Read `sha256:<hex>`. Raise InputError for another algorithm or spelling."""
        if isinstance(text, str) and is_digest(text):
            return str.__new__(cls, text)
        value = repr(text[:80]) if isinstance(text, str) else f"a value of type {type(text).__name__}"
        raise InputError(f"not a digest: {value}", "expected sha256:<64 lower-case hex digits>")

    @classmethod
    def of(cls, data: bytes) -> "Digest":
        """The digest of bytes in memory."""
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
    """The SHA-256 of a directory's listing by `sha256sum`: lines `<hex digest>  <path>`, sorted by POSIX path."""
    return Digest.of("".join(f"{files[path].hex}  {path}\n" for path in sorted(files)).encode())


class Pieces(Record, frozen=True, forbid_unknown_fields=True):
    """The digests of a file's consecutive parts of `size` bytes, by which a download is repaired part by part."""

    size: Count
    digests: tuple[Digest, ...]


def piece_size(total: int) -> int:
    """The size of a file's pieces in bytes: `PIECE_BYTES`, doubled until there are at most `MAX_PIECES`."""
    size = PIECE_BYTES
    while size * MAX_PIECES < total:
        size *= 2
    return size


class Descriptor(Record, frozen=True, forbid_unknown_fields=True):
    """The digest and size in bytes of a file, and for a large file the digests of its pieces."""

    digest: Digest
    size: Count
    pieces: Pieces | None = None
