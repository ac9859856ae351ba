"""The trust file of the user on this machine: read, add keys, show. Imports little, since every resolve reads the file.

New entries are appended, so the lines that a person wrote do not change.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxreg.registry.support.disk import host_errors, replace_file
from onnxreg.registry.support.environment import trust_file
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.core.files import read_given

if TYPE_CHECKING:
    from onnxreg.schema.inputs.trust_file import Trust


def load_trust() -> "Trust":
    """Read the user's trust file; without a file, nothing is trusted or required. Raise InputError if malformed."""
    from onnxreg.schema.inputs.trust_file import Trust

    return trust_if_any() or Trust()


def trust_if_any() -> "Trust | None":
    """Read the user's trust file; None if the file does not exist."""
    return read_trust_file(trust_file()) if trust_file().is_file() else None


def read_trust_file(path: Path) -> "Trust":
    """Read a trust file. Raise NotFoundError if it is missing, HostError if unreadable, InputError if malformed."""
    return _parsed(read_given(path), str(path))


@lru_cache(2)
def _parsed(data: bytes, label: str) -> "Trust":
    from onnxreg.schema.inputs.trust_file import read_trust

    return read_trust(data, label)


def trust_digest() -> str:
    """The digest (hex) of the user's trust file; "" if the file does not exist."""
    path = trust_file()
    return Digest.of(path.read_bytes()).hex if path.is_file() else ""


def add_key(name: str, text: str, models: Collection[str]) -> Path:
    """Add a key to the trust file. Raise ConflictError if the file has the name or the key already."""
    from onnxreg.schema.inputs.trust_file import read_trust
    from onnxreg.schema.signing.keys import PublicKey

    public, trust, path = PublicKey.parse(text), load_trust(), trust_file()
    key = trust.keys.get(public.id) or trust.named(name)
    if key is not None:
        raise ConflictError(f"{path} has key {key.name} already", "edit the file to change it")
    words = {"key": str(public), "models": list(models)}  # TOML takes JSON's strings
    lines = [f"[keys.{json.dumps(name, ensure_ascii=False)}]"]
    lines += [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in words.items() if value]
    with host_errors(f"writing {path}"):
        before = path.read_text() if path.exists() else ""
        after = "\n".join([*([before.rstrip("\n"), ""] if before.strip() else []), *lines, ""])
        read_trust(after.encode(), str(path))
        replace_file(path, after.encode())
    return path


def trust_json(trust: "Trust") -> dict[str, list[dict[str, Any]]]:
    """The keys and the requirements of a trust file, as JSON values."""
    keys = [
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
    return {"keys": keys, "require": [msgspec.to_builtins(need, enc_hook=str) for need in trust.requirements]}
