"""The space that a registry takes, by model, shared and not; and `gc`, by which old versions give up theirs."""

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from onnxreg.registry.log import lookup
from onnxreg.registry.log.collect import (
    PUSH_WAIT_SECONDS,
    CollectResult,
    blob_keys,
    collect,
    survey,
)
from onnxreg.registry.log.contents import present_versions, references
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.delta_log import withdraw_deltas
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.log.events import Expire


class ModelUsage(NamedTuple):
    """One model: versions whose files are here, blobs, all their bytes, the bytes that only it refers to, and the rest."""

    name: str
    versions: int
    blobs: int
    size: int
    unique: int
    shared: int


class Usage(NamedTuple):
    """Usage of a registry: the requested models, unreferenced blobs, and all blobs; in bytes, of blobs alone."""

    models: list[ModelUsage]
    unreferenced: dict[str, int]
    total: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        models = [model._asdict() for model in self.models]
        for model in models:
            model["bytes"] = model.pop("size")
        return self._asdict() | {"models": models}


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
    for log in (load(remote, name) for name in list(remote.names())):
        needs[log.name] = {reference.digest for reference in references(log)}
        versions[log.name] = len(list(present_versions(log)))
    if unknown := set(names) - needs.keys():
        raise lookup.unknown_model(min(unknown), remote)
    users = Counter(digest for digests in needs.values() for digest in digests)
    models = []
    for name in set(names or needs):
        size = sum(sizes[digest] for digest in needs[name])
        unique = sum(sizes[digest] for digest in needs[name] if users[digest] == 1)
        blobs = len(needs[name] & sizes.keys())
        models.append(ModelUsage(name, versions[name], blobs, size, unique, size - unique))
    unreferenced = [size for key, size in keys.items() if key.digest not in users]
    return Usage(
        sorted(models, key=lambda model: (-model.unique, model.name)),
        {"blobs": len(unreferenced), "bytes": sum(unreferenced)},
        {"blobs": len(keys), "bytes": sum(keys.values())},
    )


def gc(
    decisions: Decisions,
    keep: int | None = None,
    dry_run: bool = False,
    patience: float = PUSH_WAIT_SECONDS,
) -> tuple[list[Ref], CollectResult]:
    """Let all but the newest `keep` releases of each model expire, then delete every blob that nothing refers to.

    Returns the versions that expired and what was deleted; with `dry_run` what would be. The caller checks first that no
    log went back in time: the registry would lose files that it no longer names.
    """
    store, expired = decisions.store, list[Ref]()
    if not dry_run:
        if isinstance(store, DirectoryRegistry):
            store.clear_partial()
        return [] if keep is None else decisions.expire(keep), collect(store, patience=patience)
    if keep is None:
        return [], survey(store)
    decide = decisions.expiry(keep)

    def assume(log: Log) -> None:
        gone = []
        for event in decide(log):
            log.append(event)
            gone += [event.version] if isinstance(event, Expire) else []
        if gone:
            withdraw_deltas(log, gone)
        expired.extend(Ref(log.name, str(version)) for version in gone)

    return expired, survey(store, assume)
