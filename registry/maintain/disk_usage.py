"""Disk usage of a registry: by model, shared and not, and what a collection would free."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from onnxreg.registry.log import lookup
from onnxreg.registry.log.collect import blob_keys
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.contents import present_versions, references
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest


@dataclass(frozen=True)
class ModelUsage:
    """One model: versions whose files are here, blobs, all their bytes, and the bytes that only it refers
    to."""

    name: str
    versions: int
    blobs: int
    size: int
    unique: int

    @property
    def shared(self) -> int:
        return self.size - self.unique

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": self.versions,
            "blobs": self.blobs,
            "bytes": self.size,
            "unique": self.unique,
            "shared": self.shared,
        }


@dataclass(frozen=True)
class Usage:
    """Usage of a registry: the requested models, unreferenced blobs, and all blobs. Sizes are in bytes, of
    blobs alone.
    """

    models: list[ModelUsage]
    unreferenced: dict[str, int]
    total: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        models = [model.to_json() for model in self.models]
        return {"models": models, "unreferenced": self.unreferenced, "total": self.total}


def usage(remote: RegistryStore, names: Collection[str] = ()) -> Usage:
    """Measure each model (or only those of these names), the one with most bytes of its own first.

    Every log is read, since a blob is unique only if no other model has it. NotFoundError for an unknown
    name; IntegrityError if a log or manifest cannot be read.
    """
    sizes: Counter[Digest] = Counter()
    keys = blob_keys(remote)
    for key, size in keys.items():
        sizes[key.digest] += size
    needs: dict[str, set[Digest]] = {}
    versions: dict[str, int] = {}
    for ledger in (load(remote, name)[0] for name in list(remote.names())):
        needs[ledger.name] = {reference.digest for reference in references(ledger)}
        versions[ledger.name] = len(list(present_versions(ledger)))
    for name in names:
        if name not in needs:
            raise lookup.unknown_model(name, remote)
    users = Counter(digest for digests in needs.values() for digest in digests)
    models = [
        ModelUsage(
            name,
            versions[name],
            len(needs[name] & sizes.keys()),
            sum(sizes[digest] for digest in needs[name]),
            sum(sizes[digest] for digest in needs[name] if users[digest] == 1),
        )
        for name in set(names or needs)
    ]
    unreferenced = [size for key, size in keys.items() if key.digest not in users]
    return Usage(
        sorted(models, key=lambda model: (-model.unique, model.name)),
        {"blobs": len(unreferenced), "bytes": sum(unreferenced)},
        {"blobs": len(keys), "bytes": sum(keys.values())},
    )
