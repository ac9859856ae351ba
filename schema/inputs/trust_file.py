"""The reader's own policy of trust, a TOML file: the signatures that count for each model, and where they are required.

[keys.release]
key = "ed25519:..."
models = ["acme/*"]                  # default: every model
replaces = "release-2025"            # it counts where that key is named

[[revoked]]
key = "release"
date = 2026-11-20
reason = "laptop stolen"
until = [{registry = "<id>", model = "acme/pii", seq = 57, head = "sha256:..."}]

[[require]]
models = ["acme/*"]
registry = "<id>"                    # default: every registry
lines = true                         # every line of the log is signed ...
since = 1                            # ... from this one on, or ...
after = [{registry = "<id>", model = "acme/pii", seq = 57, head = "sha256:..."}]  # ... after this line of a log
versions = true                      # every version that is pulled or resolved is signed
keys = ["release"]                   # default: any trusted key
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.record import convert
from onnxreg.schema.core.ref import POLICY_LOG, check_registry_id
from onnxreg.schema.core.text_files import read_toml
from onnxreg.schema.signing.keys import PublicKey

ID_ADVICE = "`reg log NAME --json` shows it"
SIGNED = "signed lines, the last line that you saw and mirrors reveal a changed history"
REMOVED = {
    "witness": f"remove [[witness]] and write lines = true: {SIGNED}",
    "witnesses": f"write lines = true: {SIGNED}",
    "approvals": 'write lines = true for models = [".policy"]: each policy is signed by a key that the one before it names',
}
"""Keys that a trust file once had, and their replacement."""
Number = Annotated[int, msgspec.Meta(ge=0)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file. An unknown key may be a misspelt requirement."""


class RevocationPoint(_Table, frozen=True):
    """A line of a log, and its digest: so none can be slipped in before it.

    Up to there a revoked key still counts, or nothing needs to be signed.
    """

    registry: str
    model: str
    seq: Number
    head: Digest

    def __post_init__(self) -> None:
        check_registry_id(self.registry, ID_ADVICE)


class Revocation(_Table, frozen=True):
    """A key, by its name, that no longer counts: since when and why, and the logs that were seen before that."""

    key: str
    date: Any
    reason: str
    until: tuple[RevocationPoint, ...] = ()


class SignatureRequirement(_Table, frozen=True):
    """The signatures that some models require. `keys` are names; an empty list means any trusted key.

    Lines must be signed from line `since` on; of the logs in `after`, those after that line.
    """

    models: tuple[str, ...] = ("*",)
    registry: str | None = None
    lines: bool = False
    since: Number = 1
    versions: bool = False
    keys: tuple[str, ...] = ()
    after: tuple[RevocationPoint, ...] = ()

    def __post_init__(self) -> None:
        if self.registry is not None:
            check_registry_id(self.registry, ID_ADVICE)
        if not (self.lines or self.versions):
            raise InputError("a requirement asks for nothing", "write lines = true, versions = true, or both")

    def anchor(self, registry: str, model: str) -> RevocationPoint | None:
        """The line of a log up to which no line needs to be signed, if the file names one."""
        anchors = (point for point in self.after if (point.registry, point.model) == (registry, model))
        return next(anchors, None)


class _KeyTable(_Table, frozen=True):
    key: str
    models: tuple[str, ...] = ("*",)
    replaces: str | None = None


