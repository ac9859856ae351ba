"""The examples are scripts with modules beside them, as `python examples/train_pii.py` sees them."""

from pathlib import Path

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    return registry
