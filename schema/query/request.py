"""A question as a document: `{"ref", "device"?, ...}`, like the options of `reg resolve`.

Beside `ref` and `device` its keys are those of a query (`query.Query.read`). The device is the name of a preset or a
device document. A key that this build does not know is refused: an answer that left out a condition would be wrong.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import mapping, optional, required, text
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A question: a model or version, the conditions on its artifact, and the device."""

    ref: Ref
    query: Query
    device: "Device | None" = None

    @classmethod
    def decode(cls, data: bytes) -> "ResolveRequest":
        """Read the bytes of a request; see `read`."""
        return cls.read(canonical.decode(data, "the request"))

    @classmethod
    def read(cls, value: Any) -> "ResolveRequest":
        """Read a request; InputError if it is malformed. A condition that is null is as good as absent."""
        value = mapping(value)
        ref = Ref.parse(text(required(value, "ref")))
        device = optional(value.get("device"), _device)
        conditions = {key: item for key, item in value.items() if key not in ("ref", "device")}
        return cls(ref, Query.read(conditions), device)

    def to_json(self) -> dict[str, Any]:
        """The document, with the device in full, so that a later table of presets cannot change the question."""
        device = {} if self.device is None else {"device": self.device.to_json()}
        return {"ref": str(self.ref), **self.query.to_json(), **device}


def _device(value: Any) -> "Device":
    if isinstance(value, str):
        from onnxreg.schema.query.device import preset

        return preset(value)
    from onnxreg.schema.query.device import Device

    return Device.read(value)
