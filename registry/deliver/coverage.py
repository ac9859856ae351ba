"""Resolve a model for each device of a fleet, from one read of the index file."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from onnxreg.registry.deliver.trusted_read import check_version_trust
from onnxreg.registry.deliver.update_cost import UpdateCost, deltas_to, update_cost
from onnxreg.registry.log.lookup import find_in, state_of
from onnxreg.registry.read.resolution import NoAnswerError, Resolution, offers, resolve_in
from onnxreg.registry.store.blobs import steady
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import State
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query


@dataclass(frozen=True)
class DeviceCoverage:
    """One device and its resolution, or the reasons for none; of a pipeline, for one member.

    `update`: the cost of the answer for a device that has an older version, if one was named.
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
    remote: RegistryReader,
    ref: Ref,
    query: Query,
    devices: Sequence[Device],
    since: Version | None = None,
) -> list[DeviceCoverage]:
    """Resolve for each device, in order, and of a pipeline for each member.

    `since`: also say what the update costs a device that has what this version gives it. NotFoundError for an unknown
    model or version; IntegrityError, GateError as `trusted_read.check_version_trust`.
    """

    def read(index: IndexFile | None) -> list[DeviceCoverage]:
        state = state_of(remote, ref.name, index)
        rows = []
        for device, question in product(devices, _questions(remote, state, ref, query)):
            answer: Resolution | NoAnswerError
            try:
                answer = resolve_in(remote, state, ref, question, device)
            except NoAnswerError as nothing:
                answer = nothing
            update = None
            if since is not None and isinstance(answer, Resolution):
                update = _update(remote, state, answer, since, question, device)
            rows.append(DeviceCoverage(device, answer, question.member, update))
        answers = [row.answer.target for row in rows if isinstance(row.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [find_in(remote, state, ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_version_trust(remote, ref, version, index)
        return rows

    return steady(remote, ref.name, read)


def _update(
    remote: RegistryReader, state: State, answer: Resolution, since: Version, query: Query, device: Device
) -> UpdateCost:
    """The cost of an answer for a device that has what an older version gives it."""
    try:
        before = resolve_in(remote, state, Ref(state.name, str(since)), query, device)
    except NoAnswerError:
        before = None
    return update_cost(answer, before, since, deltas_to(remote, state, answer))


def _questions(remote: RegistryReader, state: State, ref: Ref, query: Query) -> list[Query]:
    """One query for each member of the newest version, if it is a pipeline and the query names no member."""
    newest = next(offers(remote, state, ref, query), None)
    members = newest.summary.members if newest and query.member is None else ()
    return [query._replace(member=name) for name in members] or [query]
