"""Record of the versions that were pushed to other registries: `reg drop` refuses them."""

from collections.abc import Iterable

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.store.protocol import LocalStore
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.ref import Version


def record(store: LocalStore, located: LocatedVersion, registry_id: str) -> None:
    """Record, before a push begins, that another registry will know a version."""
    if not was_pushed(store, located):
        store.write_local(_path(located), f"{registry_id}\n".encode())


def record_all(store: LocalStore, ledger: Ledger, versions: Iterable[Version], registry_id: str) -> None:
    """Record several versions of a model."""
    for version in versions:
        record(store, LocatedVersion(ledger.name, version, ledger.entries[version]), registry_id)


def was_pushed(store: LocalStore, located: LocatedVersion) -> bool:
    """Check if a push of the version ever began."""
    with host_errors(f"looking for what left {store.root}"):
        return (store.root / "local" / _path(located)).exists()


def _path(located: LocatedVersion) -> str:
    return f"pushed/{located.name}/{located.entry.manifest.hex}"
