"""The bytes and the time that an update costs a device that has the files of an older answer."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from onnxreg.registry.delta.routes import offered_deltas
from onnxreg.registry.read.resolution import Resolution
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.protocol import BlobReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.version import Version
from onnxreg.schema.delta.choose import Route, RoutePlanner
from onnxreg.schema.delta.table import Delta, DeltaTable
from onnxreg.schema.log.state import State

MEGABITS = (1, 10)
"""Rates for which the time of an update is estimated, in Mbit/s."""


@dataclass(frozen=True)
class UpdateCost:
    """The files that a device lacks, and their routes at the fewest bytes.

    `seconds` has the estimated time for each rate of `MEGABITS`, each with the routes that are fastest at that rate.
    """

    since: Version
    sizes: Mapping[Digest, int]
    paths: Mapping[Digest, str]
    routes: Mapping[Digest, Route]
    seconds: Mapping[int, float]

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(route.size for route in self.routes.values())

    @property
    def whole(self) -> int:
        """Bytes to fetch without deltas."""
        return sum(self.sizes.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "from": str(self.since),
            "bytes": self.size,
            "whole": self.whole,
            "seconds": {str(rate): round(seconds, 3) for rate, seconds in self.seconds.items()},
            "files": [
                {
                    "path": self.paths[digest],
                    "bytes": route.size,
                    "of": self.sizes[digest],
                    "deltas": len(route.deltas),
                }
                for digest, route in self.routes.items()
            ],
        }


def update_cost(
    answer: Resolution, before: Resolution | None, since: Version, deltas: Collection[Delta]
) -> UpdateCost:
    """The cost of an answer for a device with the files of the one `before` it (None: it has none)."""
    present = frozenset(file.digest for file, _ in before.files) if before else frozenset()
    files = {file.digest: file for file, _ in answer.files if file.digest not in present}
    sizes = {digest: file.size for digest, file in files.items()}
    seconds = {}
    for megabits in MEGABITS:
        planned = RoutePlanner(sizes, present, deltas, megabits * 1e6 / 8).plan()
        seconds[megabits] = sum(route.seconds or 0.0 for route in planned.values())
    routes = RoutePlanner(sizes, present, deltas).plan()
    return UpdateCost(since, sizes, {digest: file.path for digest, file in files.items()}, routes, seconds)


def deltas_to(reader: BlobReader, state: State, answer: Resolution) -> list[Delta]:
    """The deltas that may lead to an answer."""
    manifests = {answer.target.version: answer.target.entry.manifest}
    return offered_deltas(state.deltas, state.name, manifests, partial(_read_table, reader))


def _read_table(reader: BlobReader, digest: Digest) -> DeltaTable:
    try:
        return DeltaTable.decode(read_blob(reader, digest))
    except InputError as error:
        raise IntegrityError(
            f"the table of deltas {digest.short}... cannot be read: {error.message}"
        ) from error
