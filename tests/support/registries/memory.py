"""Registries in memory, and versions that are published without a directory: straight to the log of any store."""

from collections.abc import Mapping
from io import BytesIO

from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import MemoryStore, RegistryStore, create_registry
from onnxreg.registry.system import stamp
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.manifest.draft import Draft


def remote(registry_id: str | None = None, url: str = "memory:", mirror: bool = False) -> RegistryStore:
    return create_registry(MemoryStore(url), registry_id, mirror)


def manifest_of(draft: Draft, files: Mapping[str, bytes]) -> bytes:
    """The manifest of a draft with these bytes."""
    return draft.manifest(
        {path: Descriptor(Digest.of(data), len(data)) for path, data in files.items()}
    ).encode()


def publish(remote: RegistryStore, draft: Draft, version: str, files: Mapping[str, bytes]) -> None:
    """Publish a version with these bytes, where the log allows it."""
    document = manifest_of(draft, files)
    about = {"version": Version.parse(version), "manifest": Digest.of(document), "size": len(document)}

    def change(ledger: Log) -> list[Digest]:
        ledger.append(Publish(**stamp(draft.name), **about))
        return [Digest.of(blob) for blob in (*files.values(), document)]

    with remote.push() as push:
        for blob in (*files.values(), document):
            push.put(BytesIO(blob))
        push.flush()
        commit(remote, push, draft.name, change)
