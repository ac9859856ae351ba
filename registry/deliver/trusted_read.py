"""What a reader believes of a registry: every answer that is acted on goes through here.

Its index files are held against known heads and against the trust file where they are read (`trust.watched`). Beyond that
the version that answers must be signed where the trust file demands it, and the channel that it was asked by must keep the
policy of its registry.
"""

from typing import TYPE_CHECKING

from onnxreg.registry.gates.prefilter import check_holder_of
from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.read import resolution as resolving
from onnxreg.registry.read.resolution import Resolution
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.registry.trust.checked_source import check_version
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device


def resolve(
    place: RegistryReader,
    ref: Ref,
    query: Query,
    device: "Device | None" = None,
    verify: bool = False,
    heads: CheckpointStore | None = None,
) -> Resolution:
    """As `resolving.resolve`, of a place that is watched (`trust.watched.watched`), and believed."""
    resolution = resolving.resolve(place, ref, query, device, verify)
    check_believed(place, ref, resolution.found, resolution.index, heads)
    return resolution


def check_believed(
    place: RegistryReader,
    ref: Ref,
    found: LocatedVersion,
    index: IndexFile | None,
    heads: CheckpointStore | None = None,
    ask: bool = False,
) -> None:
    """IntegrityError where a version must be signed and is not; GateError as `watch.check_holder_of`."""
    check_version(place, found)
    check_holder_of(place, ref, found, index, heads, ask)