class _TrustFile(_Table, frozen=True):
    keys: dict[str, _KeyTable] = {}
    revoked: tuple[Revocation, ...] = ()
    require: tuple[SignatureRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key by the reader's name for it, and the models that it may sign."""

    name: str
    key: PublicKey
    models: tuple[str, ...] = ("*",)
    revoked: Revocation | None = None
    replaces: str | None = None

    def covers(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True)
class Trust:
    """The keys that a reader trusts, by id, and its requirements."""

    keys: Mapping[str, TrustedKey] = field(default_factory=dict)
    requirements: tuple[SignatureRequirement, ...] = ()

    def named(self, name: str) -> TrustedKey | None:
        return next((key for key in self.keys.values() if key.name == name), None)

    def lineage(self, key: TrustedKey) -> list[TrustedKey]:
        """A key, the key that it replaces, the one that this replaced, and so on."""
        keys = [key]
        while (old := self.named(keys[-1].replaces or "")) is not None and old not in keys:
            keys.append(old)
        return keys

    def signers(self, keyids: Iterable[str]) -> tuple[frozenset[str], ...]:
        """The names and ids of each of these trusted keys; a key and those that it replaces are one signer."""
        names: dict[str, frozenset[str]] = {}
        for lineage in (self.lineage(self.keys[keyid]) for keyid in keyids):
            own = {name for key in lineage for name in (key.name, key.key.id)}
            names[lineage[-1].name] = names.get(lineage[-1].name, frozenset()) | own
        return tuple(names.values())

    def required(self, registry: str, model: str) -> list[SignatureRequirement]:
        """The requirements on a model of a registry."""
        return [
            requirement
            for requirement in self.requirements
            if requirement.registry in (None, registry)
            and any(fnmatchcase(model, pattern) for pattern in requirement.models)
        ]

    def governs(self, registry: str) -> bool:
        """True if a registry must have a log of policies: a requirement names that log as it would a model."""
        return any(POLICY_LOG in requirement.models for requirement in self.required(registry, POLICY_LOG))

    def concerns(self, registry: str, model: str) -> bool:
        """True if the file says anything of a model's signatures: that there must be some, or a key that may sign it."""
        return bool(self.required(registry, model)) or any(key.covers(model) for key in self.keys.values())


def read_trust(data: bytes, label: str) -> Trust:
    """Read the file strictly. InputError names the file and the place."""
    value = read_toml(data, label)
    with about(label):
        needs = value.get("require", ())
        for table in (value, *(needs if isinstance(needs, list) else ())):
            if removed := next((key for key in REMOVED if key in table), None):
                raise InputError(f"{removed} is no longer supported", REMOVED[removed])
        try:
            file = convert(value, _TrustFile, "the file")
        except InputError as error:
            unknown = re.search(r"unknown field `([^`]{1,80})`", error.message)
            tables = (_TrustFile, _KeyTable, Revocation, RevocationPoint, SignatureRequirement)
            keys = {name for table in tables for name in table.__struct_fields__}
            raise InputError(
                error.message, suggest(unknown[1], sorted(keys)) if unknown else error.hint
            ) from error
        revoked = {item.key: item for item in file.revoked}
        if len(revoked) < len(file.revoked):
            raise InputError("one key is revoked twice", "keep one [[revoked]] of each key")
        if unknown_keys := revoked.keys() - file.keys.keys():
            raise InputError(f"revoked key {min(unknown_keys)[:80]!r} is not among the keys")
        if unknown_keys := {name for need in file.require for name in need.keys} - file.keys.keys():
            raise InputError(
                f"a requirement names key {min(unknown_keys)[:80]!r}, which is not among the keys"
            )
        by_id = {
            key.key.id: key
            for key in (
                TrustedKey(name, PublicKey.parse(item.key), item.models, revoked.get(name), item.replaces)
                for name, item in file.keys.items()
            )
        }
        if len(by_id) < len(file.keys):
            raise InputError("one key has two names")
        lineages = {name: _lineage(name, file.keys) for name in file.keys}
        requirements = []
        for need in file.require:  # a key that replaces a named one counts too
            heirs = [name for name, lineage in lineages.items() if not lineage.isdisjoint(need.keys)]
            names = tuple(dict.fromkeys((*need.keys, *heirs)))
            requirements.append(msgspec.structs.replace(need, keys=names))
        return Trust(by_id, tuple(requirements))


def _lineage(name: str, keys: Mapping[str, _KeyTable]) -> set[str]:
    """The names of a key, of the key that it replaces, and so on. InputError if one is not there, or replaces itself."""
    names, old = {name}, keys[name].replaces
    while old is not None:
        if old not in keys:
            raise InputError(f"key {name[:80]!r} replaces {old[:80]!r}, which is not among the keys")
        if old in names:
            raise InputError(f"key {name[:80]!r} replaces itself")
        names.add(old)
        old = keys[old].replaces
    return names
