from pathlib import Path

import pytest
from conformance.contract import StoreContract

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore, memory_remote


class TestMemory(StoreContract):
    @pytest.fixture
    def remote(self) -> RegistryStore:
        return memory_remote()


class TestLocal(StoreContract):
    @pytest.fixture
    def remote(self, tmp_path: Path) -> RegistryStore:
        return DirectoryRegistry.create(tmp_path / "registry")
