"""Which versions were sent to other registries from here: the reason why `reg drop` refuses."""

from collections.abc import Iterable

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.version import Version


def record(store: DirectoryRegistry, found: LocatedVersion, registry: str) -> None:
    """Remember, before a push begins, that a version is going to be known to another registry."""
    if not was_pushed(store, found):
        store.write_file(_path(found), f"{registry}\n".encode())


def record_all(store: DirectoryRegistry, ledger: Ledger, versions: Iterable[Version], registry: str) -> None:
    """As `record`, for several versions of a model."""
    for version in versions:
        record(store, LocatedVersion(ledger.name, version, ledger.entries[version]), registry)


def was_pushed(store: DirectoryRegistry, found: LocatedVersion) -> bool:
    """Whether a push of the version was ever begun."""
    with host_errors(f"looking for what left {store.url}"):
        return (store.root / _path(found)).exists()


def _path(found: LocatedVersion) -> str:
    return f"local/pushed/{found.name}/{found.entry.manifest.hex}"
