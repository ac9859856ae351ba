"""Delta files, and the table of the deltas that a version offers (docs/delta.md).

A delta file consists of a magic number, the length of the header, the header, and spans. The table is a blob, whose
digest is in the log.
"""

import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, BinaryIO, Literal, NamedTuple

import msgspec

from onnxreg.schema.core.bounds import MAX_DELTA_HEADER_BYTES, MAX_DELTAS, MAX_OLD_FILES
from onnxreg.schema.core.canonical import Count, Descriptor, Digest, Record
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version

MAGIC = b"ONXDELT1"
BLOCK_BYTES = 2**20  # the maximum size of the new bytes of one literal or one difference
MAX_PAYLOAD_BYTES = 2 * BLOCK_BYTES  # compressed or not
WIDTHS = (1, 2, 4, 8)

COPY, LITERAL, DIFFERENCE = 0, 1, 2
FLOAT, SPARSE = 1, 2  # the bits of `mode`

_LENGTH = struct.Struct("<I")
_SPAN = struct.Struct("<BBBBIQI")


class DeltaHeader(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The header of a delta file: the new file that the delta makes, and the old files that the delta reads."""

    format: Literal["onnxreg-delta"]
    format_version: Literal[1]
    new: Descriptor
    old: Annotated[tuple[Descriptor, ...], msgspec.Meta(min_length=1, max_length=MAX_OLD_FILES)]

    @classmethod
    def of(cls, new: Descriptor, *old: Descriptor) -> "DeltaHeader":
        return cls(format="onnxreg-delta", format_version=1, new=new, old=old)

    def to_bytes(self) -> bytes:
        """Return the first bytes of a delta file, up to the first span."""
        data = self.encode()
        return MAGIC + _LENGTH.pack(len(data)) + data

    @classmethod
    def read_from(cls, stream: BinaryIO) -> "DeltaHeader":
        """Read the header of a delta file. Raise InputError if it is not a delta."""
        if _exactly(stream, len(MAGIC)) != MAGIC:
            raise InputError("it is not a delta, or of a later format")
        (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
        if size > MAX_DELTA_HEADER_BYTES:
            raise InputError(f"its header has {size} bytes, at most {MAX_DELTA_HEADER_BYTES} are allowed")
        return cls.decode(_exactly(stream, size), "its header")


class Span(NamedTuple):
    """An instruction that makes the next `length` bytes of the new file. There are three operations.

    COPY takes bytes of an old file. LITERAL takes the payload. DIFFERENCE combines the payload with bytes of an old
    file.
    """

    op: int  # COPY, LITERAL or DIFFERENCE
    length: int
    source: int = 0  # the index of the old file
    offset: int = 0  # in the old file
    width: int = 0  # of an element of a difference, in bytes
    mode: int = 0  # of a difference: FLOAT, SPARSE or both
    payload: bytes = b""  # deflated (RFC 1951); empty for a copy

    def encode(self) -> bytes:
        head = (self.op, self.width, self.mode, self.source, self.length, self.offset, len(self.payload))
        return _SPAN.pack(*head) + self.payload


def read_spans(stream: BinaryIO, header: DeltaHeader) -> Iterator[Span]:
    """Yield the spans after the header, each with its payload. Only one payload is in memory at a time.

    Raise InputError if a span is malformed or out of range, or if the spans end too early or too late.
    """
    remaining = header.new.size
    while remaining:
        op, width, mode, source, length, offset, size = _SPAN.unpack(_exactly(stream, _SPAN.size))
        span = Span(op, length, source, offset, width, mode)
        _check(span, size, remaining, header.old)
        remaining -= length
        yield span._replace(payload=_exactly(stream, size))
    if stream.read(1):
        raise InputError("it goes on after its last span")


def _check(span: Span, size: int, remaining: int, old: Sequence[Descriptor]) -> None:
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


def inflate(payload: bytes, limit: int, least: int = 0) -> bytes:
    """Inflate a payload. Raise InputError if it is malformed, or if the result is not `least` to `limit` bytes long."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise InputError("a payload is not deflated data") from error
    if not least <= len(data) <= limit or not inflater.eof or inflater.unused_data:
        raise InputError(f"a payload does not inflate to {least} to {limit} bytes, or is cut short")
    return data


def _exactly(stream: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        data = stream.read(size)
        if not data:
            raise InputError("it is cut short")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


MAX_SHARE = 0.5  # of the new file's size; a larger delta is not used


class Delta(Record, frozen=True, forbid_unknown_fields=True, rename={"digest": "delta", "since": "from"}):
    """A row of the table: the delta file `digest` makes the blob `new` from the blobs `old` of the version `since`."""

    new: Digest
    old: Annotated[tuple[Digest, ...], msgspec.Meta(min_length=1, max_length=MAX_OLD_FILES)]
    digest: Digest
    size: Count  # of the delta, in bytes
    since: Version


class _Table(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal["onnxreg-deltas"]
    format_version: Literal[1]
    deltas: Annotated[tuple[Delta, ...], msgspec.Meta(max_length=MAX_DELTAS)]


def encode_table(deltas: Iterable[Delta]) -> bytes:
    return _Table(format="onnxreg-deltas", format_version=1, deltas=tuple(deltas)).encode()


def decode_table(data: bytes) -> tuple[Delta, ...]:
    """Read the deltas in a table. Raise InputError if it is malformed."""
    return _Table.decode(data, "a table of deltas").deltas


def choose_deltas(
    deltas: Iterable[Delta], sizes: Mapping[Digest, int], present: Collection[Digest]
) -> dict[Digest, Delta]:
    """For each file of `sizes` (in bytes), choose the smallest delta whose old files are all `present`.

    A delta is chosen only if it is smaller than `MAX_SHARE` times the file's size.
    """
    chosen: dict[Digest, Delta] = {}
    for delta in sorted(deltas, key=lambda delta: (delta.size, delta.digest)):
        if delta.size < MAX_SHARE * sizes.get(delta.new, 0) and all(old in present for old in delta.old):
            chosen.setdefault(delta.new, delta)
    return chosen
