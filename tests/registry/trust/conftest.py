"""The world that attacks begin in: made once, copied for each test; and a user who reads it."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.registries.home import Home
from support.trust.tamper import Tree
from support.trust.world import MODEL, World, make_world


@pytest.fixture(scope="session")
def template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    pytest.importorskip("cryptography")
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(template: World, tmp_path: Path) -> World:
    return template.copied(tmp_path)


@dataclass(frozen=True)
class User:
    """A reader of the world's tree, with a trust file and a registry."""

    world: World
    tree: Tree
    own: Path
    home: Home

    def trusts(self, *more: str) -> None:
        """Write the trust file: the keys of the world, and these lines."""
        self.own.mkdir(parents=True, exist_ok=True)
        (self.own / "trust").write_text(self.world.trust(*more))

    def demands(self, *more: str) -> None:
        """Trust, and demand that lines are signed."""
        self.trusts(*more, "[[require]]", 'models = ["acme/*"]', "lines = true")

    def resolve(self, name: str = MODEL, *more: str) -> int:
        return self.home.reg("resolve", name, "--remote", str(self.tree.root), *more)


@pytest.fixture
def user(world: World, own_user: Path, other: Home) -> User:
    return User(world, Tree(world.tree), own_user, other)
