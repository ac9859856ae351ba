from pathlib import Path

import pytest
from conformance.contract import StoreContract

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.memory import memory_remote
from onnxreg.registry.store.object_store import ListingStore
from onnxreg.registry.store.protocol import RegistryStore


class TestMemory(StoreContract):
    @pytest.fixture
    def remote(self) -> RegistryStore:
        return memory_remote()


class TestListing(StoreContract):
    """A blob that is written after the listing is read like any other."""

    @pytest.fixture
    def remote(self) -> RegistryStore:
        remote = memory_remote()
        return remote.through(ListingStore(remote.store, ("index/", "blobs/"), ()))


class TestLocal(StoreContract):
    @pytest.fixture
    def remote(self, tmp_path: Path) -> RegistryStore:
        return DirectoryRegistry.create(tmp_path / "registry")
