"""A registry of a few models, copied for each test, and a state directory of its own."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.registries.drafts import write_draft
from support.witness.logs import WitnessedRegistry

from onnxreg.registry import Registry

pytest.importorskip("cryptography")


@pytest.fixture(scope="session")
def template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("witnessed")
    registry = Registry(root / "registry")
    for number, name in enumerate(("acme/pii", "acme/ner", "lab/ocr")):
        registry.add(write_draft(root / f"draft-{number}", name, name, 10), "1.0.0")
    return root / "registry"


@pytest.fixture
def registry(template: Path, tmp_path: Path, own_user: Path) -> Registry:
    return Registry(Path(shutil.copytree(template, tmp_path / "registry")))


@pytest.fixture
def witnessed(registry: Registry) -> WitnessedRegistry:
    return WitnessedRegistry(registry.store)


@pytest.fixture
def grow(registry: Registry) -> Callable[[str], None]:
    """Append one line to the log of a model."""
    number = iter(range(1000))
    return lambda name: registry.tag(f"{name}:1.0.0", f"channel-{next(number)}") and None
