from pathlib import Path

import pytest
from conformance.contract import StoreContract

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.memory import memory_remote
from onnxreg.registry.store.protocol import RegistryStore


class TestMemory(StoreContract):
    @pytest.fixture
    def remote(self) -> RegistryStore:
        return memory_remote()


class TestLocal(StoreContract):
    @pytest.fixture
    def remote(self, tmp_path: Path) -> RegistryStore:
        return DirectoryRegistry.create(tmp_path / "registry")
