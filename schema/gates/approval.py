"""Approvals of a policy that demands less than the one before: the signatures that this one demanded of versions."""

from collections.abc import Collection, Iterator

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.channel_rules import check_signers
from onnxreg.schema.gates.policy import Policy, Rule
from onnxreg.schema.gates.policy_comparison import may_overlap, weaker
from onnxreg.schema.signing.dsse import pae

PAYLOAD_TYPE = "application/vnd.onnxreg.policy.v1+json"


def approved_bytes(registry: str, prev: Digest, policy: Policy) -> bytes:
    """The bytes that an approval signs: the policy, and the line of a registry's policy log that it follows."""
    value = {"registry": registry, "prev": str(prev), "rules": policy.to_json()}
    return pae(PAYLOAD_TYPE, canonical.encode(value))


def loosened_rules(before: Policy, after: Policy) -> list[Rule]:
    """The rules of a policy that demand signatures, and may cover a model and channel of which a later one demands less."""
    losses = weaker(before, after)
    return [
        rule
        for rule in before.rules
        if rule.signed_by
        and any(
            loss.channel == rule.channel and any(may_overlap(loss.models, pattern) for pattern in rule.models)
            for loss in losses
        )
    ]


def unapproved(
    before: Policy, after: Policy, signers: Collection[frozenset[str]], trusted: Collection[str]
) -> Iterator[str]:
    """Yield the signatures that a looser policy lacks, as gates word them.

    `signers` are the names and ids of each key that approved it, `trusted` those of all keys that are trusted.
    """
    for rule in loosened_rules(before, after):
        is_met, detail = check_signers(rule, signers, trusted)
        if not is_met:
            yield f"{rule.channel} of {', '.join(rule.models)}: signed_by: {detail}"
