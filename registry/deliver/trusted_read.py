"""Trusted reads: every answer that a program acts on goes through here.

`trust.checked_source` compares index files with checkpoints and with the trust file when they are read. In
addition, the version must be signed if the trust file demands it, and the channel of the query must keep the
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
    reader: RegistryReader,
    ref: Ref,
    query: Query,
    device: "Device | None" = None,
    verify: bool = False,
    heads: CheckpointStore | None = None,
    seed: str | None = None,
) -> Resolution:
    """Resolve as `resolution.resolve`, from a checked reader (`checked_source.watched`), and check the
    answer.
    """
    resolution = resolving.resolve(reader, ref, query, device, verify, seed)
    check_version_trust(reader, ref, resolution.target, resolution.index, heads)
    return resolution


def check_version_trust(
    reader: RegistryReader,
    ref: Ref,
    located: LocatedVersion,
    index: IndexFile | None,
    heads: CheckpointStore | None = None,
    force_policy_check: bool = False,
) -> None:
    """IntegrityError if a version must be signed and is not; GateError as `prefilter.check_holder_of`."""
    check_version(reader, located)
    check_holder_of(reader, ref, located, index, heads, force_policy_check)
