"""Which artifact each device of a fleet gets, from one reading of the index file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from onnxreg.registry.belief import check_believed
from onnxreg.registry.blobs import steady
from onnxreg.registry.lookup import find_in, state_of
from onnxreg.registry.resolving import NoAnswerError, Resolution, offers, resolve_in
from onnxreg.registry.storage import IndexFile, Source
from onnxreg.schema.device import Device
from onnxreg.schema.query import Query
from onnxreg.schema.ref import Ref
from onnxreg.schema.state import State


@dataclass(frozen=True)
class Covered:
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


def coverage(remote: Source, ref: Ref, query: Query, devices: Sequence[Device]) -> list[Covered]:
    """Resolve for each device, in order, and of a pipeline for each member. NotFoundError where there is no such model or version.

    IntegrityError, GateError where what is there is not to be believed, as `belief.check_believed`.
    """

    def read(index: IndexFile | None) -> list[Covered]:
        state = state_of(remote, ref.name, index)
        found = []
        for device, asked in product(devices, _questions(remote, state, ref, query)):
            answer: Resolution | NoAnswerError
            try:
                answer = resolve_in(remote, state, ref, asked, device)
            except NoAnswerError as nothing:
                answer = nothing
            found.append(Covered(device, answer, asked.member))
        answers = [each.answer.found for each in found if isinstance(each.answer, Resolution)]
        if not answers and ref.tag is not None:
            answers = [find_in(remote, state, ref)]
        for version in {answer.version: answer for answer in answers}.values():
            check_believed(remote, ref, version, index)
        return found

    return steady(remote, ref.name, read)


def _questions(remote: Source, state: State, ref: Ref, query: Query) -> list[Query]:
    """A question for each member of the newest version, if it is a pipeline and none is named."""
    newest = next(offers(remote, state, ref, query), None)
    members = newest.summary.members if newest and query.member is None else ()
    return [replace(query, member=name) for name in members] or [query]
