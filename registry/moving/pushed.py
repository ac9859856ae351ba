"""Which versions were sent to other registries from here: the reason why `reg drop` refuses."""

from collections.abc import Iterable

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.disk import host_errors
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.lookup import Found
from onnxreg.schema.version import Version


def record(store: LocalRemote, found: Found, registry: str) -> None:
    """Remember, before a push begins, that a version is going to be known to another registry."""
    if not was_pushed(store, found):
        store.write_file(_path(found), f"{registry}\n".encode())


def record_all(store: LocalRemote, ledger: Ledger, versions: Iterable[Version], registry: str) -> None:
    """As `record`, for several versions of a model."""
    for version in versions:
        record(store, Found(ledger.name, version, ledger.entries[version]), registry)


def was_pushed(store: LocalRemote, found: Found) -> bool:
    """Whether a push of the version was ever begun."""
    with host_errors(f"looking for what left {store.url}"):
        return (store.root / _path(found)).exists()


def _path(found: Found) -> str:
    return f"local/pushed/{found.name}/{found.entry.manifest.hex}"
