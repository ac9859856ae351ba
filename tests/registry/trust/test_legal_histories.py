"""Whatever may legally be done to a model, in whatever order, alarms nobody who reads it; and the vectors of the next index file."""

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
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.log.state import SEGMENT_LINES

NAME = "acme/pii"
VERSIONS = ("1.0.0", "1.0.1", "1.0.2")
STATES = ("certified", "refused", "unknown")


class World:
    """Two registries, and what a user may do in the first, or between both."""

    def __init__(self, root: Path) -> None:
        self.registry, self.other = Home(root / "one"), Home(root / "two")

    def drop_and_attest(self, version: str, state: str) -> None:
        """As two people do who made the same twice."""
        for each in ("1.0.0", version):
            self.registry.make(each, "a", size=10)
        owner.drop(self.registry, f"{NAME}:{version}")
        self.attest("1.0.0", state)

    def attest(self, version: str, state: str) -> None:
        artifact = self.registry.get(f"{NAME}:{version}").manifest.artifacts[1].digest
        value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
        report = json.dumps({**value, "suite": str(Digest.of(b"suite")), "state": state}).encode()
        owner.attest(self.registry, f"{NAME}:{version}", report)

    def push(self, ref: str) -> None:
        """A refusal of bytes that are sent arrives with them."""
        self.registry.push(ref, self.other.place)
        here, there = (
            {item.path for item in place.get(ref).states.values() if item.state == "refused"}
            for place in (self.registry, self.other)
        )
        assert here <= there

    def seal(self, ref: str) -> None:
        for _ in range(SEGMENT_LINES // 2 + 1):
            owner.pin(self.registry, ref)
            owner.pin(self.registry, ref, undo=True)

    def do(self, deed: str, version: str, state: str) -> None:
        registry, ref = self.registry, f"{NAME}:{version}"
        deeds: dict[str, Callable[[], object]] = {
            "add": lambda: registry.make(version, state[:1], size=10),
            "drop and attest": lambda: self.drop_and_attest(version, state),
            "tag": lambda: registry.tag(ref, "stable"),
            "untag": lambda: owner.untag(registry, NAME, "stable"),
            "yank": lambda: registry.yank(ref),
            "unyank": lambda: registry.yank(ref, undo=True),
            "pin": lambda: owner.pin(registry, ref),
            "unpin": lambda: owner.pin(registry, ref, undo=True),
            "drop": lambda: owner.drop(registry, ref),
            "expire": lambda: owner.gc(registry, 1),
            "purge": lambda: owner.purge(registry, ref, "leaked"),
            "attest": lambda: self.attest(version, state),
            "push": lambda: self.push(ref),
            "pull": lambda: registry.pull(ref, self.other.place, restore=True),
            "seal": lambda: self.seal(ref),
        }
        deeds[deed]()

    def read_both(self, reader: KnownHeads, newcomer: KnownHeads) -> None:
        """Nobody is alarmed, and the state follows from the log."""
        for registry in (self.registry, self.other):
            for known in (reader, newcomer):
                CheckedReader(registry.store, known).read_index(NAME)
            if NAME in registry.names():
                log = load_own(registry.store, NAME)
                again = Log.replay(log.lines(), registry.id, NAME, log.fetch)
                assert again.encode() == log.encode() == registry.tree.index(NAME).read_bytes()


DEEDS = (
    *("add", "drop and attest", "tag", "untag", "yank", "unyank", "pin", "unpin"),
    *("drop", "expire", "purge", "attest", "push", "pull", "seal"),
)
Deed = tuple[str, str, str]


def deeds(text: str) -> list[Deed]:
    """Deeds with semicolons between them: version, state, and what is done."""
    return [
        (deed, version, state)
        for version, state, deed in (each.split(maxsplit=2) for each in text.split("; "))
    ]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(*map(st.sampled_from, (DEEDS, VERSIONS, STATES))), min_size=4, max_size=16))
@example(deeds("1.0.1 certified drop and attest"))
@example(deeds("1.0.0 a add; 1.0.0 - yank; 1.0.0 - drop; 1.0.0 b add"))
@example(
    deeds(
        "1.0.0 a add; 1.0.0 - push; 1.0.0 refused attest; 1.0.1 b add; 1.0.1 - seal; 1.0.1 - expire; "
        "1.0.0 - pull; 1.0.1 - push"
    )
)
@example(deeds("1.0.1 refused drop and attest; 1.0.2 a add; 1.0.2 - push"))
@example(
    deeds(
        "1.0.0 a add; 1.0.1 b add; 1.0.0 refused attest; 1.0.1 - push; 1.0.0 - push; 1.0.2 a add; 1.0.2 - push"
    )
)
@pytest.mark.more
def test_no_legal_history_alarms_a_reader_or_a_newcomer(tmp_path_factory, history):
    """A reader who looks after each deed, one who looks at the end, and newcomers all along."""
    root = tmp_path_factory.mktemp("legal")
    world, reader, late = World(root), KnownHeads(root / "reader"), KnownHeads(root / "late")
    for number, (deed, version, state) in enumerate(history):
        with suppress(ConflictError, NotFoundError):
            world.do(deed, version, state)
        world.read_both(reader, KnownHeads(root / f"newcomer{number}"))
        if number == len(history) // 2:
            world.read_both(late, late)
    world.read_both(late, late)


HISTORY = json.loads((Path(__file__).parents[2] / "vectors" / "history.json").read_text())


@pytest.mark.parametrize("vector", HISTORY["vectors"], ids=lambda vector: vector["name"])
def test_vectors_of_the_next_index_file(vector, tmp_path):
    place = DirectoryRegistry.create(tmp_path / "tree")
    identity = json.loads((place.root / "registry.json").read_bytes())
    identity["id"] = json.loads(HISTORY["before"].splitlines()[0])["registry"]
    (place.root / "registry.json").chmod(0o600)
    (place.root / "registry.json").write_text(json.dumps(identity))
    for digest, text in HISTORY["documents"].items():
        path = place.root / blob_path(Digest.parse(digest))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    index = place.root / index_path(NAME)
    index.parent.mkdir(parents=True)

    def read(text: str) -> None:
        index.unlink(missing_ok=True)
        index.write_text(text)
        CheckedReader(DirectoryRegistry.open(place.root), KnownHeads()).read_index(NAME)

    read(HISTORY["before"])
    if vector["error"] is None:
        read(vector["after"])
    else:
        with pytest.raises(IntegrityError):
            read(vector["after"])
