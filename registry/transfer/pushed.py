"""The record, kept on this machine, that another registry knows a version: `reg drop` then refuses."""

from collections.abc import Iterable

from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version


def record_push(store: DirectoryRegistry, log: Log, versions: Iterable[Version], registry_id: str) -> None:
    """Record, before a push begins, that another registry will know these versions."""
    for version in versions:
        manifest = log.versions[version].manifest
        if not _is_recorded(store, log.name, manifest):
            store.write_local(_path(log.name, manifest), f"{registry_id}\n".encode())


def was_pushed(store: DirectoryRegistry, located: LocatedVersion) -> bool:
    """True if a push of the version ever began."""
    return _is_recorded(store, located.name, located.entry.manifest)


def _is_recorded(store: DirectoryRegistry, name: str, manifest: Digest) -> bool:
    with host_errors(f"looking for what left {store.root}"):
        return (store.root / "local" / _path(name, manifest)).exists()


def _path(name: str, manifest: Digest) -> str:
    return f"pushed/{name}/{manifest.hex}"
