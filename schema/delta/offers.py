"""The deltas that a state line offers: a hint, so a malformed one offers nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onnxreg.schema.core.codec import count, items, mapping, required
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.version import Version
from onnxreg.schema.delta.delta_format import read_descriptor
from onnxreg.schema.delta.table import Delta


class DeltaOffer(NamedTuple):
    """The table of one version's deltas, and the first of them."""

    table: Descriptor
    deltas: tuple[Delta, ...]


@dataclass(frozen=True)
class DeltaOffers:
    """The key `deltas` of a state line: the line that it belongs to, and the offer of each version."""

    seq: int | None = None
    versions: Mapping[Version, DeltaOffer] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        versions = {
            str(version): {
                "table": {"digest": str(offer.table.digest), "size": offer.table.size},
                "deltas": [delta.to_json() for delta in offer.deltas],
            }
            for version, offer in self.versions.items()
        }
        return {"seq": self.seq, "versions": versions}

    @classmethod
    def read(cls, value: Any) -> "DeltaOffers":
        """Read the key; no offers if it is missing or malformed."""
        try:
            value = mapping(value)
            versions = {
                Version.parse(version): DeltaOffer(
                    read_descriptor(required(mapping(offer), "table")), items(offer["deltas"], Delta.read)
                )
                for version, offer in mapping(required(value, "versions")).items()
            }
            return cls(count(required(value, "seq")), versions)
        except (InputError, KeyError):
            return cls()
