"""The contract of a store, for each kind of store; servers that people run have habits of their own."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from conformance.contract import ObjectContract, StoreContract, put
from support.servers import s3servers

from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.fsspec_store import FileStore
from onnxreg.registry.store.hub import open_hub
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.protocol import RegistryStore, memory_remote, open_registry
from onnxreg.schema.core.digest import Digest


def on_fsspec(kind: str, root: str) -> RegistryStore:
    import fsspec

    return open_registry(FileStore(fsspec.filesystem(kind), root, f"{kind}:/{root}", True), create=True)


STORES: dict[str, Callable[[Path], RegistryStore]] = {
    "memory": lambda root: memory_remote(),
    "directory": lambda root: DirectoryRegistry.create(root / "registry"),
    "memory of fsspec": lambda root: on_fsspec("memory", f"/{os.urandom(8).hex()}"),
    "write, then rename": lambda root: on_fsspec("file", str(root / "there")),
    "hub": lambda root: open_hub("hf://acme/models", create=True),
}
BUCKETS = [
    "ministack",
    pytest.param("seaweedfs", marks=pytest.mark.more),
    pytest.param("ceph", marks=pytest.mark.large),
]
"""Ceph 16 knows an ETag without the quotes that it gives it with, and no checksums."""


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
class TestStores(StoreContract):
    @pytest.fixture(params=STORES)
    def remote(self, request, tmp_path) -> RegistryStore:
        if request.param == "hub":
            request.getfixturevalue("hub")
        return STORES[request.param](tmp_path)


class TestBuckets(ObjectContract):
    @pytest.fixture(params=BUCKETS)
    def remote(self, request, monkeypatch) -> RegistryStore:
        server: s3servers.Server = request.getfixturevalue(request.param)
        server.enter(monkeypatch)
        return bucket_remote(server.fresh(), create=True)

    def test_a_batch_is_deleted(self, remote):
        blobs = [b"%d" % number for number in range(20)]
        put(remote, *blobs)
        remote.delete([BlobKey(Digest.of(blob)).path for blob in [*blobs, b"absent"]])
        assert remote.has(map(Digest.of, blobs)) == set()


def test_a_blob_under_a_key_that_was_condemned_since_is_placed_again(tmp_path):
    remote, key = DirectoryRegistry.create(tmp_path), BlobKey(Digest.of(b"blob"))
    with remote.push() as push:
        push.put(BytesIO(b"blob"))
        push.flush()
        push.avoid({key})
        push.publish("m", b"1\n", None)
    assert {path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == {
        key.digest.hex,
        f"{key.digest.hex}.1",
    }
