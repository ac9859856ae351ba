"""Which artifact each device of a fleet gets, from one reading of the index file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from onnxreg.registry.deliver.trusted_read import check_believed
from onnxreg.registry.log.lookup import find_in, state_of
from onnxreg.registry.read.resolution import NoAnswerError, Resolution, offers, resolve_in
from onnxreg.registry.store.blobs import steady
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.log.state import State
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query


@dataclass(frozen=True)
class DeviceCoverage:
    """One device and what it gets, or why it gets nothing; of a pipeline for one member."""

    device: Device
    answer: Resolution | NoAnswerError
    member: str | None = None

    @property
    def stranded(self) -> bool:
        return isinstance(self.answer, NoAnswerError)

    def to_json(self) -> dict[str, Any]:
        """As `reg resolve --json`, with the device's name instead of the model's and the URLs."""
        found = self.answer.to_json()
        member = {} if self.member is None else {"member": self.member}
        return {"device": self.device.name, **member, **{key: found[key] for key in _KEYS}}


_KEYS = ("version", "manifest", "size", "artifact", "rejected")


def coverage(
    remote: RegistryReader, ref: Ref, query: Query, devices: Sequence[Device]
) -> list[DeviceCoverage]:
    """Resolve for each device, in order, and of a pipeline for each member. NotFoundError where there is no such model or version.

    IntegrityError, GateError where what is there is not to be believed, as `belief.check_believed`.
    """

    def read(index: IndexFile | None) -> list[DeviceCoverage]:
        state = state_of(remote, ref.name, index)
        found = []
        for device, asked in product(devices, _questions(remote, state, ref, query)):
            answer: Resolution | NoAnswerError
            try:
                answer = resolve_in(remote, state, ref, asked, device)
            except NoAnswerError as nothing:
                answer = nothing
            found.append(DeviceCoverage(device, answer, asked.member))
        answers = [each.answer.found for each in found if isinstance(each.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [find_in(remote, state, ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_believed(remote, ref, version, index)
        return found

    return steady(remote, ref.name, read)


def _questions(remote: RegistryReader, state: State, ref: Ref, query: Query) -> list[Query]:
    """A question for each member of the newest version, if it is a pipeline and none is named."""
    newest = next(offers(remote, state, ref, query), None)
    members = newest.summary.members if newest and query.member is None else ()
    return [replace(query, member=name) for name in members] or [query]
