"""Names of bytes."""

import re
from collections.abc import Mapping

from onnxreg.schema.core.errors import InputError

_HEX = "[0-9a-f]{64}"
PATTERN = f"^sha256:{_HEX}$"
"""A digest in JSON Schema."""
_matches = re.compile(f"sha256:{_HEX}").fullmatch


class Digest(str):
    """The SHA-256 of some bytes: the text `sha256:<64 lower-case hex digits>`."""

    __slots__ = ()

    def __new__(cls, hex: str) -> "Digest":  # noqa: PYI034 -- typing is slow to import
        """InputError for anything but 64 lower-case hex digits."""
        text = f"sha256:{hex}"
        if not _matches(text):
            raise InputError(f"not a SHA-256 digest: {hex[:80]!r}", "expected 64 lower-case hex digits")
        return str.__new__(cls, text)

    def __getnewargs__(self) -> tuple[str]:
        return (self.hex,)

    @property
    def hex(self) -> str:
        return self[7:]

    @property
    def short(self) -> str:
        """Twelve hex digits, for display only."""
        return self[7:19]

    @classmethod
    def parse(cls, text: object) -> "Digest":
        """Read `sha256:<hex>`; any other algorithm or spelling is an InputError."""
        if isinstance(text, str) and _matches(text):
            return str.__new__(cls, text)
        if not isinstance(text, str) or not text.startswith("sha256:"):
            value_text = (
                repr(text[:80]) if isinstance(text, str) else f"a value of type {type(text).__name__}"
            )
            raise InputError(f"not a digest: {value_text}", "expected sha256:<64 lower-case hex digits>")
        return cls(text[7:])

    @classmethod
    def of(cls, data: bytes) -> "Digest":
        """The digest of bytes held in memory."""
        import hashlib

        return cls(hashlib.sha256(data).hexdigest())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        from pydantic_core import core_schema

        def validate(value: object) -> "Digest":
            if isinstance(value, Digest):
                return value
            try:
                return cls.parse(value)
            except InputError as error:
                raise ValueError(error.message) from error

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, str]:
        return {"type": "string", "pattern": PATTERN}


def directory_digest(files: Mapping[str, Digest]) -> Digest:
    """The digest of a directory, given those of its files by POSIX path: ONNX Runtime's for shared assets.

    SHA-256 of one line `<sha256 of file>  <path>` for each file, sorted by path (the form `sha256sum` prints).
    """
    return Digest.of("".join(f"{files[path].hex}  {path}\n" for path in sorted(files)).encode())
