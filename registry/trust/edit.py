"""Change the trust file, and show it as JSON. Entries are appended: the lines of a person stay as they are."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from onnxreg.registry.signing import read_rotation
from onnxreg.registry.support.disk import host_errors, replace_file
from onnxreg.registry.support.environment import trust_file
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.inputs.trust_file import Trust, TrustedKey, read_trust
from onnxreg.schema.signing.keys import PublicKey


def add_rotated_key(name: str, statement: Path) -> tuple[Path, TrustedKey]:
    """Trust the new key of a rotation, for the models of the old key. Return the file and the old key.

    Raise NotFoundError if the old key is not trusted, IntegrityError if it is revoked or did not sign the statement.
    """
    rotation, trust = read_rotation(read_given(statement), str(statement)), load_trust()
    old = trust.keys.get(rotation.old.id)
    if old is None:
        raise NotFoundError(
            f"{trust_file()} has no key {rotation.old}",
            "a rotation only continues a trusted key: confirm the new one through another channel, then reg trust add NAME KEY",
        )
    if old.revoked is not None:
        raise IntegrityError(
            f"key {old.name} is revoked: what it says of another key does not count",
            "a rotation only continues a trusted key: confirm the new one through another channel, then reg trust add NAME KEY",
        )
    models = [] if old.models == ("*",) else old.models
    return add_key(name, str(rotation.new), models, old.name), old


def add_key(name: str, text: str, models: Collection[str], replaces: str | None = None) -> Path:
    """Trust a key. Raise ConflictError if the file has its name or the key already."""
    public, trust = PublicKey.parse(text), load_trust()
    key = trust.keys.get(public.id) or trust.named(name)
    if key is not None:
        raise ConflictError(f"{trust_file()} has key {key.name} already", "edit the file to change it")
    lines = [f"[keys.{_toml(name)}]", f"key = {_toml(str(public))}"]
    lines += [f"models = {_toml(list(models))}"] if models else []
    lines += [f"replaces = {_toml(replaces)}"] if replaces else []
    return _append(lines)


def _append(lines: Collection[str]) -> Path:
    """Add lines to the trust file, if the new file can be read."""
    path = trust_file()
    with host_errors(f"writing {path}"):
        before = path.read_text() if path.exists() else ""
        after = "\n".join([*([before.rstrip("\n"), ""] if before.strip() else []), *lines, ""])
        read_trust(after.encode(), str(path))
        replace_file(path, after.encode())
    return path


def _toml(value: str | list[str]) -> str:
    """A TOML basic string, or an array of them: JSON's escapes are among those of TOML."""
    return json.dumps(value, ensure_ascii=False)


def keys_json(trust: Trust) -> list[dict[str, Any]]:
    return [
        {
            "name": key.name,
            "kind": key.key.kind,
            "keyid": keyid,
            "public": str(key.key),
            "models": list(key.models),
            **({"replaces": key.replaces} if key.replaces else {}),
            "revoked": key.revoked and {"date": str(key.revoked.date), "reason": key.revoked.reason},
        }
        for keyid, key in trust.keys.items()
    ]


def requirements_json(trust: Trust) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(requirement, enc_hook=str) for requirement in trust.requirements]


def heads_json(known_heads: KnownHeads) -> list[dict[str, Any]]:
    logs = ((registry, name) for registry in known_heads.registries() for name in known_heads.names(registry))
    recorded = ((registry, name, known_heads.read(registry, name)) for registry, name in logs)
    return [
        {"registry": registry, "name": name, "seq": known_head.seq, "head": str(known_head.head)}
        for registry, name, known_head in recorded
        if known_head is not None
    ]
