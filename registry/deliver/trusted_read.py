"""Trusted reads: every answer that a program acts on goes through here.

`trust.checked_source` compares index files with known heads and with the trust file when they are read. In
addition, the version must be signed if the trust file demands it, and the channel of the query must keep the
policy of its registry.
"""

from typing import TYPE_CHECKING

from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.read import resolution as resolving
from onnxreg.registry.read.resolution import Resolution
from onnxreg.registry.store.abilities import LocalStore
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, innermost
from onnxreg.registry.trust.checked_source import check_version
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.read_trust_file import trust_digest, trust_if_any
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.gates.policy_coverage import is_plainly_free, rules_in_force
from onnxreg.schema.query.requirements import Query

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device


def resolve(
    reader: RegistryReader,
    ref: Ref,
    query: Query,
    device: "Device | None" = None,
    verify: bool = False,
    known_heads: KnownHeads | None = None,
    seed: str | None = None,
) -> Resolution:
    """Resolve as `resolution.resolve`, from a checked reader (`checked_source.checked_reader`), and check the
    answer.
    """
    resolution = resolving.resolve(reader, ref, query, device, verify, seed)
    check_version_trust(reader, ref, resolution.target, resolution.index, known_heads)
    return resolution


def check_version_trust(
    reader: RegistryReader,
    ref: Ref,
    located: LocatedVersion,
    index: IndexFile | None,
    known_heads: KnownHeads | None = None,
    force_policy_check: bool = False,
) -> None:
    """IntegrityError if a version must be signed and is not; GateError as `check_holder_of`."""
    check_version(reader, located)
    check_holder_of(reader, ref, located, index, known_heads, force_policy_check)


PROOF_EDITION = "3"
"""Raised when gates are judged in another way, so that what passed before is looked at again."""


def check_holder_of(
    source: RegistryReader,
    ref: Ref,
    target: LocatedVersion,
    index: IndexFile | None,
    known_heads: KnownHeads | None = None,
    ask: bool = False,
) -> None:
    """Raise GateError if a ref names a governed channel whose version was not promoted or fails the policy.

    Elsewhere, what passed is remembered, and not looked at again while index file, policies and trust file
    are the same; on this machine it always is, since that costs nothing.

    Args:
        index: the index file that it was found in, if that was read already.
        ask: look for a policy even if none is known of (one more request).
    """
    if ref.tag is None or target.channel is None:
        return
    trust = trust_if_any()
    needed = trust is not None and trust.governs(source.registry_id)
    local, known_heads = isinstance(innermost(source), LocalStore), known_heads or KnownHeads()
    suspected = needed or target.channel.policy is not None or ask or local
    if not suspected and not known_heads.knows(source.registry_id, POLICY_LOG):
        return
    policies = source.read_index(POLICY_LOG)
    if policies is None:
        if needed or target.channel.policy is not None:
            raise GateError(
                f"{source.url} has no policy, and must have one",
                "policy.jsonl was removed: ask the registry's owner",
            )
        return
    if is_plainly_free(rules_in_force(policies.data), ref.name, ref.tag):
        return
    proof = _proof(index, policies) if index is not None and not local else ""
    if proof and known_heads.passed(source.registry_id, ref.name, ref.tag, proof):
        return
    from onnxreg.registry.gates.enforce import check_holder

    check_holder(source, ref.tag, target, index, policies)
    if proof and index is not None:
        known_heads.keep_passed(source.registry_id, ref.name, ref.tag, index, proof)


def _proof(index: IndexFile, policies: IndexFile) -> str:
    """The digest of the documents by which a channel was judged; they name all others by digest."""
    digests = (Digest.of(index.data).hex, Digest.of(policies.data).hex, trust_digest())
    return Digest.of("\n".join((PROOF_EDITION, *digests)).encode()).hex
