"""The fastest way to get files: whole, by a delta, or by a chain of deltas. Pure; see docs/delta.md."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.delta.table import Delta

MAX_CHAIN = 3
"""Deltas that are applied one after another to get one file."""
MAX_CHOICES = 16
"""Deltas that are considered for one file."""
MAX_WAITING = 16
"""Files of one transfer that wait for each other in a row."""
APPLY_BYTES_PER_SECOND = 100e6
"""Bytes of a new file that applying a delta makes in a second, unless it was measured."""


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
