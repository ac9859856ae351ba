"""The deltas of one version: which file each makes, from which old files; and the fastest way to get files with them.

A table is a blob that an event names. A state line repeats it as `DeltaOffers`: a hint, so a malformed one offers
nothing. A file comes whole, by a delta, or by a chain of deltas (docs/delta.md). Pure.
"""

from collections.abc import Collection, Iterable, Mapping
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
MAX_CHAIN = 3
"""Deltas that are applied one after another to get one file."""
MAX_CHOICES = 16
"""Deltas that are considered for one file."""
MAX_WAITING = 16
"""Files of one transfer that wait for each other in a row."""
APPLY_BYTES_PER_SECOND = 100e6
"""Bytes of a new file that applying a delta makes in a second, unless it was measured."""


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


@dataclass(frozen=True, slots=True)
class Route:
    """The way to get one file: its deltas in order (none: the whole file), and what that costs.

    `size` are the bytes to fetch, `seconds` the estimate, None if the rate is not known.
    """

    new: Digest
    deltas: tuple[Delta, ...]
    size: int
    seconds: float | None

    @property
    def needs(self) -> frozenset[Digest]:
        """The blobs that must be there first, apart from those that the chain itself makes."""
        products = {delta.new for delta in self.deltas}
        return frozenset(old for delta in self.deltas for old in delta.old if old not in products)


@dataclass
class RoutePlanner:
    """Chooses the routes of one transfer.

    Args:
        sizes: the files to get, with their sizes in bytes.
        present: the blobs that the receiver has.
        deltas: those that the registry offers, in any order; unknown files and cycles among them do no harm.
        rate: bytes that arrive in a second; None if it was not measured: then fewer bytes are better.
        apply_rate: bytes of a new file that applying makes in a second.
    """

    sizes: Mapping[Digest, int]
    present: Collection[Digest]
    deltas: Iterable[Delta]
    rate: float | None = None
    apply_rate: float = APPLY_BYTES_PER_SECOND
    _routes: dict[Digest, Route] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._makers: dict[Digest, list[Delta]] = {}
        for delta in self.deltas:
            self._makers.setdefault(delta.new, []).append(delta)

    def plan(self) -> dict[Digest, Route]:
        """The route of each file. A file whose route needs another file of the plan comes after that one."""
        for digest in self.sizes:
            self._settle(digest, frozenset())
        return self._routes

    def _settle(self, digest: Digest, pending: frozenset[Digest]) -> None:
        """Choose the route of a file. `pending` are files that wait for this one, which it cannot need."""
        if digest in self._routes:
            return
        pending |= {digest}
        routes = [self._route(digest, ()), *self._chains(digest, (), pending)]
        best = min(routes, key=lambda route: (self._cost(route), len(route.deltas)))
        for old in sorted(best.needs - set(self.present)):
            self._settle(old, pending)
        self._routes[digest] = best

    def _chains(
        self, digest: Digest, later: tuple[Delta, ...], pending: frozenset[Digest]
    ) -> Iterable[Route]:
        """The routes whose last deltas are `later`, all of whose old files are there or will be."""
        for delta in self._makers.get(digest, ())[:MAX_CHOICES]:
            chain = (delta, *later)
            missing = [
                old for old in delta.old if old not in self.present and not self._will_be(old, pending)
            ]
            if not missing:
                yield self._route(chain[-1].new, chain)
            elif len(missing) == 1 and len(chain) < MAX_CHAIN and missing[0] not in {d.new for d in chain}:
                yield from self._chains(missing[0], chain, pending)

    def _will_be(self, digest: Digest, pending: frozenset[Digest]) -> bool:
        """Check if a file of the same transfer arrives before those that wait."""
        return digest in self.sizes and digest not in pending and len(pending) < MAX_WAITING

    def _route(self, digest: Digest, deltas: tuple[Delta, ...]) -> Route:
        size = sum(delta.size for delta in deltas) if deltas else self.sizes[digest]
        seconds = None
        if self.rate is not None:
            seconds = size / self.rate + len(deltas) * self.sizes[digest] / self.apply_rate
        return Route(digest, deltas, size, seconds)

    @staticmethod
    def _cost(route: Route) -> float:
        return route.size if route.seconds is None else route.seconds
