"""The registry of a test: versions of a few bytes, its files, copies of it, and `reg` on it."""

import shutil
from pathlib import Path

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Release
from support.registries import owner
from support.registries.drafts import write_draft
from support.trust.tamper import Tree

NAME = "acme/pii"


class Home(Registry):
    """A registry with what many tests do to one. `owner` has the deeds of its owner."""

    @property
    def place(self) -> str:
        return str(self.store.root)

    @property
    def tree(self) -> Tree:
        return Tree(self.store.root)

    def make(self, version: str | None = None, seed: str = "a", name: str = NAME, size: int = 100) -> Release:
        """Publish two artifacts and two companions, which all versions share; `seed` decides the bytes of the weights."""
        with self.workspace() as root:
            return self.add(write_draft(root / "draft", name, seed, size), version)

    def copied(self, place: str | Path = "copy") -> "Home":
        """A copy of the files, beside it unless the place is absolute."""
        return Home(shutil.copytree(self.store.root, self.store.root.parent / place))

    def kinds(self, name: str = NAME) -> list[str]:
        """The kinds of the events of a model."""
        return [line.event.kind for line in self.log(name)]

    def check(self) -> None:
        """Nothing is damaged."""
        assert owner.verify(self).damages == []

    def reg(self, *words: str) -> int:
        return main(["--registry", self.place, *words])
