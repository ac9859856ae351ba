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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from onnxreg.schema.core.canonical import count, flag, items, mapping, optional, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, check_registry_id
from onnxreg.schema.core.text_files import read_toml
from onnxreg.schema.signing.keys import PublicKey


@dataclass(frozen=True, slots=True)
class RevocationPoint:
    """A line of a log, and its digest: so none can be slipped in before it.

    Up to there a revoked key still counts, or nothing needs to be signed.
    """

    registry: str
    model: str
    seq: int
    head: Digest


@dataclass(frozen=True, slots=True)
class Revocation:
    """A key that no longer counts: since when and why, and the logs that were seen before that."""

    date: str
    reason: str
    until: tuple[RevocationPoint, ...] = ()


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


@dataclass(frozen=True, slots=True)
class SignatureRequirement:
    """The signatures that some models require. `keys` are names; an empty list means any trusted key.

    Lines must be signed from line `since` on; of the logs in `after`, those after that line.
    """

    models: tuple[str, ...]
    registry: str | None = None
    lines: bool = False
    since: int = 1
    versions: bool = False
    keys: tuple[str, ...] = ()
    after: tuple[RevocationPoint, ...] = ()

    def anchor(self, registry: str, model: str) -> RevocationPoint | None:
        """The line of a log up to which no line needs to be signed, if the file names one."""
        return next(
            (point for point in self.after if (point.registry, point.model) == (registry, model)), None
        )


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

    def governs(self, registry: str) -> bool:
        """True if a registry must have a log of policies: a requirement names that log as it would a model."""
        return any(POLICY_LOG in requirement.models for requirement in self.required(registry, POLICY_LOG))

    def concerns(self, registry: str, model: str) -> bool:
        """True if the file says anything of a model's signatures: that there must be some, or a key that may sign it."""
        needs = self.required(registry, model)
        has_needs = any(need.lines or need.versions for need in needs)
        return has_needs or any(key.covers(model) for key in self.keys.values())

    def required(self, registry: str, model: str) -> list[SignatureRequirement]:
        """The requirements on a model of a registry."""
        return [
            requirement
            for requirement in self.requirements
            if requirement.registry in (None, registry)
            and any(fnmatchcase(model, pattern) for pattern in requirement.models)
        ]


def read_trust(data: bytes, label: str) -> Trust:
    """Read the file strictly: an unknown word may be a misspelt requirement. InputError names the place."""
    value = read_toml(data, label)
    try:
        if "witness" in value:
            raise InputError(
                "witnesses are no longer supported",
                "remove [[witness]] and write lines = true: signed lines, the last line that you saw and mirrors reveal a changed history",
            )
        _only(value, "keys", "revoked", "require")
        revocations = items(value.get("revoked", []), _revocation)
        revoked = dict(revocations)
        if len(revoked) < len(revocations):
            raise InputError("one key is revoked twice", "keep one [[revoked]] of each key")
        keys = [
            _key(name, item, revoked.pop(name, None)) for name, item in mapping(value.get("keys", {})).items()
        ]
        if revoked:
            raise InputError(f"revoked key {min(revoked)[:80]!r} is not among the keys")
        _check_replaced(keys)
        by_id = {key.key.id: key for key in keys}
        if len(by_id) < len(keys):
            raise InputError("one key has two names")
        return Trust(by_id, items(value.get("require", []), lambda item: _requirement(item, keys)))
    except InputError as error:
        raise InputError(f"{label}: {error.message}", error.advice) from error


def _key(name: str, value: Any, revoked: Revocation | None) -> TrustedKey:
    fields = mapping(value)
    _only(fields, "key", "models", "replaces")
    models = items(fields.get("models", ["*"]), text)
    public = PublicKey.parse(text(required(fields, "key")))
    return TrustedKey(name, public, models, revoked, optional(fields.get("replaces"), text))


def _check_replaced(keys: Sequence[TrustedKey]) -> None:
    """InputError if a key replaces one that is not there, or in the end itself."""
    replaced = {key.name: key.replaces for key in keys}
    for key in keys:
        name, names = key.replaces, {key.name}
        while name is not None:
            if name not in replaced:
                raise InputError(f"key {key.name[:80]!r} replaces {name[:80]!r}, which is not among the keys")
            if name in names:
                raise InputError(f"key {key.name[:80]!r} replaces itself")
            names.add(name)
            name = replaced[name]


def _successors(names: Sequence[str], keys: Sequence[TrustedKey]) -> tuple[str, ...]:
    """The names, and those of keys that replace one of them."""
    chosen = list(names)
    for _ in keys:
        chosen += [key.name for key in keys if key.replaces in chosen and key.name not in chosen]
    return tuple(chosen)


def _revocation(value: Any) -> tuple[str, Revocation]:
    fields = mapping(value)
    _only(fields, "key", "date", "reason", "until")
    date, reason = str(required(fields, "date")), text(required(fields, "reason"))
    return text(required(fields, "key")), Revocation(date, reason, items(fields.get("until", []), _until))


def _until(value: Any) -> RevocationPoint:
    fields = mapping(value)
    _only(fields, "registry", "model", "seq", "head")
    registry = _registry(required(fields, "registry"))
    head = Digest.parse(required(fields, "head"))
    return RevocationPoint(registry, text(required(fields, "model")), count(required(fields, "seq")), head)


def _requirement(value: Any, keys: list[TrustedKey]) -> SignatureRequirement:
    fields = mapping(value)
    if "witnesses" in fields:
        raise InputError(
            "witnesses are no longer supported",
            "write lines = true: signed lines, the last line that you saw and mirrors reveal a changed history",
        )
    if "approvals" in fields:
        raise InputError(
            "approvals are no longer supported",
            'write lines = true for models = [".policy"]: each policy is signed by a key that the one before it names',
        )
    _only(fields, "models", "registry", "lines", "since", "versions", "keys", "after")
    requirement = SignatureRequirement(
        items(fields.get("models", ["*"]), text),
        optional(fields.get("registry"), _registry),
        flag(fields.get("lines", False)),
        count(fields.get("since", 1)),
        flag(fields.get("versions", False)),
        _successors(items(fields.get("keys", []), text), keys),
        items(fields.get("after", []), _until),
    )
    unknown = set(requirement.keys) - {key.name for key in keys}
    if unknown:
        raise InputError(f"a requirement names key {min(unknown)[:80]!r}, which is not among the keys")
    if not (requirement.lines or requirement.versions):
        raise InputError("a requirement asks for nothing", "write lines = true, versions = true, or both")
    return requirement


def _registry(value: Any) -> str:
    return check_registry_id(text(value), "`reg log NAME --json` shows it")


def _only(value: Mapping[str, Any], *known_keys: str) -> None:
    unknown = value.keys() - set(known_keys)
    if unknown:
        raise InputError(
            f"{min(unknown)[:80]!r} is not a key of a trust file", f"the keys are {', '.join(known_keys)}"
        )
