"""Whether a channel has to be looked at: light, since every resolve asks. Only then is the policy read.

A registry is known to have a policy where one was seen there before, the channel's own entry names one, the trust file says
so, or the registry lies on this machine, where to look costs nothing.
"""

from typing import Any

from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.registry.store.wrapper import innermost
from onnxreg.registry.trust.read_trust_file import trust_digest, trust_if_any
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.gates.policy_coverage import is_plainly_free

EDITION = "2"
"""Raised when gates are judged in another way, so that what passed before is looked at again."""


def check_holder_of(
    place: RegistryReader,
    ref: Ref,
    found: LocatedVersion,
    index: IndexFile | None,
    heads: CheckpointStore | None = None,
    ask: bool = False,
) -> None:
    """Raise GateError if a ref names a governed channel, and what it holds was not promoted, does not meet
    the policy, or is not what was found.

    Elsewhere, what passed is remembered, and not looked at again while index file, policies and trust file
    are the same; on this machine it always is, since that costs nothing.

    Args:
        index: the index file that it was found in, where that was read already.
        ask: look for a policy even where none is known of (one more request).
    """
    if ref.tag is None or found.channel is None:
        return
    trust = trust_if_any()
    needed = trust is not None and trust.governs(place.registry_id)
    near, heads = _is_near(place), heads or CheckpointStore()
    known = needed or found.channel.policy is not None or ask or near
    if not known and not heads.knows(place.registry_id, POLICY_LOG):
        return
    policies = place.read_index(POLICY_LOG)
    if policies is None:
        if needed or found.channel.policy is not None:
            raise GateError(
                f"{place.url} has no policy, and must have one",
                "somebody took policy.jsonl away: ask whoever runs the registry",
            )
        return
    if is_plainly_free(_rules(policies), ref.name, ref.tag):
        return
    proof = _proof(index, policies) if index is not None and not near else ""
    if proof and heads.passed(place.registry_id, ref.name, ref.tag, proof):
        return
    from onnxreg.registry.gates.enforce import check_holder

    check_holder(place, ref.tag, found, index, policies)
    if proof and index is not None:
        heads.keep_passed(place.registry_id, ref.name, ref.tag, index, proof)


def _proof(index: IndexFile, policies: IndexFile) -> str:
    """Of what a channel was held against: everything that is read besides is named by digests in these."""
    held = (Digest.of(index.data).hex, Digest.of(policies.data).hex, trust_digest())
    return Digest.of("\n".join((EDITION, *held)).encode()).hex


def _rules(policies: IndexFile) -> Any:
    """The rules in force as JSON; None if they cannot be read."""
    raw = policies.data.removesuffix(b"\n").rpartition(b"\n")[2]
    try:
        return canonical.decode(raw, "policy")["event"]["rules"]
    except (InputError, KeyError, TypeError):
        return None


def _is_near(place: RegistryReader) -> bool:
    """Return True if a place, or what it wraps, is a directory of this machine."""
    return isinstance(innermost(place), DirectoryRegistry)
