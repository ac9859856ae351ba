"""A publisher whose lines and versions are signed, the tree it was pushed to, and keys: its own and an attacker's."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.schema.signing.dsse import PublicKey
from support.registries import owner
from support.registries.drafts import write_draft

MODEL, OTHER, LONG = "acme/pii", "acme/ner", "acme/long"


def plain_pem(key: PrivateKey) -> str:
    """A private key as CI has it in its environment."""
    from cryptography.hazmat.primitives import serialization as form

    encoded = key._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return encoded.decode()


@dataclass(frozen=True)
class World:
    """`tree` is what the attacker may write to; `old` is a copy of it from before the last events.

    `old` and `elsewhere`, another registry of the same publisher, are only read: all tests share them.
    """

    tree: Path
    old: Path
    elsewhere: Path
    release: PrivateKey
    lab: PrivateKey
    revoked: PrivateKey
    attacker: PrivateKey = field(default_factory=lambda: generate("ed25519"))

    def copied(self, root: Path) -> "World":
        """The same with a tree of its own."""
        return replace(self, tree=Path(shutil.copytree(self.tree, root / "tree")))

    def trust(self, *more: str) -> str:
        """The text of a reader's trust file."""

        def key(name: str, public: PublicKey, *lines: str) -> list[str]:
            return [f"[keys.{name}]", f'key = "{public}"', *lines]

        lines = key("release", self.release.public)
        lines += key("lab", self.lab.public, 'models = ["lab/*"]')
        lines += key("stolen", self.revoked.public)
        lines += ["[keys.stolen.revoked]", "date = 2026-01-02", 'reason = "laptop stolen"']
        return "\n".join([*lines, *more, ""])


def make_world(root: Path) -> World:
    """Two models with signed versions, and one whose log is longer than a segment."""
    keys = [generate("ed25519") for _ in range(3)]
    world = World(root / "tree", root / "old", root / "elsewhere", *keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REG_SIGNING_KEY", plain_pem(world.release))
        for where in (world.tree, world.elsewhere):
            _publish(Registry(where), root / f"{where.name}-work", world)
        registry = Registry(world.tree)
        shutil.copytree(world.tree, world.old)
        registry.tag(f"{MODEL}:1.1.0", "stable", "promoted")
        registry.yank(f"{MODEL}:0.9.0", "loses names")
    return world


def _publish(registry: Registry, work: Path, world: World) -> None:
    work.mkdir()
    for name, version in (
        (MODEL, "0.9.0"),
        (MODEL, "1.0.0"),
        (MODEL, "1.1.0"),
        (OTHER, "1.0.0"),
        (LONG, "1.0.0"),
    ):
        registry.add(
            write_draft(work / f"{name}-{version}".replace("/", "-"), name, f"{name} {version}", 100), version
        )
        owner.sign(registry, f"{name}:{version}", world.release)
    registry.tag(f"{MODEL}:1.0.0", "stable")
    registry.add(write_draft(work / "long", LONG, "long 2", 100), "1.1.0")
    owner.sign(registry, f"{LONG}:1.1.0", world.release)
    for number in range(66):
        registry.tag(f"{LONG}:1.{number % 2}.0", "stable")
