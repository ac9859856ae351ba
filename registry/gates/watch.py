"""Whether a channel has to be looked at: light, since every resolve asks. Only then is the policy read.

A registry is known to have a policy where one was seen there before, the channel's own entry names one, the trust file says
so, or the registry lies on this machine, where to look costs nothing.
"""

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.home import trust_file
from onnxreg.registry.lookup import Found
from onnxreg.registry.storage import Source
from onnxreg.registry.trust.heads import Heads
from onnxreg.schema.errors import GateError
from onnxreg.schema.ref import POLICY_LOG, Ref


def check_channel(
    place: Source, ref: Ref, found: Found, heads: Heads | None = None, ask: bool = False
) -> None:
    """GateError where a ref names a governed channel, and what it holds was not promoted or does not meet the policy.

    Args:
        ask: look for a policy even where none is known of (one more request).
    """
    if ref.tag is None or found.channel is None:
        return
    needed = _must_be_governed(place)
    known = needed or found.channel.policy is not None or ask or _is_near(place)
    if not known and not (heads or Heads()).knows(place.registry_id, POLICY_LOG):
        return
    if place.read_index(POLICY_LOG) is None:
        if needed or found.channel.policy is not None:
            raise GateError(
                f"{place.url} has no policy, and must have one",
                "somebody took policy.jsonl away: ask whoever runs the registry",
            )
        return
    from onnxreg.registry.gates.holding import check_holder

    check_holder(place, ref.name, ref.tag)


def _must_be_governed(place: Source) -> bool:
    if not trust_file().is_file():
        return False
    from onnxreg.registry.trust.policy import load_trust

    return load_trust().governs(place.registry_id)


def _is_near(place: Source) -> bool:
    """Whether a place, or what it wraps, is a directory of this machine."""
    while (inner := getattr(place, "source", None)) is not None:
        place = inner
    return isinstance(place, LocalRemote)
