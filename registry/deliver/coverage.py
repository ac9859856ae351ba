"""Resolve a model for each device of a fleet, from one read of the index file.

For a device that has older files, estimate also the bytes and the time of its update.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import consult
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import Delta, choose_deltas
from onnxreg.schema.log.summary import FileSummary
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query

MEGABITS = (1, 10)
"""Rates for which the time of an update is estimated, in Mbit/s."""


@dataclass(frozen=True)
class UpdateCost:
    """The files that a device with files of version `since` lacks, and the bytes of each that it must fetch.

    `deltas` are the files that arrive by a delta.
    """

    since: Version
    files: Sequence[FileSummary]
    deltas: Mapping[Digest, Delta]

    def fetched(self, file: FileSummary) -> int:
        """Bytes to fetch for a file."""
        return self.deltas[file.digest].size if file.digest in self.deltas else file.size

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(map(self.fetched, self.files))

    @property
    def whole(self) -> int:
        """Bytes to fetch without deltas."""
        return sum(file.size for file in self.files)

    @property
    def seconds(self) -> dict[int, float]:
        """The time to fetch them, for each rate of `MEGABITS`."""
        return {megabits: self.size * 8 / (megabits * 1e6) for megabits in MEGABITS}

    def to_json(self) -> dict[str, Any]:
        return {
            "from": str(self.since),
            "bytes": self.size,
            "whole": self.whole,
            "seconds": {str(rate): round(seconds, 3) for rate, seconds in self.seconds.items()},
            "files": [
                {
                    "path": file.path,
                    "bytes": self.fetched(file),
                    "of": file.size,
                    "deltas": int(file.digest in self.deltas),
                }
                for file in self.files
            ],
        }


def update_cost(answer: Resolution, before: Resolution | None, since: Version) -> UpdateCost:
    """Estimate the cost of an answer for a device with the files of the answer `before` (None: no files)."""
    present = {file.digest for file, _ in before.files} if before else set()
    lacking = {file.digest: file for file, _ in answer.files if file.digest not in present}
    sizes = {digest: file.size for digest, file in lacking.items()}
    deltas = choose_deltas((delta for delta, _ in answer.deltas), sizes, present)
    return UpdateCost(since, tuple(lacking.values()), deltas)


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
    reader: RegistryReader, ref: Ref, query: Query, devices: Sequence[Device], since: Version | None = None
) -> list[DeviceCoverage]:
    """Resolve for each device, in order; of a pipeline, resolve each member.

    Raise NotFoundError for an unknown model or version; IntegrityError and GateError as
    `resolution.check_version_trust`.

    Args:
        since: estimate also the update of a device that has its answer from this version.
    """

    def read(log: Log) -> list[DeviceCoverage]:
        newest = next(version_candidates(reader, log, ref, query), None)
        members = newest.summary.members if newest and query.member is None else ()
        questions = [replace(query, member=name) for name in members] or [query]
        rows = []
        for device, question in product(devices, questions):
            update = None
            try:
                answer: Resolution | NoAnswerError = resolve_in(reader, log, ref, question, device)
            except NoAnswerError as nothing:
                answer = nothing
            if since is not None and isinstance(answer, Resolution):
                before = None
                with suppress(NoAnswerError):
                    before = resolve_in(reader, log, Ref(log.name, str(since)), question, device)
                update = update_cost(answer, before, since)
            rows.append(DeviceCoverage(device, answer, question.member, update))
        answers = [row.answer.located for row in rows if isinstance(row.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [log.find(ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_version_trust(reader, ref, version, log.index)
        return rows

    return consult(reader, ref.name, read)
