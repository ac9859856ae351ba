"""The deltas of one version: which file each makes, and from which old one. Pure; see docs/delta.md.

A table is a blob that an event names, and the version's entry in the state. It is a hint: one that cannot be read
offers nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.record import Count, Record
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import MAX_OLD_FILES

MAX_DELTAS = 256
"""Deltas of one version: so many blobs fit into one line of the log."""
MAX_SHARE = 0.5
"""A delta must be smaller than this share of the file that it makes."""


class Delta(Record, frozen=True, forbid_unknown_fields=True, rename={"digest": "delta", "since": "from"}):
    """One delta file: the blob `digest` of `size` bytes makes the blob `new` from the blobs `old`, of version `since`."""

    new: Digest
    old: Annotated[tuple[Digest, ...], msgspec.Meta(min_length=1, max_length=MAX_OLD_FILES)]
    digest: Digest
    size: Count
    since: Version


class _Table(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal["onnxreg-deltas"]
    format_version: Literal[1]
    deltas: Annotated[tuple[Delta, ...], msgspec.Meta(max_length=MAX_DELTAS)]


def encode_table(deltas: Iterable[Delta]) -> bytes:
    """The canonical bytes of a table."""
    return _Table(format="onnxreg-deltas", format_version=1, deltas=tuple(deltas)).encode()


def decode_table(data: bytes) -> tuple[Delta, ...]:
    """The deltas of a table. InputError if the bytes are not a table."""
    return _Table.decode(data, "a table of deltas").deltas


def choose_deltas(
    deltas: Iterable[Delta], sizes: Mapping[Digest, int], present: Collection[Digest]
) -> dict[Digest, Delta]:
    """The smallest delta of each file to get (`sizes`: its bytes) whose old files are all `present`.

    Only deltas below `MAX_SHARE` of the file count; the other files are fetched whole.
    """
    chosen: dict[Digest, Delta] = {}
    for delta in sorted(deltas, key=lambda delta: (delta.size, delta.digest)):
        is_small = delta.size < MAX_SHARE * sizes.get(delta.new, 0)
        if is_small and all(old in present for old in delta.old):
            chosen.setdefault(delta.new, delta)
    return chosen
