"""Resolve a model for each device of a fleet, from one read of the index file.

For a device that has older files, estimate also the bytes and the time of its update.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from msgspec.structs import replace

from onnxreg.registry.deliver.resolution import (
    NoAnswerError,
    Resolution,
    check_version_trust,
    resolve_in,
    version_candidates,
)
from onnxreg.registry.delta import offered_deltas
from onnxreg.registry.log.lookup import find_in, read_blob, read_consistently, state_of
from onnxreg.registry.store.protocol import BlobReader, IndexFile, RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.table import Delta, DeltaTable, Route, RoutePlanner
from onnxreg.schema.log.state import State
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query

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
    """Estimate the cost of an answer for a device with the files of the answer `before` (None: no files)."""
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
    manifests = {answer.located.version: answer.located.entry.manifest}
    return offered_deltas(state.deltas, state.name, manifests, partial(_read_table, reader))


def _read_table(reader: BlobReader, digest: Digest) -> DeltaTable:
    try:
        return DeltaTable.decode(read_blob(reader, digest))
    except InputError as error:
        raise IntegrityError(
            f"the table of deltas {digest.short}... cannot be read: {error.message}"
        ) from error


@dataclass(frozen=True)
class DeviceCoverage:
    """One device and its answer: a resolution, or the reasons why no artifact fits.

    Args:
        member: the member of a pipeline that was asked for.
        update: the cost of the answer for a device that has an older version.
    """

    device: Device
    answer: Resolution | NoAnswerError
    member: str | None = None
    update: UpdateCost | None = None

    @property
    def is_stranded(self) -> bool:
        """True if the device gets nothing."""
        return isinstance(self.answer, NoAnswerError)

    def to_json(self) -> dict[str, Any]:
        """The document of `reg resolve --json`, with the device's name instead of the model's name and the
        URLs.
        """
        answer = self.answer.to_json()
        member = {} if self.member is None else {"member": self.member}
        update = {} if self.update is None else {"update": self.update.to_json()}
        row = {key: answer[key] for key in (*_KEYS, "rollout") if key in answer}
        return {"device": self.device.name, **member, **row, **update}


_KEYS = ("version", "manifest", "size", "artifact", "rejected")


def coverage(
    reader: RegistryReader,
    ref: Ref,
    query: Query,
    devices: Sequence[Device],
    since: Version | None = None,
) -> list[DeviceCoverage]:
    """Resolve for each device, in order; of a pipeline, resolve each member.

    Raise NotFoundError for an unknown model or version; IntegrityError and GateError as
    `resolution.check_version_trust`.

    Args:
        since: estimate also the update of a device that has its answer from this version.
    """

    def read(index: IndexFile | None) -> list[DeviceCoverage]:
        state = state_of(reader, ref.name, index)
        rows = []
        for device, question in product(devices, _questions(reader, state, ref, query)):
            answer: Resolution | NoAnswerError
            try:
                answer = resolve_in(reader, state, ref, question, device)
            except NoAnswerError as nothing:
                answer = nothing
            update = None
            if since is not None and isinstance(answer, Resolution):
                update = _update(reader, state, answer, since, question, device)
            rows.append(DeviceCoverage(device, answer, question.member, update))
        answers = [row.answer.located for row in rows if isinstance(row.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [find_in(reader, state, ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_version_trust(reader, ref, version, index)
        return rows

    return read_consistently(reader, ref.name, read)


def _update(
    reader: RegistryReader, state: State, answer: Resolution, since: Version, query: Query, device: Device
) -> UpdateCost:
    """Estimate the cost of an answer for a device that has its answer from an older version."""
    try:
        before = resolve_in(reader, state, Ref(state.name, str(since)), query, device)
    except NoAnswerError:
        before = None
    return update_cost(answer, before, since, deltas_to(reader, state, answer))


def _questions(reader: RegistryReader, state: State, ref: Ref, query: Query) -> list[Query]:
    """One query for each member of the newest version, if it is a pipeline and the query names no member."""
    newest = next(version_candidates(reader, state, ref, query), None)
    members = newest.summary.members if newest and query.member is None else ()
    return [replace(query, member=name) for name in members] or [query]
