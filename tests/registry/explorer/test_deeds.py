"""Every short history of two registries that share one model and its verdicts: no reader of legal deeds is alarmed."""

import itertools
import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.explorer.replay import Contents, determined, holding
from support.explorer.scenarios import HERE, SHARED, THERE
from support.registries import memory
from support.sampling import sampled

from onnxreg.registry.log.commit import load_own
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log, fetcher, open_log
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.registry.trust.known_heads import KnownHead, observe
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.manifest.draft import NOT_EVALUATED, Draft, DraftArtifact, Verdict

NAME = "a"
VERSIONS = {"1.0.0": "apache-2.0", "1.0.1": "apache-2.0", "2.0.0": "mit", "3.0.0": "mit"}
"""Version and license: two with the same manifest, two with other manifests of the same bytes."""
REFUSING = "3.0.0"
"""Its manifest refuses the bytes."""


def draft(version: str) -> Draft:
    verdict = Verdict("refused") if version == REFUSING else NOT_EVALUATED
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx", verdict=verdict),)
    return Draft(NAME, Path(), artifacts, fields={"license": VERSIONS[version]})


def add(ours: RegistryStore, theirs: RegistryStore, version: str) -> None:
    memory.publish(ours, draft(version), version, {"model.onnx": SHARED})


def drop(ours: RegistryStore, theirs: RegistryStore, version: str) -> None:
    Decisions(ours).drop(Ref(NAME, version), lambda found: Version.parse(version) in versions(theirs))


def attest(ours: RegistryStore, theirs: RegistryStore, version: str, state: str) -> None:
    statement = canonical.encode({"state": state})
    Decisions(ours).attest(Ref(NAME, version), statement, "text/plain", None, (Digest.of(SHARED), state))


def push(ours: RegistryStore, theirs: RegistryStore, version: str) -> None:
    exchange(ours, theirs, ExchangeRequest(NAME, [Version.parse(version)]))
    if verdict(ours, version) == "refused":
        assert verdict(theirs, version) == "refused"


def verdict(remote: RegistryStore, version: str) -> str | None:
    log = open_log(remote, NAME)
    return log.state.verdicts(log.find(Ref(NAME, version)).entry).get(Digest.of(SHARED))


def versions(remote: RegistryStore) -> set[Version]:
    return set(load_own(remote, NAME).versions)


Deed = Callable[[RegistryStore, RegistryStore], None]


def deeds() -> Iterator[tuple[str, Deed]]:
    """What may be done in one of the registries, or from it to the other."""
    for version in VERSIONS:
        for deed in (add, drop, push):
            yield f"{deed.__name__} {version}", partial(deed, version=version)
    for version, state in itertools.product(("1.0.0", "2.0.0"), ("certified", "refused")):
        yield f"attest {version} {state}", partial(attest, version=version, state=state)


@dataclass(frozen=True)
class History:
    """What was done, what the registries hold then, and what a reader knows who looked after each deed."""

    done: tuple[str, ...]
    contents: tuple[Contents, Contents]
    known: tuple[KnownHead | None, KnownHead | None] = (None, None)

    def after(self, side: int, name: str, deed: Deed) -> "History | None":
        """None if the deed is refused, or changes nothing."""
        remotes = [RegistryStore(holding(contents)) for contents in self.contents]
        done = (*self.done, f"{'one' if side == 0 else 'two'}: {name}")
        with determined(" ".join(done)):
            try:
                deed(remotes[side], remotes[1 - side])
            except NotFoundError:
                return None
            except ConflictError as error:
                assert not name.startswith("push"), f"{done} is refused: {error.message}"
                return None
        first, second = (remote.store.objects for remote in remotes)
        known = [
            self._look(contents, before, done)
            for contents, before in zip((first, second), self.known, strict=True)
        ]
        return None if known == list(self.known) else History(done, (first, second), (known[0], known[1]))

    @staticmethod
    def _look(contents: Contents, before: KnownHead | None, done: tuple[str, ...]) -> KnownHead | None:
        """What the reader knows then. Newcomers look too, and the state follows from the log."""
        data = contents.get(f"index/{NAME}.jsonl")
        if data is None or (before is not None and before.index == Digest.of(data)):
            return before
        remote = RegistryStore(holding(contents))
        ledger = load_own(remote, NAME)
        seen = remote.registry_id, NAME, data, remote.url, fetcher(remote)
        try:
            assert Log.replay(ledger.lines(), ledger.registry, NAME, ledger.fetch).encode() == data, done
            observe(None, *seen)
            known = observe(before, *seen)
        except IntegrityError as error:
            raise AssertionError(f"after {done} a reader is told: {error.message}") from error
        assert isinstance(known, KnownHead)
        return known

    @property
    def key(self) -> Hashable:
        """Histories with the same key go on alike: the same events in the same states."""
        return tuple(self._outline(contents) for contents in self.contents)

    @staticmethod
    def _outline(contents: Contents) -> Hashable:
        data = contents.get(f"index/{NAME}.jsonl", b"{}")
        state, *lines = map(json.loads, data.splitlines())
        entries = [
            (version, "gone" in entry, tuple(entry.get("attested", {}).items()))
            for version, entry in state.get("versions", {}).items()
        ]
        events = [
            (event["kind"], event.get("version"), event.get("manifest"), event.get("state"), "via" in line)
            for line in lines
            for event in [line["event"]]
        ]
        return tuple(sorted(entries)), tuple(state.get("refused", ())), tuple(events)


def start() -> History:
    remotes = [memory.remote(registry_id) for registry_id in (HERE, THERE)]
    first, second = (remote.store.objects for remote in remotes)
    return History((), (first, second))


def search(begin: History, depth: int) -> int:
    """Try every deed in either registry, and then every other; returns how many histories were looked at."""
    level, reached, count = [begin], {begin.key}, 0
    for _ in range(depth):
        found = (
            after
            for history in level
            for side, (name, deed) in itertools.product((0, 1), deeds())
            if (after := history.after(side, name, deed)) is not None
        )
        level = []
        for after in found:
            count += 1
            if after.key not in reached:
                reached.add(after.key)
                level.append(after)
    return count


REPUBLISHED = ("add 1.0.1", "add 1.0.0", "drop 1.0.1", "attest 1.0.0 {}", "push 1.0.0")
"""As two people do who made the same twice, and a third who pulls one of their versions."""
AHEAD = ("add 1.0.0", "add 2.0.0", "attest 1.0.0 {}", "push 2.0.0")
"""A verdict reaches the other registry before the version that it is about."""


@pytest.mark.parametrize("begin", sampled([REPUBLISHED, AHEAD], 2))
@pytest.mark.parametrize("state", sampled(["certified", "refused"], 2))
def test_any_two_deeds_may_follow(begin, state):
    history: History | None = start()
    for name in begin:
        assert history is not None
        history = history.after(0, name.format(state), dict(deeds())[name.format(state)])
    assert history is not None and search(history, 2) > 10
