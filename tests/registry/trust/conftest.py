"""The world that attacks begin in: made once, copied for each test."""

import pytest
from support.trust.world import World, make_world


@pytest.fixture(scope="session")
def template(isolated_user, tmp_path_factory) -> World:
    pytest.importorskip("cryptography")
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(template, tmp_path) -> World:
    return template.copied(tmp_path)
