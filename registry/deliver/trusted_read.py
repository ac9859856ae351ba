"""Trusted reads: every answer that a program acts on goes through here.

A `CheckedReader` compares index files with known heads and with the trust file when they are read. In
addition, the version must be signed if the trust file demands it, and the channel of the query must keep the
policy of its registry.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxreg.registry.deliver.resolution import Resolution, check_index, resolve_in
from onnxreg.registry.log.lookup import LocatedVersion, state_of
from onnxreg.registry.store.abilities import LocalStore
from onnxreg.registry.store.blobs import read_consistently
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, innermost
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
    """Pick one artifact with the companions that it needs, and check it; see `docs/resolve.md`.

    Without a tag, the newest release with a matching artifact wins. Raise NoAnswerError with all reasons if no
    artifact matches. Raise also what `check_version_trust` raises.

    Args:
        reader: a reader of `checked_reader`.
        verify: raise IntegrityError if the index file contradicts the manifest of the version.
        seed: the device's random text in rollouts. A device without one takes part in none.
    """

    def read(index: IndexFile | None) -> Resolution:
        state = state_of(reader, ref.name, index)
        resolution = resolve_in(reader, state, ref, query, device, seed)
        if verify:
            check_index(reader, state, resolution.located)
        return replace(resolution, index=index)

    resolution = read_consistently(reader, ref.name, read)
    check_version_trust(reader, ref, resolution.located, resolution.index, known_heads)
    return resolution


def check_version_trust(
    reader: RegistryReader,
    ref: Ref,
    located: LocatedVersion,
    index: IndexFile | None,
    known_heads: KnownHeads | None = None,
    look_for_policy: bool = False,
) -> None:
    """IntegrityError if a version must be signed and is not; GateError as `check_channel_policy`."""
    check_signed(reader, located)
    check_channel_policy(reader, ref, located, index, known_heads, look_for_policy)


def check_signed(reader: RegistryReader, located: LocatedVersion) -> None:
    """Raise IntegrityError if the trust file wants this version signed, and it is not."""
    trust = trust_if_any()
    if trust is not None and any(
        requirement.versions for requirement in trust.required(reader.registry_id, located.name)
    ):
        from onnxreg.registry.trust.requirements import require_signed

        require_signed(reader, located, trust)


PROOF_EDITION = "3"
"""The edition of the rules of gates. A new edition judges each channel again."""


def check_channel_policy(
    reader: RegistryReader,
    ref: Ref,
    located: LocatedVersion,
    index: IndexFile | None,
    known_heads: KnownHeads | None = None,
    look_for_policy: bool = False,
) -> None:
    """Raise GateError if a ref names a governed channel whose version was not promoted or fails the policy.

    A channel of another place that passed is judged again only after its index file, the policies or the trust
    file changed. A channel on this machine is always judged: that costs no request.

    Args:
        index: the index file in which the version was found, if it was read already.
        look_for_policy: read the policies even if no policy is known. This costs one more request.
    """
    if ref.tag is None or located.channel is None:
        return
    trust = trust_if_any()
    needed = trust is not None and trust.governs(reader.registry_id)
    local, known_heads = isinstance(innermost(reader), LocalStore), known_heads or KnownHeads()
    suspected = needed or located.channel.policy is not None or look_for_policy or local
    if not suspected and not known_heads.knows(reader.registry_id, POLICY_LOG):
        return
    policies = reader.read_index(POLICY_LOG)
    if policies is None:
        if needed or located.channel.policy is not None:
            raise GateError(
                f"{reader.url} has no policy, and must have one",
                "policy.jsonl was removed: ask the registry's owner",
            )
        return
    if is_plainly_free(rules_in_force(policies.data), ref.name, ref.tag):
        return
    proof = _proof(index, policies) if index is not None and not local else ""
    if proof and known_heads.passed(reader.registry_id, ref.name, ref.tag, proof):
        return
    from onnxreg.registry.gates.enforce import check_holder

    check_holder(reader, ref.tag, located, index, policies)
    if proof and index is not None:
        known_heads.keep_passed(reader.registry_id, ref.name, ref.tag, index, proof)


def _proof(index: IndexFile, policies: IndexFile) -> str:
    """Digest the documents by which a channel was judged. They name all others by digest."""
    digests = (Digest.of(index.data).hex, Digest.of(policies.data).hex, trust_digest())
    return Digest.of("\n".join((PROOF_EDITION, *digests)).encode()).hex
