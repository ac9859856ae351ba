"""What a reader believes of a registry: every answer that is acted on goes through here.

Its index files are held against known heads and against the trust file where they are read (`trust.watched`). Beyond that
the version that answers must be signed where the trust file demands it, and the channel that it was asked by must keep the
policy of its registry.
"""

from typing import TYPE_CHECKING

from onnxreg.registry import resolving
from onnxreg.registry.gates.watch import check_holder_of
from onnxreg.registry.lookup import Found
from onnxreg.registry.resolving import Resolution
from onnxreg.registry.storage import IndexFile, Source
from onnxreg.registry.trust.heads import Heads
from onnxreg.registry.trust.watched import check_version
from onnxreg.schema.query import Query
from onnxreg.schema.ref import Ref

if TYPE_CHECKING:
    from onnxreg.schema.device import Device


def resolve(
    place: Source,
    ref: Ref,
    query: Query,
    device: "Device | None" = None,
    verify: bool = False,
    heads: Heads | None = None,
) -> Resolution:
    """As `resolving.resolve`, of a place that is watched (`trust.watched.watched`), and believed."""
    resolution = resolving.resolve(place, ref, query, device, verify)
    check_believed(place, ref, resolution.found, resolution.index, heads)
    return resolution


def check_believed(
    place: Source,
    ref: Ref,
    found: Found,
    index: IndexFile | None,
    heads: Heads | None = None,
    ask: bool = False,
) -> None:
    """IntegrityError where a version must be signed and is not; GateError as `watch.check_holder_of`."""
    check_version(place, found)
    check_holder_of(place, ref, found, index, heads, ask)
