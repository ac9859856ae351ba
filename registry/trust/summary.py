"""The user's trust file and known heads as JSON."""

from typing import Any

from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.inputs.trust_file import Trust, WitnessRequirement


def keys_json(trust: Trust) -> list[dict[str, Any]]:
    return [
        {
            "name": key.name,
            "kind": key.key.kind,
            "keyid": keyid,
            "public": str(key.key),
            "models": list(key.models),
            **({"replaces": key.replaces} if key.replaces else {}),
            "revoked": key.revoked and {"date": key.revoked.date, "reason": key.revoked.reason},
        }
        for keyid, key in trust.keys.items()
    ]


def requirements_json(trust: Trust) -> list[dict[str, Any]]:
    return [
        {
            "models": list(requirement.models),
            "registry": requirement.registry,
            "lines": requirement.lines,
            "since": requirement.since,
            "versions": requirement.versions,
            "keys": list(requirement.keys),
            **({"approvals": True} if requirement.approvals else {}),
            **({"witnesses": _witnesses_json(requirement.witnesses)} if requirement.witnesses else {}),
            "after": [
                {"registry": line.registry, "model": line.model, "seq": line.seq, "head": str(line.head)}
                for line in requirement.after
            ],
        }
        for requirement in trust.requirements
    ]


def _witnesses_json(need: WitnessRequirement) -> dict[str, Any]:
    return {
        "any": need.count,
        "of": [str(key) for key in need.keys],
        "max_age": need.max_age,
        "pending": need.pending,
        "log": need.log and str(need.log),
    }


def heads_json(known_heads: KnownHeads) -> list[dict[str, Any]]:
    logs = ((registry, name) for registry in known_heads.registries() for name in known_heads.names(registry))
    recorded = ((registry, name, known_heads.read(registry, name)) for registry, name in logs)
    return [
        {"registry": registry, "name": name, "seq": known_head.seq, "head": str(known_head.head)}
        for registry, name, known_head in recorded
        if known_head is not None
    ]
