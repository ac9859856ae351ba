"""The route of each file of a transfer: whole, or by deltas from files that are here."""

import importlib.util
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.protocol import RegistryReader, innermost
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.choose import Route, RoutePlanner
from onnxreg.schema.delta.table import Delta, DeltaOffers, DeltaTable

DeltaPolicy = Literal["auto", "always", "never"]
"""Take deltas if they are faster; whenever there are any; never."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOOPBACK_BYTES_PER_SECOND = 1e9
"""The rate that is assumed for a server on this machine until it is measured."""
MIN_MEASURED_SECONDS = 0.2
"""A rate is believed after bytes arrived for so long."""


@dataclass(frozen=True)
class Arrival:
    """The arrival of a file: the bytes of it that moved, by how many deltas, from which version, and why so."""

    path: str
    digest: Digest
    size: int
    moved: int
    deltas: int = 0
    since: Version | None = None
    reason: str = ""
    is_doubt: bool = False
    """True if a delta was there, and could not be used or gave wrong bytes."""


class RateMeter:
    """The rate of a transfer, over all its files together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._bytes = 0

    def count(self, size: int) -> None:
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic()
            else:
                self._bytes += max(0, size)

    @property
    def rate(self) -> float | None:
        """Bytes a second; None until enough arrived."""
        with self._lock:
            seconds = 0.0 if self._begun is None else time.monotonic() - self._begun
            return self._bytes / seconds if seconds >= MIN_MEASURED_SECONDS and self._bytes else None


@dataclass
class DeltaRoutes:
    """The routes of one transfer. `planned` are those that were best before any rate was measured.

    Args:
        policy: see `DeltaPolicy`.
        planned: the route of each file.
        assumed_rate: bytes a second, until a rate is measured.
        obstacle: why no file may come by a delta; empty if files may.
    """

    policy: DeltaPolicy = "never"
    planned: Mapping[Digest, Route] = field(default_factory=dict)
    assumed_rate: float | None = None
    obstacle: str = ""
    meter: RateMeter = field(default_factory=RateMeter)

    def waves(self, files: Collection[Digest]) -> list[list[Digest]]:
        """The files in groups: those of a later group may need files of an earlier one."""
        waves: list[list[Digest]] = []
        waiting = set(files)
        while waiting:
            ready = {digest for digest in waiting if self._needs(digest).isdisjoint(waiting - {digest})}
            ready = ready or waiting
            waves.append(sorted(ready))
            waiting -= ready
        return waves

    def _needs(self, digest: Digest) -> frozenset[Digest]:
        """The old files of a route, and its deltas, which a mirror fetches anyway."""
        route = self.planned.get(digest)
        return route.needs | {delta.digest for delta in route.deltas} if route else frozenset()

    def choose(self, digest: Digest, size: int) -> tuple[Route | None, str]:
        """The deltas of a file (None: fetch it whole) and the reason, at the rate of this moment."""
        route = self.planned.get(digest)
        if route is None or not route.deltas:
            return None, self.obstacle or (
                "" if self.policy == "never" else "no delta from a file that is here"
            )
        share = f"{route.size / size:.1%} of the file"
        if self.policy == "always":
            return route, share
        rate = self.meter.rate or self.assumed_rate
        if rate is None:
            return route, share
        planner = RoutePlanner({digest: size}, route.needs, route.deltas, rate)
        best = planner.plan()[digest]
        speed = f"at {rate / 1e6:.1f} MB/s"
        return (best, f"{share}, {speed}") if best.deltas else (None, f"the whole file is faster {speed}")


def plan_routes(
    source: RegistryReader,
    ledger: Ledger,
    versions: Collection[Version],
    sizes: Mapping[Digest, int],
    policy: DeltaPolicy,
    has: Callable[[Collection[Digest]], set[Digest]],
) -> DeltaRoutes:
    """Plan how files arrive from a registry in a directory. `sizes` are those to fetch, `has` asks what is there.

    Reads a table of deltas only if the state line does not repeat all of it. A table that cannot be read offers nothing.
    """
    url = urlsplit(innermost(source).url)
    if policy == "never" or not sizes:
        return DeltaRoutes()
    if not url.scheme or not url.netloc:
        return DeltaRoutes(policy, obstacle="the registry is on this machine")
    offers = DeltaOffers.read(ledger.more.get("deltas"))
    manifests = {version: ledger.entries[version].manifest for version in versions}
    deltas = [
        replace(delta, size=0) if delta.digest in sizes else delta
        for delta in offered_deltas(offers, ledger.name, manifests, ledger.read_table)
    ]
    if not deltas:
        return DeltaRoutes(policy)
    if importlib.util.find_spec("numpy") is None:
        return DeltaRoutes(policy, obstacle=NO_NUMPY)
    present = has({old for delta in deltas for old in delta.old})
    planned = RoutePlanner(sizes, frozenset(present), deltas).plan()
    assumed = LOOPBACK_BYTES_PER_SECOND if url.hostname in LOOPBACK else None
    return DeltaRoutes(policy, planned, assumed)


NO_NUMPY = "deltas need numpy, which is not installed: pip install 'onnxreg[onnx]'"


def offered_deltas(
    offers: DeltaOffers,
    name: str,
    manifests: Mapping[Version, Digest],
    read_table: Callable[[Digest], DeltaTable],
) -> list[Delta]:
    """The deltas that a state line offers, all of those of the versions in `manifests`.

    A table is read only if the state line does not repeat all of it; one that cannot be read offers nothing more.
    """
    deltas: list[Delta] = []
    for version, offer in offers.versions.items():
        deltas += offer.deltas
        if version not in manifests:
            continue
        repeated = DeltaTable(name, version, manifests[version], offer.deltas)
        if len(repeated.encode()) < offer.table.size:
            with suppress(IntegrityError, NotFoundError):
                deltas += read_table(offer.table.digest).deltas
    return list(dict.fromkeys(deltas))
