"""The deltas of one version: which file each makes, and from which old one. Pure; see docs/delta.md.

A table is a blob that an event names, and the version's entry in the state. It is a hint: one that cannot be read
offers nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import check_keys, count, items, mapping, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import MAX_OLD_FILES

FORMAT = "onnxreg-deltas"
MAX_DELTAS = 256
"""Deltas of one version: so many blobs fit into one line of the log."""
MAX_SHARE = 0.5
"""A delta must be smaller than this share of the file that it makes."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One delta file: the blob `digest` of `size` bytes makes the blob `new` from the blobs `old`, of version `since`."""

    new: Digest
    old: tuple[Digest, ...]
    digest: Digest
    size: int
    since: Version

    def to_json(self) -> dict[str, Any]:
        return {
            "new": str(self.new),
            "old": [str(digest) for digest in self.old],
            "delta": str(self.digest),
            "size": self.size,
            "from": str(self.since),
        }

    @classmethod
    def read(cls, value: Any) -> "Delta":
        """Read an entry of a table. InputError if it is malformed."""
        value = mapping(value)
        check_keys(value, {"new", "old", "delta", "size", "from"}, set(), "a delta")
        old = items(value["old"], Digest.parse)
        if not 1 <= len(old) <= MAX_OLD_FILES:
            raise InputError(f"a delta names {len(old)} old files, 1 to {MAX_OLD_FILES} are allowed")
        since = Version.parse(text(value["from"]))
        return cls(Digest.parse(value["new"]), old, Digest.parse(value["delta"]), count(value["size"]), since)


def encode_table(deltas: Iterable[Delta]) -> bytes:
    """The canonical bytes of a table."""
    rows = [delta.to_json() for delta in deltas]
    return canonical.encode({"format": FORMAT, "format_version": 1, "deltas": rows})


def decode_table(data: bytes) -> tuple[Delta, ...]:
    """The deltas of a table. InputError if the bytes are not a table."""
    value = mapping(canonical.decode(data, "a table of deltas"))
    check_keys(value, {"format", "format_version", "deltas"}, set(), "a table of deltas")
    if (value["format"], value["format_version"]) != (FORMAT, 1):
        raise InputError("it is not a table of deltas of version 1")
    deltas = items(value["deltas"], Delta.read)
    if len(deltas) > MAX_DELTAS:
        raise InputError(f"a table has {len(deltas)} deltas, at most {MAX_DELTAS} are allowed")
    return deltas


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
