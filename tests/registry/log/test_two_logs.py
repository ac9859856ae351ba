"""The rule for two logs of one model: as a table of cases, and as invariants under any order of verbs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.registries import memory

from onnxreg.registry.log.commit import blob_keys, collect, commit, load_own
from onnxreg.registry.log.contents import EVERYTHING, Selection
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.system import stamp
from onnxreg.registry.transfer.exchange import ExchangeRequest, TransferResult, exchange, missing_lines
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, ForkError, NotFoundError, RegError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Drop, Expire, LogLine, Publish, Yank
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

NAME = "acme/pii"
WEIGHTS = (b"weights a", b"weights b", b"weights c")


def publish(remote: RegistryStore, version: str, weights: bytes = WEIGHTS[0]) -> None:
    """A version with two artifacts and a tokenizer, which all versions share."""
    files = {"model.onnx": weights, "model_int8.onnx": b"int8 " + weights, "tokenizer.json": b"tokenizer"}
    artifacts = (
        DraftArtifact("onnx", "float32", "model.onnx"),
        DraftArtifact("onnx-int8", "int8", "model_int8.onnx"),
    )
    draft = Draft(NAME, Path(), artifacts, (DraftFile("tokenizer", "tokenizer.json"),))
    memory.publish(remote, draft, version, files)


def ledger_of(remote: RegistryStore) -> Log:
    return load_own(remote, NAME)


def lines_of(remote: RegistryStore) -> list[LogLine]:
    return list(ledger_of(remote).lines())


def send(
    source: RegistryStore, destination: RegistryStore, *versions: str, restore: bool = False, part: str = ""
) -> TransferResult:
    chosen, selection = [Version.parse(version) for version in versions], Selection((part,) if part else ())
    return exchange(source, destination, ExchangeRequest(NAME, chosen, selection, restore=restore))


def do(remote: RegistryStore, deeds: str) -> None:
    """Deeds with semicolons between them: a verb and a version, and for `add` perhaps the letter of its weights."""
    decisions = Decisions(remote)
    for verb, *words in map(str.split, filter(None, deeds.split("; "))):
        ref = Ref(NAME, words[0]) if words else Ref(NAME)
        match verb:
            case "add":
                publish(remote, words[0], WEIGHTS["abc".index(words[1] if words[1:] else "a")])
            case "tag":
                decisions.tag(ref, "stable")
            case "purge":
                decisions.purge([ref], "leaked")
            case "expire":
                decisions.expire(1)
            case _:
                getattr(decisions, verb.removeprefix("un"))(ref, undo=verb.startswith("un"))


DIFFERENT = """
a version travels | add 1.0.0 | | 1.0.0 | publish
only the version asked for | add 1.0.0; add 2.0.0 | | 1.0.0 | publish
a yank travels with its version | add 1.0.0; yank 1.0.0 | | 1.0.0 | publish yank
so does its taking back | add 1.0.0; yank 1.0.0; unyank 1.0.0 | | 1.0.0 | publish yank unyank
a yank of a manifest that is held there | add 1.0.0; yank 1.0.0; add 2.0.0 | add 1.0.0 | 2.0.0 | publish yank
a yank of the bytes under another number | add 1.0.0; yank 1.0.0; add 2.0.0 | | 2.0.0 | publish yank
no yank of a version that is not held there | add 1.0.0; yank 1.0.0; add 2.0.0 b | | 2.0.0 | publish
no yank of other bytes under the same number | add 1.0.0; yank 1.0.0; add 2.0.0 b | add 1.0.0 b | 2.0.0 | publish
channels stay | add 1.0.0; tag 1.0.0 | | 1.0.0 | publish
pins stay | add 1.0.0; pin 1.0.0 | | 1.0.0 | publish
expiry stays | add 1.0.0; add 2.0.0; expire | | 2.0.0 | publish
a takedown stays | add 1.0.0; add 2.0.0 b; purge 1.0.0 | | 2.0.0 | publish
the same manifest is nothing to do | add 1.0.0 | add 1.0.0 | 1.0.0 |
another manifest is a conflict | add 1.0.0 | add 1.0.0 b | 1.0.0 | ConflictError
what expired here is not to be had | add 1.0.0; add 2.0.0; expire | | 1.0.0 | NotFoundError
what expired there stays so | add 1.0.0 | add 1.0.0; add 2.0.0; expire | 1.0.0 | ConflictError
what was taken down there stays so | add 1.0.0 | add 1.0.0; purge 1.0.0 | 1.0.0 | ConflictError
bytes that were taken down come under no number | add 2.0.0 | add 1.0.0; purge 1.0.0 | 2.0.0 | ConflictError
what is not here | add 1.0.0 | | 3.0.0 | NotFoundError
"""
"""The case, what is done here and there, the version that is sent, and the events that arrive or the error."""


@pytest.mark.parametrize("row", DIFFERENT.strip().splitlines())
def test_different_ids(row):
    _, ours, theirs, version, expected = map(str.strip, row.split("|"))
    source, destination = memory.remote(), memory.remote()
    do(source, ours)
    do(destination, theirs)
    before = lines_of(destination)
    if expected.endswith("Error"):
        with pytest.raises(RegError) as caught:
            send(source, destination, version)
        assert type(caught.value).__name__ == expected
        assert lines_of(destination) == before
    else:
        done = send(source, destination, version)
        added = lines_of(destination)[len(before) :]
        assert [line.event.kind for line in added] == expected.split() and done.events == len(added)
        for line in added:
            assert line.via is not None and line.via.registry == source.registry_id
            original = lines_of(source)[line.via.seq - 1]
            assert (original.event, original.digest) == (line.event, line.via.head)
        assert send(source, destination, version).events == 0
    assert not verify(destination).damages


SAME = """
equal | add 1.0.0 | | | 0
empty | | add 1.0.0; tag 1.0.0 | | 2
behind | add 1.0.0 | yank 1.0.0; add 2.0.0 | | 2
ahead | add 1.0.0 | | yank 1.0.0 | 0
forked | add 1.0.0 | yank 1.0.0 | yank 1.0.0 | fork
forked at the first line | | add 1.0.0 | add 1.0.0 | fork
forked, and one is longer | add 1.0.0 | yank 1.0.0; add 2.0.0 | tag 1.0.0 | fork
everything travels | add 1.0.0; add 2.0.0 b | tag 2.0.0; pin 2.0.0; purge 1.0.0 | | 3
"""
"""The case, what both have in common, what is done here and there after that, and the lines that arrive."""


@pytest.mark.parametrize("row", SAME.strip().splitlines())
def test_the_same_id(row):
    """Two copies of one registry, changed here and there; the copy there is brought up to date."""
    _, common, ours, theirs, added = map(str.strip, row.split("|"))
    source = memory.remote()
    destination = memory.remote(source.registry_id)
    do(source, common)
    mirror(source, destination)
    do(source, ours)
    do(destination, theirs)
    before = lines_of(destination)
    if added == "fork":
        with pytest.raises(ForkError, match="different histories"):
            mirror(source, destination)
        assert lines_of(destination) == before
    else:
        assert mirror(source, destination).events == int(added)
        assert lines_of(destination) == max(before, lines_of(source), key=len)
    assert not verify(destination).damages


def test_a_copy_that_lost_a_version_too_does_not_restore_it():
    original = memory.remote()
    do(original, "add 1.0.0; add 2.0.0 b; expire")
    collect(original)
    copied = memory.remote(original.registry_id, mirror=True)
    mirror(original, copied)
    with pytest.raises(NotFoundError, match="is expired"):
        send(copied, original, "1.0.0", restore=True)
    assert not verify(original).damages


@pytest.mark.parametrize("kind", [Expire, Drop])
def test_a_channel_push_sends_files_again_that_expire_meanwhile(kind, monkeypatch):
    """A push that believes the log has looked for no file when it loses the race."""
    source, destination = memory.remote(), memory.remote()
    do(source, "add 1.0.0; add 2.0.0 b; tag 1.0.0")
    send(source, destination, "1.0.0", "2.0.0")
    begin = destination.push

    def late() -> Any:
        monkeypatch.setattr(destination, "push", begin)
        entry = ledger_of(destination).versions[Version.parse("1.0.0")]
        event = kind(**stamp(NAME), version=Version.parse("1.0.0"), manifest=entry.manifest)

        def give_up(ledger: Log) -> set[Digest]:
            ledger.append(event)
            return set()

        with destination.push() as push:
            commit(destination, push, NAME, give_up)
        collect(destination)
        return destination.push()

    monkeypatch.setattr(destination, "push", late)
    wish = ExchangeRequest(NAME, [Version.parse("1.0.0")], EVERYTHING, ["stable"], True, heal=False)
    done = exchange(source, destination, wish)
    assert str(done.log.channels["stable"].version) == "1.0.0"
    assert not verify(destination).damages


VERSIONS = ("1.0.0", "1.1.0", "2.0.0")
OWN, COPIES = 3, 2


class Registries(RuleBasedStateMachine):
    """Three registries of their own and two mirrors of the first: any verb, in any order."""

    own = st.integers(0, OWN - 1)
    version = st.sampled_from(VERSIONS)

    @initialize(first=st.lists(st.tuples(own, version, st.sampled_from(WEIGHTS)), min_size=4, max_size=9))
    def found(self, first: list[tuple[int, str, bytes]]) -> None:
        self.own_ones: list[RegistryStore] = [memory.remote(url=f"memory:{number}") for number in range(OWN)]
        original = self.own_ones[0].registry_id
        self.mirrors: list[RegistryStore] = [
            memory.remote(original, f"memory:mirror{number}", mirror=True) for number in range(COPIES)
        ]
        for at, version, weights in first:
            self.publish(at, version, weights)

    def attempt(self, act: Callable[[], object]) -> None:
        """A refusal changes nothing: no log, and no blob that was there."""
        before = [self.content(remote) for remote in self.everyone]
        try:
            act()
        except (ConflictError, NotFoundError):
            assert [self.content(remote) for remote in self.everyone] == before

    @property
    def everyone(self) -> list[RegistryStore]:
        return [*self.own_ones, *self.mirrors]

    @staticmethod
    def content(remote: RegistryStore) -> bytes:
        index = remote.read_index(NAME)
        return index.data if index else b""

    @rule(at=own, version=version, weights=st.sampled_from(WEIGHTS))
    def publish(self, at: int, version: str, weights: bytes) -> None:
        self.attempt(lambda: publish(self.own_ones[at], version, weights))

    @rule(at=own, verb=st.sampled_from(("yank", "unyank", "tag", "pin", "unpin", "expire")), version=version)
    def decide(self, at: int, verb: str, version: str) -> None:
        self.attempt(lambda: do(self.own_ones[at], f"{verb} {version}"))

    @rule(at=own, version=version)
    def purge(self, at: int, version: str) -> None:
        def act() -> None:
            _, blobs, _ = Decisions(self.own_ones[at]).purge([Ref(NAME, version)], "leaked")
            collect(self.own_ones[at], only=blobs)

        self.attempt(act)

    @rule(
        source=st.integers(0, OWN + COPIES - 1),
        to=own,
        version=version,
        restore=st.booleans(),
        part=st.sampled_from(("", "", "onnx", "onnx-int8")),
    )
    def push(self, source: int, to: int, version: str, restore: bool, part: str) -> None:
        """Also a pull: one copy is both. Copies of one registry never fork. Of a part, what was there stays."""
        ours, theirs = self.everyone[source], self.own_ones[to]
        if ours is not theirs:
            self.attempt(lambda: send(ours, theirs, version, restore=restore, part=part))

    @rule(source=st.integers(0, COPIES), to=st.integers(0, COPIES - 1))
    def mirror(self, source: int, to: int) -> None:
        """From the original or another mirror, which may be behind."""
        ours, theirs = [self.own_ones[0], *self.mirrors][source], self.mirrors[to]
        if ours is not theirs:
            before = lines_of(theirs)
            done = mirror(ours, theirs)
            assert not done.skipped
            assert lines_of(theirs) == max(before, lines_of(ours), key=len)
            assert mirror(ours, theirs).events == 0

    @rule(source=own, to=own, channels=st.booleans())
    def mirror_by_version(self, source: int, to: int, channels: bool) -> None:
        if source != to:
            mirror(self.own_ones[source], self.own_ones[to], channels)
            ours, theirs = ledger_of(self.own_ones[source]), ledger_of(self.own_ones[to])
            usable = {
                version for version, entry in ours.versions.items() if not entry.gone and not entry.held
            }
            agreed = [each for each in usable if _agree(ours, theirs, each)]
            assert missing_lines(ExchangeRequest(NAME, agreed), ours, theirs) == []
            assert not any(theirs.versions[each].held for each in agreed)

    @rule(at=st.integers(0, OWN + COPIES - 1))
    def collect(self, at: int) -> None:
        collect(self.everyone[at])
        assert not {key.digest for key in blob_keys(self.everyone[at])}.intersection(
            ledger_of(self.everyone[at]).tombstones
        )

    @invariant()
    def logs_with_one_id_are_prefixes(self) -> None:
        ours = lines_of(self.own_ones[0])
        for copied in self.mirrors:
            theirs = lines_of(copied)
            assert theirs == ours[: len(theirs)]

    @invariant()
    def everything_verifies(self) -> None:
        for remote in self.everyone:
            assert [damage.to_json() for damage in verify(remote).damages] == []

    @invariant()
    def no_event_is_there_twice(self) -> None:
        for remote in self.everyone:
            ids = [line.event.id for line in lines_of(remote)]
            assert len(ids) == len(set(ids))

    @invariant()
    def a_via_can_be_proved(self) -> None:
        logs = {remote.registry_id: lines_of(remote) for remote in self.own_ones}
        for remote in self.everyone:
            for line in lines_of(remote):
                if line.via is not None:
                    original = logs[line.via.registry][line.via.seq - 1]
                    assert (original.digest, original.event) == (line.via.head, line.event)

    @invariant()
    def what_a_log_took_from_another_has_that_manifest(self) -> None:
        """A version never changes: each registry's entry is of the first publish event that its log has of it."""
        for remote in self.everyone:
            first: dict[Version, Digest] = {}
            for line in lines_of(remote):
                if isinstance(line.event, Publish):
                    assert first.setdefault(line.event.version, line.event.manifest) == line.event.manifest
            assert {version: entry.manifest for version, entry in ledger_of(remote).versions.items()} == first

    @invariant()
    def registries_with_the_same_yanks_agree(self) -> None:
        """What is yanked follows from the events that are there, in whatever order they came."""
        for remote in self.everyone:
            events = [line.event.to_json() for line in lines_of(remote)]
            back = {event["yank"] for event in events if event["kind"] == "unyank"}
            yanked = {
                line.event.manifest
                for line in lines_of(remote)
                if isinstance(line.event, Yank) and str(line.event.id) not in back
            }
            for entry in ledger_of(remote).versions.values():
                assert entry.yanked == (entry.manifest in yanked)


def _agree(ours: Log, theirs: Log, version: Version) -> bool:
    """Whether both have a version, under the same manifest and with its files."""
    held = theirs.versions.get(version)
    return held is not None and held.gone is None and held.manifest == ours.versions[version].manifest


TestRegistries = pytest.mark.more(Registries.TestCase)
TestRegistries.settings = settings(max_examples=settings.default.max_examples * 4 // 10)
"""Each example takes a third of a second or more: 16 of the 40 examples of `make test-more`, 80 of the 200 of `make test-all`."""
