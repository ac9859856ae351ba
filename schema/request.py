"""A question as a document: `{"ref", "device"?, ...}`, what `reg resolve` is told in options.

Beside `ref` and `device` its keys are those of a query (`query.Query.read`). The device is the name of a preset or a
device document. A key that this build does not know is refused: an answer that left out a condition would be wrong.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxreg.schema import canonical
from onnxreg.schema.query import Query
from onnxreg.schema.reading import mapping, optional, required, text
from onnxreg.schema.ref import Ref

if TYPE_CHECKING:
    from onnxreg.schema.device import Device


@dataclass(frozen=True, slots=True)
class Request:
    """Which model or version, what its artifact must be, and where it must run."""

    ref: Ref
    query: Query
    device: "Device | None" = None

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """Read the bytes of a request; see `read`."""
        return cls.read(canonical.decode(data, "the request"))

    @classmethod
    def read(cls, value: Any) -> "Request":
        """Read a request; InputError where it is malformed. A condition that is null is as good as absent."""
        value = mapping(value)
        ref = Ref.parse(text(required(value, "ref")))
        device = optional(value.get("device"), _device)
        rest = {key: item for key, item in value.items() if key not in ("ref", "device")}
        return cls(ref, Query.read(rest), device)

    def to_json(self) -> dict[str, Any]:
        """What `read` reads; a device in full, so that no later table of presets changes the question."""
        device = {} if self.device is None else {"device": self.device.to_json()}
        return {"ref": str(self.ref), **self.query.to_json(), **device}


def _device(value: Any) -> "Device":
    if isinstance(value, str):
        from onnxreg.schema.presets import preset

        return preset(value)
    from onnxreg.schema.device import Device

    return Device.read(value)
