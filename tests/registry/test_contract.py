from pathlib import Path

import pytest

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.backends.memory import memory_remote
from onnxreg.registry.storage import Remote
from onnxreg.registry.testing import RemoteContract


class TestMemory(RemoteContract):
    @pytest.fixture
    def remote(self) -> Remote:
        return memory_remote()


class TestLocal(RemoteContract):
    @pytest.fixture
    def remote(self, tmp_path: Path) -> Remote:
        return LocalRemote.create(tmp_path / "registry")
