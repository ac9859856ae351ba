"""What the user trusts and has seen, as JSON."""

from typing import Any

from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.inputs.trust_file import Trust


def keys_json(trust: Trust) -> list[dict[str, Any]]:
    return [
        {
            "name": key.name,
            "kind": key.key.kind,
            "keyid": keyid,
            "public": str(key.key),
            "models": list(key.models),
            "revoked": key.revoked and {"date": key.revoked.date, "reason": key.revoked.reason},
        }
        for keyid, key in trust.keys.items()
    ]


def requirements_json(trust: Trust) -> list[dict[str, Any]]:
    return [
        {
            "models": list(each.models),
            "registry": each.registry,
            "lines": each.lines,
            "since": each.since,
            "versions": each.versions,
            "keys": list(each.keys),
            "after": [
                {"registry": line.registry, "model": line.model, "seq": line.seq, "head": str(line.head)}
                for line in each.after
            ],
        }
        for each in trust.requirements
    ]


def heads_json(heads: CheckpointStore) -> list[dict[str, Any]]:
    found = ((registry, name) for registry in heads.registries() for name in heads.names(registry))
    known = ((registry, name, heads.known(registry, name)) for registry, name in found)
    return [
        {"registry": registry, "name": name, "seq": each.seq, "head": str(each.head)}
        for registry, name, each in known
        if each is not None
    ]
