"""The world that attacks begin in: made once, copied for each test."""

from pathlib import Path

import pytest
from support.trust.world import World, make_world


@pytest.fixture(scope="session")
def template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    pytest.importorskip("cryptography")
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(template: World, tmp_path: Path) -> World:
    return template.copied(tmp_path)
