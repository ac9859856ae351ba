"""Whatever may legally be done to a model, in whatever order, alarms nobody who reads it."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.log.commit import load_own
from onnxreg.registry.log.log import Log
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.log.state import SEGMENT_LINES

NAME = "acme/pii"
VERSIONS = ("1.0.0", "1.0.1", "1.0.2")
STATES = ("certified", "refused", "unknown")


class World:
    """Two registries, and what a user may do in the first, or between both."""

    def __init__(self, root: Path) -> None:
        self.registry, self.other = Home(root / "one"), Home(root / "two")

    def add(self, version: str, state: str) -> None:
        self.registry.make(version, state[:1], size=10)

    def drop_and_attest(self, version: str, state: str) -> None:
        """As two people do who made the same twice."""
        self.add("1.0.0", "a")
        self.add(version, "a")
        self.drop(version, state)
        self.attest("1.0.0", state)

    def tag(self, version: str, state: str) -> None:
        self.registry.tag(f"{NAME}:{version}", "stable")

    def untag(self, version: str, state: str) -> None:
        owner.untag(self.registry, NAME, "stable")

    def yank(self, version: str, state: str) -> None:
        self.registry.yank(f"{NAME}:{version}")

    def unyank(self, version: str, state: str) -> None:
        self.registry.yank(f"{NAME}:{version}", undo=True)

    def pin(self, version: str, state: str) -> None:
        owner.pin(self.registry, f"{NAME}:{version}")

    def unpin(self, version: str, state: str) -> None:
        owner.pin(self.registry, f"{NAME}:{version}", undo=True)

    def drop(self, version: str, state: str) -> None:
        owner.drop(self.registry, f"{NAME}:{version}")

    def expire(self, version: str, state: str) -> None:
        owner.gc(self.registry, 1)

    def purge(self, version: str, state: str) -> None:
        owner.purge(self.registry, f"{NAME}:{version}", "leaked")

    def attest(self, version: str, state: str) -> None:
        artifact = self.registry.get(f"{NAME}:{version}").manifest.artifacts[1].digest
        value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
        report = json.dumps({**value, "suite": str(Digest.of(b"suite")), "state": state}).encode()
        owner.attest(self.registry, f"{NAME}:{version}", report)

    def push(self, version: str, state: str) -> None:
        """A refusal of bytes that are sent arrives with them."""
        ref = f"{NAME}:{version}"
        self.registry.push(ref, self.other.place)
        here, there = (
            {item.path for item in place.get(ref).states if item.state == "refused"}
            for place in (self.registry, self.other)
        )
        assert here <= there

    def pull(self, version: str, state: str) -> None:
        self.registry.pull(f"{NAME}:{version}", str(self.other.store.root), restore=True)

    def seal(self, version: str, state: str) -> None:
        for _ in range(SEGMENT_LINES // 2 + 1):
            owner.pin(self.registry, f"{NAME}:{version}")
            owner.pin(self.registry, f"{NAME}:{version}", undo=True)

    def read_both(self, reader: KnownHeads, newcomer: KnownHeads) -> None:
        """Nobody is alarmed, and the state follows from the log."""
        for registry in (self.registry, self.other):
            for known in (reader, newcomer):
                CheckedReader(registry.store, known).read_index(NAME)
            if NAME in registry.names():
                log = load_own(registry.store, NAME)
                again = Log.replay(log.lines(), registry.id, NAME, log.fetch)
                assert again.encode() == log.encode() == registry.tree.index(NAME).read_bytes()


DEEDS: list[Callable[[World, str, str], None]] = [
    *(World.add, World.drop_and_attest, World.tag, World.untag, World.yank, World.unyank, World.pin),
    *(World.unpin, World.drop, World.expire, World.purge, World.attest, World.push, World.pull, World.seal),
]
Deed = tuple[Callable[[World, str, str], None], str, str]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(*map(st.sampled_from, (DEEDS, VERSIONS, STATES))), min_size=4, max_size=16))
@example([(World.drop_and_attest, "1.0.1", "certified")])
@example(
    [
        (World.add, "1.0.0", "a"),
        (World.yank, "1.0.0", ""),
        (World.drop, "1.0.0", ""),
        (World.add, "1.0.0", "b"),
    ]
)
@example(
    [
        *((World.add, "1.0.0", "a"), (World.push, "1.0.0", ""), (World.attest, "1.0.0", "refused")),
        *((World.add, "1.0.1", "b"), (World.seal, "1.0.1", ""), (World.expire, "1.0.1", "")),
        *((World.pull, "1.0.0", ""), (World.push, "1.0.1", "")),
    ]
)
@example([(World.drop_and_attest, "1.0.1", "refused"), (World.add, "1.0.2", "a"), (World.push, "1.0.2", "")])
@example(
    [
        *((World.add, "1.0.0", "a"), (World.add, "1.0.1", "b"), (World.attest, "1.0.0", "refused")),
        *(
            (World.push, "1.0.1", ""),
            (World.push, "1.0.0", ""),
            (World.add, "1.0.2", "a"),
            (World.push, "1.0.2", ""),
        ),
    ]
)
def test_no_legal_history_alarms_a_reader_or_a_newcomer(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[Deed]
) -> None:
    """A reader who looks after each deed, one who looks at the end, and newcomers all along."""
    root = tmp_path_factory.mktemp("legal")
    world, reader, late = World(root), KnownHeads(root / "reader"), KnownHeads(root / "late")
    for number, (deed, version, state) in enumerate(deeds):
        with suppress(ConflictError, NotFoundError):
            deed(world, version, state)
        world.read_both(reader, KnownHeads(root / f"newcomer{number}"))
        if number == len(deeds) // 2:
            world.read_both(late, late)
    world.read_both(late, late)
