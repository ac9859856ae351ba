"""`onnxreg.lock`: the exact artifacts that an app's build takes, so that the next build takes the same ones.

    {"format": "onnxreg-lock", "format_version": 1, "models": [entry, ...]}

One entry for a model, sorted by name: what was asked, and what the answer was, down to the digest of every file. Nothing
of the machine or the moment is in it: the same answers give the same bytes. `docs/lock.md` describes it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import items, mapping, optional, path, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version, check_name, check_registry_id
from onnxreg.schema.log.summary import FileSummary
from onnxreg.schema.query.resolve import ResolveRequest

FILENAME = "onnxreg.lock"
FORMAT = "onnxreg-lock"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class LockedArtifact:
    """One model: what was asked, and the artifact that answered, by the registry `registry`.

    `path` names the artifact in its version, `contract` is what an app relies on (None: not recorded); `files` are all that it needs, itself included, sorted by path.
    """

    request: ResolveRequest
    registry: str
    version: Version
    manifest: Digest
    format: str
    precision: str
    path: str
    files: tuple[FileSummary, ...]
    contract: Digest | None = None

    @property
    def name(self) -> str:
        return self.request.ref.name

    @property
    def ref(self) -> Ref:
        """The version, and the manifest that it must have."""
        return Ref(self.name, str(self.version), self.manifest)

    @property
    def size(self) -> int:
        """Bytes to download, equal files counted once."""
        return sum({file.digest: file.size for file in self.files}.values())

    def __str__(self) -> str:
        return f"{self.version} {self.path}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "asked": self.request.to_json(),
            "registry": self.registry,
            "version": str(self.version),
            "manifest": str(self.manifest),
            "artifact": {
                "format": self.format,
                "precision": self.precision,
                "path": self.path,
                **({} if self.contract is None else {"contract": str(self.contract)}),
            },
            "files": [
                {"role": file.role, "path": file.path, "digest": str(file.digest), "size": file.size}
                for file in self.files
            ],
        }

    @classmethod
    def read(cls, value: Any) -> "LockedArtifact":
        """Read an entry; InputError if it is malformed, or says two things at once."""
        fields = mapping(value)
        artifact = mapping(required(fields, "artifact"))
        entry = cls(
            ResolveRequest.read(required(fields, "asked")),
            check_registry_id(text(required(fields, "registry"))),
            Version.parse(text(required(fields, "version"))),
            Digest.parse(required(fields, "manifest")),
            text(required(artifact, "format")),
            text(required(artifact, "precision")),
            path(required(artifact, "path")),
            items(required(fields, "files"), FileSummary.read),
            optional(artifact.get("contract"), Digest.parse),
        )
        if check_name(text(required(fields, "name"))) != entry.name:
            raise InputError(f"it is about {fields['name']}, and asks for {entry.name}")
        if [file.path for file in entry.files if file.role == "artifact"] != [entry.path]:
            raise InputError(f"{entry.path} is not the one file with the role artifact")
        return entry


@dataclass(frozen=True, slots=True)
class LockChange:
    """The change of one entry; `before` is None if it is new, `after` if it is gone."""

    name: str
    before: LockedArtifact | None
    after: LockedArtifact | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.name}: " + (f"added {self.after}" if self.after else f"removed {self.before}")
        if str(self.before) != str(self.after):
            return f"{self.name}: {self.before} -> {self.after}{self._contract_change()}"
        return f"{self.name}: {self.after}, {self._other_key()} is another"

    def _contract_change(self) -> str:
        contracts = [entry.contract for entry in (self.before, self.after) if entry]
        if None in contracts or contracts[0] == contracts[1]:
            return ""
        return "; its contract is another one: inputs, outputs, labels or tokenizer changed"

    def _other_key(self) -> str:
        """The first key that differs: version and artifact are the same."""
        before, after = (entry.to_json() if entry else {} for entry in (self.before, self.after))
        return next(key for key in after if before.get(key) != after[key])


@dataclass(frozen=True, slots=True)
class Lockfile:
    """The whole file: entries by the names of their models."""

    models: Mapping[str, LockedArtifact]

    @classmethod
    def of(cls, entries: Iterable[LockedArtifact]) -> "Lockfile":
        return cls({entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)})

    def with_entries(self, entries: Iterable[LockedArtifact]) -> "Lockfile":
        """These entries in place of older ones of the same models.

        An entry that differs in nothing but the registry that answered stays: a lock is about digests, and a version
        that was pushed has them everywhere. So does one that an older build wrote without the contract.
        """
        locked = {entry.name: self._stable_entry(entry) for entry in entries}
        return Lockfile.of({**self.models, **locked}.values())

    def elsewhere(self, entries: Iterable[LockedArtifact]) -> list[LockedArtifact]:
        """Those of these answers that are locked as the answer of another registry."""
        return [
            entry
            for entry in entries
            if self.models[entry.name].registry != entry.registry and self._stable_entry(entry) is not entry
        ]

    def _stable_entry(self, entry: LockedArtifact) -> LockedArtifact:
        before = self.models.get(entry.name)
        same = before is not None and before == replace(
            entry, registry=before.registry, contract=before.contract and entry.contract
        )
        return before if before is not None and same else entry

    def changes(self, before: "Lockfile") -> list[LockChange]:
        """The changes since an earlier lock, by name."""
        names = sorted(self.models.keys() | before.models.keys())
        changes = [LockChange(name, before.models.get(name), self.models.get(name)) for name in names]
        return [change for change in changes if change.before != change.after]

    def encode(self) -> bytes:
        """The one spelling: keys sorted, two blanks of indent, a line feed at the end. Lines, for those who review them."""
        value = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "models": [entry.to_json() for entry in self.models.values()],
        }
        return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, label: str = FILENAME) -> "Lockfile":
        """Read a lock in any spelling; InputError, naming `label` and the entry, if it is malformed."""
        value = canonical.decode(data, label)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise InputError(
                f"{label} is not a lock: its format is not {FORMAT!r}", "`reg lock REF` writes one"
            )
        if value.get("format_version") != FORMAT_VERSION:
            raise InputError(f"{label} has an unknown format_version", "upgrade onnxreg to read a newer one")
        models = value.get("models")
        if not isinstance(models, list):
            raise InputError(f"{label}: its models are not an array")
        entries = [_entry(entry, label, index) for index, entry in enumerate(models)]
        names = [entry.name for entry in entries]
        if any(earlier >= later for earlier, later in pairwise(names)):
            raise InputError(f"{label}: its models are not sorted by name, each once")
        return cls.of(entries)


def _entry(value: Any, label: str, index: int) -> LockedArtifact:
    try:
        return LockedArtifact.read(value)
    except InputError as error:
        raise InputError(f"{label}, models[{index}]: {error.message}", error.advice) from error
