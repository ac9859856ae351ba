"""Measure the bytes of each model, shared and not shared; and `gc`: let old versions expire, and delete unneeded blobs."""

from collections import Counter
from collections.abc import Collection
from operator import itemgetter
from typing import Any

from onnxreg.registry.log.commit import PUSH_WAIT_SECONDS, CollectResult, blob_keys, collect, survey
from onnxreg.registry.log.contents import present_versions, references
from onnxreg.registry.log.decisions import Decisions, withdraw_deltas
from onnxreg.registry.log.log import Log, load, unknown_model
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref


def usage(remote: RegistryStore, names: Collection[str] = ()) -> dict[str, Any]:
    """Return the document of `reg du --json`: for each model (of `names`) the `versions` and `blobs` here, the `bytes` of the
    blobs, the bytes `unique` to the model, and the `shared` bytes. NotFoundError for an unknown name, IntegrityError for a
    bad log.
    """
    sizes: Counter[Digest] = Counter()
    keys = blob_keys(remote)
    for key, size in keys.items():
        sizes[key.digest] += size
    logs = {name: load(remote, name) for name in list(remote.names())}
    needs = {name: {reference.digest for reference in references(log)} for name, log in logs.items()}
    if unknown := set(names) - needs.keys():
        raise unknown_model(min(unknown), remote)
    users = Counter(digest for digests in needs.values() for digest in digests)
    models = []
    for name in sorted(names or needs):
        size = sum(sizes[digest] for digest in needs[name])
        unique = sum(sizes[digest] for digest in needs[name] if users[digest] == 1)
        versions, blobs = len(list(present_versions(logs[name]))), len(needs[name] & sizes.keys())
        counts = {"name": name, "versions": versions, "blobs": blobs}
        models.append({**counts, "bytes": size, "unique": unique, "shared": size - unique})
    unreferenced = [size for key, size in keys.items() if key.digest not in users]
    return {
        "models": sorted(models, key=itemgetter("unique"), reverse=True),
        "unreferenced": {"blobs": len(unreferenced), "bytes": sum(unreferenced)},
        "total": {"blobs": len(keys), "bytes": sum(keys.values())},
    }


def gc(
    decisions: Decisions, keep: int | None = None, dry_run: bool = False, patience: float = PUSH_WAIT_SECONDS
) -> tuple[list[Ref], CollectResult]:
    """Let all but the newest `keep` releases of each model expire (None: keep all), then delete unreferenced blobs.

    Returns the expired versions and the deleted blobs; `dry_run` returns the same, but changes nothing. The caller must
    first check that no log went back in time.
    """
    store, expired = decisions.store, list[Ref]()
    if not dry_run:
        if isinstance(store, DirectoryRegistry):
            store.clear_partial()
        return [] if keep is None else decisions.expire(keep), collect(store, patience=patience)
    if keep is None:
        return [], survey(store)

    def assume(log: Log) -> None:
        for event in (record := decisions.expiry(log, keep)):
            log.append(event)
        if gone := [event.version for event in record]:
            withdraw_deltas(log, gone)
        expired.extend(Ref(log.name, str(version)) for version in gone)

    return expired, survey(store, assume)
