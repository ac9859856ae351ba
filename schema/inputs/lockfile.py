"""`onnxreg.lock`: the exact artifacts of an app's build, by digest (docs/lock.md).

Each model has one entry: the request of the app, and the artifact that answers it. If no answer changed, locking again
writes the same bytes.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, Record, convert
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import Ref, Version, check_name, check_registry_id
from onnxreg.schema.log.state import FileSummary
from onnxreg.schema.query.device import ResolveRequest

FILENAME = "onnxreg.lock"
FORMAT = "onnxreg-lock"
FORMAT_VERSION = 1


class ChosenArtifact(Record, frozen=True):
    """The artifact that `resolve` chose. `contract` is the digest of its contract, the properties an app relies on."""

    format: str
    precision: str
    path: str
    contract: Digest | None = None


class LockedArtifact(Record, frozen=True):
    """The entry of one model in a lock file: the request, and the answer of the registry with the id `registry`."""

    name: str
    question: dict[str, Any] = msgspec.field(name="asked")
    registry: str
    version: Version
    manifest: Digest
    artifact: ChosenArtifact
    files: tuple[FileSummary, ...]  # the artifact and the files that it needs, by path

    def __post_init__(self) -> None:
        check_registry_id(self.registry)
        if check_name(self.name) != self.request.ref.name:
            raise InputError(f"it is about {self.name}, and asks for {self.request.ref.name}")
        if [file.path for file in self.files if file.role == "artifact"] != [self.artifact.path]:
            raise InputError(f"{self.artifact.path} is not the one file with the role artifact")

    @property
    def request(self) -> ResolveRequest:
        return ResolveRequest.read(self.question)

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version), self.manifest)

    @property
    def size(self) -> int:
        """The number of bytes to download. Equal files count once."""
        return sum({file.digest: file.size for file in self.files}.values())

    def __str__(self) -> str:
        return f"{self.version} {self.artifact.path}"


class LockChange(msgspec.Struct, frozen=True):
    """The change of one entry of a lock file. `before` is None for a new entry; `after` is None for a removed entry."""

    name: str
    before: LockedArtifact | None
    after: LockedArtifact | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.name}: " + (f"added {self.after}" if self.after else f"removed {self.before}")
        if str(self.before) == str(self.after):
            before, after = self.before.to_json(), self.after.to_json()
            key = next(key for key in after if before.get(key) != after[key])
            return f"{self.name}: {self.after}, {key} is another"
        contracts = {self.before.artifact.contract, self.after.artifact.contract} - {None}
        remark = "; its contract is another one: inputs, outputs, labels or tokenizer changed"
        return f"{self.name}: {self.before} -> {self.after}{remark if len(contracts) > 1 else ''}"


class Lockfile(msgspec.Struct, frozen=True):
    """A lock file: entries by the names of their models."""

    models: Mapping[str, LockedArtifact]

    @classmethod
    def of(cls, entries: Iterable[LockedArtifact]) -> "Lockfile":
        return cls({entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)})

    def with_entries(self, entries: Iterable[LockedArtifact]) -> "Lockfile":
        """Return a copy of the lock with these entries. An entry replaces the old entry of its model, except if only
        the registry differs.
        """
        locked = {entry.name: entry for entry in entries}
        moved = {name: self.models[name] for name, entry in locked.items() if self.is_moved(entry)}
        return Lockfile.of({**self.models, **locked, **moved}.values())

    def is_moved(self, entry: LockedArtifact) -> bool:
        """True if the lock has the same entry, but from another registry."""
        before = self.models.get(entry.name)
        return before is not None and before != entry == before.replace(registry=entry.registry)

    def changes(self, before: "Lockfile") -> list[LockChange]:
        """Return the changes since an earlier lock, sorted by name."""
        names = sorted(self.models.keys() | before.models.keys())
        changes = [LockChange(name, before.models.get(name), self.models.get(name)) for name in names]
        return [change for change in changes if change.before != change.after]

    def encode(self) -> bytes:
        value = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "models": [entry.to_json() for entry in self.models.values()],
        }
        return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, label: str = FILENAME) -> "Lockfile":
        """Read a lock file, which need not be canonical JSON. Raise InputError, naming the entry, if it is malformed."""
        value = canonical.decode(data, label)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise InputError(f"{label} is not a lock: its format is not {FORMAT!r}", "`reg lock` writes one")
        if value.get("format_version") != FORMAT_VERSION:
            raise InputError(f"{label} has an unknown format_version", "upgrade onnxreg to read a newer one")
        with about(label):
            entries = convert(value.get("models"), tuple[LockedArtifact, ...], "models")
        if any(earlier.name >= later.name for earlier, later in pairwise(entries)):
            raise InputError(f"{label}: its models are not sorted by name, each once")
        return cls.of(entries)
