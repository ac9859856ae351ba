"""Resolve a model for each device of a fleet, from one read of the index file."""

from collections.abc import Sequence
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
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import choose_deltas
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query


@dataclass(frozen=True)
class DeviceCoverage:
    """One device and its answer: a resolution, or the reasons why no artifact fits.

    Args:
        member: the member of a pipeline that was asked for.
        update: the bytes that a device with the answer of an older version must fetch, with deltas and without.
    """

    device: Device
    answer: Resolution | NoAnswerError
    member: str | None = None
    update: tuple[int, int] | None = None

    @property
    def is_stranded(self) -> bool:
        """True if the device gets nothing."""
        return isinstance(self.answer, NoAnswerError)

    def to_json(self) -> dict[str, Any]:
        """The document of `reg resolve --json`, with the device's name instead of the model's name and the URLs."""
        answer = self.answer.to_json()
        row: dict[str, Any] = {"device": self.device.name}
        if self.member is not None:
            row["member"] = self.member
        keys = ("version", "manifest", "size", "artifact", "rejected", "rollout")
        row |= {key: answer[key] for key in keys if key in answer}
        if self.update is not None:
            row["update"] = dict(zip(("bytes", "whole"), self.update, strict=True))
        return row


def coverage(
    reader: RegistryReader, ref: Ref, query: Query, devices: Sequence[Device], since: Version | None = None
) -> list[DeviceCoverage]:
    """Resolve for each device, in order; of a pipeline, resolve each member.

    Raise NotFoundError for an unknown model or version; IntegrityError and GateError as
    `resolution.check_version_trust`.

    Args:
        since: count also the bytes of the update of a device that has its answer from this version.
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
                present = set()
                with suppress(NoAnswerError):
                    before = resolve_in(reader, log, Ref(log.name, str(since)), question, device)
                    present = {file.digest for file, _ in before.files}
                sizes = {file.digest: file.size for file, _ in answer.files if file.digest not in present}
                deltas = choose_deltas((delta for delta, _ in answer.deltas), sizes, present)
                fetched = sizes | {digest: delta.size for digest, delta in deltas.items()}
                update = sum(fetched.values()), sum(sizes.values())
            rows.append(DeviceCoverage(device, answer, question.member, update))
        answers = [row.answer.located for row in rows if isinstance(row.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [log.find(ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_version_trust(reader, ref, version, log.index)
        return rows

    return consult(reader, ref.name, read)
