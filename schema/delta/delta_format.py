"""A delta file: magic, length of the header, header, and spans up to the end of the new file. See docs/delta.md."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO, Literal, NamedTuple

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.record import Count, Record

MAGIC = b"ONXDELT1"
MAX_HEADER_BYTES = 64 * 1024
MAX_OLD_FILES = 16
BLOCK_BYTES = 2**20
"""Bytes of the new file that one literal or difference makes at most."""
MAX_PAYLOAD_BYTES = 2 * BLOCK_BYTES
"""Bytes that a payload has at most, before and after it is inflated."""
WIDTHS = (1, 2, 4, 8)

COPY, LITERAL, DIFFERENCE = 0, 1, 2
FLOAT, SPARSE = 1, 2
"""The bits of a difference's mode."""

_LENGTH = struct.Struct("<I")
_SPAN = struct.Struct("<BBBBIQI")


class DeltaFile(Record, frozen=True, forbid_unknown_fields=True):
    """A file that a delta makes or reads."""

    digest: Digest
    size: Count


class _Header(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal["onnxreg-delta"]
    format_version: Literal[1]
    new: DeltaFile
    old: Annotated[tuple[DeltaFile, ...], msgspec.Meta(min_length=1, max_length=MAX_OLD_FILES)]


class DeltaHeader(NamedTuple):
    """The file that a delta makes, and the old files that it reads, in the order in which spans count them."""

    new: DeltaFile
    old: tuple[DeltaFile, ...]

    def encode(self) -> bytes:
        """The first bytes of a delta file, up to its first span."""
        data = _Header(format="onnxreg-delta", format_version=1, new=self.new, old=self.old).encode()
        return MAGIC + _LENGTH.pack(len(data)) + data

    @classmethod
    def read(cls, stream: BinaryIO) -> "DeltaHeader":
        """Read the header of a delta file. InputError if it is not one."""
        if _exactly(stream, len(MAGIC)) != MAGIC:
            raise InputError("it is not a delta, or of a later format")
        (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
        if size > MAX_HEADER_BYTES:
            raise InputError(f"its header has {size} bytes, at most {MAX_HEADER_BYTES} are allowed")
        header = _Header.decode(_exactly(stream, size), "its header")
        return cls(header.new, header.old)


class Span(NamedTuple):
    """The next `length` bytes of the new file.

    Args:
        op: COPY, LITERAL or DIFFERENCE.
        width: bytes of an element of a difference, else 0.
        mode: FLOAT and SPARSE, of a difference.
        source: which old file.
        offset: of the first old byte.
        payload: deflated bytes (RFC 1951), empty for a copy.
    """

    op: int
    length: int
    source: int = 0
    offset: int = 0
    width: int = 0
    mode: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """The bytes of a span in a delta file."""
        head = (self.op, self.width, self.mode, self.source, self.length, self.offset, len(self.payload))
        return _SPAN.pack(*head) + self.payload


def read_spans(stream: BinaryIO, header: DeltaHeader) -> Iterator[Span]:
    """The spans after the header; each payload is read when its span is asked for.

    InputError if a span reads or writes out of range, or the spans end too early or too late. Memory: one payload.
    """
    remaining = header.new.size
    while remaining:
        *fields, size = _SPAN.unpack(_exactly(stream, _SPAN.size))
        op, width, mode, source, length, offset = fields
        span = Span(op, length, source, offset, width, mode)
        _check(span, size, remaining, header.old)
        remaining -= length
        yield span._replace(payload=_exactly(stream, size))
    if stream.read(1):
        raise InputError("it goes on after its last span")


def _check(span: Span, size: int, remaining: int, old: Sequence[DeltaFile]) -> None:
    """Raise InputError if a span is malformed or out of range."""
    if not 1 <= span.length <= remaining:
        raise InputError("a span is empty, or writes after the end of the new file")
    if span.op == COPY:
        is_plain = (span.width, span.mode, size) == (0, 0, 0)
    elif span.op == LITERAL:
        is_plain = (span.width, span.mode, span.source, span.offset) == (0, 0, 0, 0)
    elif span.op == DIFFERENCE:
        is_plain = span.width in WIDTHS and span.mode <= FLOAT | SPARSE and span.length % span.width == 0
    else:
        raise InputError(f"a span has the unknown operation {span.op}")
    if not is_plain:
        raise InputError("a span has fields that its operation does not have")
    if span.op != COPY and not (span.length <= BLOCK_BYTES and 1 <= size <= MAX_PAYLOAD_BYTES):
        raise InputError(f"a span makes {span.length} bytes from {size}: more than a block")
    if span.op != LITERAL and (span.source >= len(old) or span.offset + span.length > old[span.source].size):
        raise InputError("a span reads after the end of an old file")


def inflate(payload: bytes, size: int) -> bytes:
    """Inflate a payload that must give exactly `size` bytes. InputError otherwise; never inflates more."""
    data, is_whole = _inflate(payload, size)
    if not is_whole or len(data) != size:
        raise InputError(f"a payload does not inflate to {size} bytes")
    return data


def inflate_up_to(payload: bytes, limit: int) -> bytes:
    """Inflate a payload of at most `limit` bytes. InputError if it has more."""
    data, is_whole = _inflate(payload, limit)
    if not is_whole:
        raise InputError(f"a payload inflates to more than {limit} bytes, or is cut short")
    return data


def _inflate(payload: bytes, limit: int) -> tuple[bytes, bool]:
    """At most `limit + 1` bytes of a payload, and if that is all of it."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise InputError("a payload is not deflated data") from error
    return data, inflater.eof and not inflater.unused_data and len(data) <= limit


def _exactly(stream: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        data = stream.read(size)
        if not data:
            raise InputError("it is cut short")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
