"""Which versions were sent to other registries from here: the reason why `reg drop` refuses."""

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.disk import host_errors
from onnxreg.registry.lookup import Found


def record(store: LocalRemote, found: Found, registry: str) -> None:
    """Remember, before a push begins, that a version is going to be known to another registry."""
    if not was_pushed(store, found):
        store.write_file(_path(found), f"{registry}\n".encode())


def was_pushed(store: LocalRemote, found: Found) -> bool:
    """Whether a push of the version was ever begun."""
    with host_errors(f"looking for what left {store.url}"):
        return (store.root / _path(found)).exists()


def _path(found: Found) -> str:
    return f"local/pushed/{found.name}/{found.entry.manifest.hex}"
