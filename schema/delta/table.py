"""The deltas of one version: which file each makes, from which old files. A blob that an event names.

A state line repeats them as `DeltaOffers`: a hint, so a malformed one offers nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import check_keys, count, items, mapping, optional, required, text
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version, check_name
from onnxreg.schema.delta.delta_format import MAX_OLD_FILES, read_descriptor

FORMAT = "onnxreg-deltas"
MAX_DELTAS = 256
"""Deltas of one version: so many blobs fit into one line of the log."""
MAX_INLINE_BYTES = 2048
"""Bytes of a table that a state line repeats."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One delta file: the blob `digest` of `size` bytes makes the blob `new` from the blobs `old`.

    `since` is the version that the old blobs are files of; None: the version of the table itself.
    """

    new: Digest
    old: tuple[Digest, ...]
    digest: Digest
    size: int
    since: Version | None = None

    def to_json(self) -> dict[str, Any]:
        value = {
            "new": str(self.new),
            "old": [str(digest) for digest in self.old],
            "delta": str(self.digest),
            "size": self.size,
        }
        return value if self.since is None else value | {"from": str(self.since)}

    @classmethod
    def read(cls, value: Any) -> "Delta":
        """Read an entry of a table. InputError if it is malformed."""
        value = mapping(value)
        check_keys(value, {"new", "old", "delta", "size"}, {"from"}, "a delta")
        old = items(value["old"], Digest.parse)
        if not 1 <= len(old) <= MAX_OLD_FILES:
            raise InputError(f"a delta names {len(old)} old files, 1 to {MAX_OLD_FILES} are allowed")
        since = optional(value.get("from"), lambda item: Version.parse(text(item)))
        return cls(Digest.parse(value["new"]), old, Digest.parse(value["delta"]), count(value["size"]), since)


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The deltas of one version of a model, those that save most first."""

    name: str
    version: Version
    manifest: Digest
    deltas: tuple[Delta, ...]

    def encode(self) -> bytes:
        """The canonical bytes of the blob."""
        return canonical.encode(
            {
                "format": FORMAT,
                "format_version": 1,
                "name": self.name,
                "version": str(self.version),
                "manifest": str(self.manifest),
                "deltas": [delta.to_json() for delta in self.deltas],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "DeltaTable":
        """Read the blob. InputError if it is not a table of deltas."""
        value = mapping(canonical.decode(data, "a table of deltas"))
        keys = {"format", "format_version", "name", "version", "manifest", "deltas"}
        check_keys(value, keys, set(), "a table of deltas")
        if (value["format"], value["format_version"]) != (FORMAT, 1):
            raise InputError("it is not a table of deltas of version 1")
        deltas = items(value["deltas"], Delta.read)
        if len(deltas) > MAX_DELTAS:
            raise InputError(f"a table has {len(deltas)} deltas, at most {MAX_DELTAS} are allowed")
        return cls(
            check_name(text(value["name"])),
            Version.parse(text(value["version"])),
            Digest.parse(required(value, "manifest")),
            deltas,
        )


def inline(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """The first deltas of a table, as many as a state line repeats."""
    first: list[Delta] = []
    size = len("[]")
    for delta in deltas:
        size += len(canonical.encode(delta.to_json())) + len(",")
        if size > MAX_INLINE_BYTES:
            break
        first.append(delta)
    return tuple(first)


class DeltaOffer(NamedTuple):
    """The table of one version's deltas, and the first of them."""

    table: Descriptor
    deltas: tuple[Delta, ...]


@dataclass(frozen=True)
class DeltaOffers:
    """The key `deltas` of a state line: the line that it belongs to, and the offer of each version."""

    seq: int | None = None
    versions: Mapping[Version, DeltaOffer] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        versions = {
            str(version): {
                "table": {"digest": str(offer.table.digest), "size": offer.table.size},
                "deltas": [delta.to_json() for delta in offer.deltas],
            }
            for version, offer in self.versions.items()
        }
        return {"seq": self.seq, "versions": versions}

    @classmethod
    def read(cls, value: Any) -> "DeltaOffers":
        """Read the key; no offers if it is missing or malformed."""
        try:
            value = mapping(value)
            versions = {
                Version.parse(version): DeltaOffer(
                    read_descriptor(required(mapping(offer), "table")), items(offer["deltas"], Delta.read)
                )
                for version, offer in mapping(required(value, "versions")).items()
            }
            return cls(count(required(value, "seq")), versions)
        except (InputError, KeyError):
            return cls()
