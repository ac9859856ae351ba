"""The trust file (docs/signing.md): the keys that a user trusts, and the signatures that the user requires."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from onnxreg.schema.core.canonical import Count, Digest, convert
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.files import read_toml
from onnxreg.schema.core.ref import POLICY_LOG, check_registry_id
from onnxreg.schema.signing.dsse import PublicKey

ID_ADVICE = "`reg log NAME --json` shows it"
SIGNED = "signed lines, the last line that you saw and mirrors reveal a changed history"
# Keys of older files -> what to write instead
REMOVED = {
    "witness": f"remove [[witness]] and write lines = true: {SIGNED}",
    "witnesses": f"write lines = true: {SIGNED}",
    "approvals": 'write lines = true for models = [".policy"]: each policy is signed by a key that the one before it names',
}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the trust file. Unknown keys are refused, because they may be misspelt requirements."""


class RevocationPoint(_Table, frozen=True):
    """A line of a log, with its number `seq` and its digest `head`. Signatures by a revoked key stay valid up to this
    line of the log.
    """

    registry: str
    model: str
    seq: Count
    head: Digest

    def __post_init__(self) -> None:
        check_registry_id(self.registry, ID_ADVICE)


class Revocation(_Table, frozen=True):
    """The revocation of a key. Signatures by the key stay valid up to the lines in `until`."""

    date: Any
    reason: str
    until: tuple[RevocationPoint, ...] = ()


class _KeyTable(_Table, frozen=True, kw_only=True):
    key: str
    models: tuple[str, ...] = ("*",)
    revoked: Revocation | None = None
    replaces: str | None = None


class TrustedKey(_KeyTable, frozen=True, kw_only=True):
    """A key, the user's name for it, and patterns of the models that it may sign."""

    name: str
    key: PublicKey  # type: ignore[assignment]

    def covers(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class SignatureRequirement(_Table, frozen=True):
    """A requirement that some models are signed: the lines of their logs, their versions, or both."""

    models: tuple[str, ...] = ("*",)
    registry: str | None = None
    lines: bool = False  # the lines of the logs must be signed
    since: Count = 1  # the number of the first line that must be signed
    versions: bool = False  # the versions must be signed
    keys: tuple[str, ...] = ()  # names of keys; empty: any trusted key
    after: tuple[RevocationPoint, ...] = ()  # only later lines must be signed

    def __post_init__(self) -> None:
        if self.registry is not None:
            check_registry_id(self.registry, ID_ADVICE)
        if not (self.lines or self.versions):
            raise InputError("a requirement asks for nothing", "write lines = true, versions = true, or both")


class _TrustFile(_Table, frozen=True):
    keys: dict[str, _KeyTable] = {}
    require: tuple[SignatureRequirement, ...] = ()


class Trust(msgspec.Struct, frozen=True):
    """The keys that a user trusts, by id, and the user's requirements."""

    keys: Mapping[str, TrustedKey] = {}
    requirements: tuple[SignatureRequirement, ...] = ()

    def named(self, name: str) -> TrustedKey | None:
        return next((key for key in self.keys.values() if key.name == name), None)

    def lineage(self, key: TrustedKey) -> list[TrustedKey]:
        """Return a key, the key that it replaces, and so on."""
        keys = [key]
        while (old := self.named(keys[-1].replaces or "")) is not None and old not in keys:
            keys.append(old)
        return keys

    def signers(self, keyids: Iterable[str]) -> tuple[frozenset[str], ...]:
        """Return the keys' owners, each as a set of key names and ids. A key and its predecessors have one owner."""
        names: dict[str, frozenset[str]] = {}
        for lineage in (self.lineage(self.keys[keyid]) for keyid in keyids):
            own = {name for key in lineage for name in (key.name, key.key.id)}
            names[lineage[-1].name] = names.get(lineage[-1].name, frozenset()) | own
        return tuple(names.values())

    def governs(self, registry: str) -> bool:
        """True if a registry must have a policy log: a requirement for the registry lists `.policy` in `models`."""
        return any(POLICY_LOG in need.models for need in self.required(registry, POLICY_LOG))

    def concerns(self, registry: str, model: str) -> bool:
        """True if the file requires signatures for a model, or has a key that may sign the model."""
        return bool(self.required(registry, model)) or any(key.covers(model) for key in self.keys.values())

    def required(self, registry: str, model: str) -> list[SignatureRequirement]:
        return [
            need
            for need in self.requirements
            if need.registry in (None, registry) and any(fnmatchcase(model, item) for item in need.models)
        ]


@lru_cache(2)
def read_trust(data: bytes, label: str) -> Trust:
    """Read a trust file. Raise InputError, naming the file, if it is malformed."""
    value = read_toml(data, label)
    with about(label):
        needs = value.get("require", ())
        for table in (value, *(needs if isinstance(needs, list) else ())):
            if removed := next((key for key in REMOVED if key in table), None):
                raise InputError(f"{removed} is no longer supported", REMOVED[removed])
        file = convert(value, _TrustFile, "the file")
        named = {
            name: TrustedKey(name=name, **structs.asdict(item) | {"key": PublicKey.parse(item.key)})
            for name, item in file.keys.items()
        }
        trust = Trust({key.key.id: key for key in named.values()})
        if len(trust.keys) < len(named):
            raise InputError("one key has two names")
        if unknown := {name for need in file.require for name in need.keys} - named.keys():
            raise InputError(f"a requirement names key {min(unknown)[:80]!r}, which is not among the keys")
        lineages = {}
        for name, key in named.items():
            lineages[name] = {item.name for item in trust.lineage(key)}
            replaced = {item.replaces for item in trust.lineage(key) if item.replaces}
            if unknown := replaced - named.keys():
                raise InputError(f"key {name[:80]!r} replaces {min(unknown)[:80]!r}, which the file lacks")
            if len(replaced) == len(lineages[name]):
                raise InputError(f"key {name[:80]!r} replaces itself")
        requirements = []
        for need in file.require:  # a successor of one of its keys counts too
            heirs = (name for name, lineage in lineages.items() if not lineage.isdisjoint(need.keys))
            requirements.append(structs.replace(need, keys=tuple(dict.fromkeys((*need.keys, *heirs)))))
        return Trust(trust.keys, tuple(requirements))
