"""Pushes and collectors on one Hub repository, interleaved at random request by request, some replies lost.

The very code of pushes, collections and transactions runs; only `hub_client.HubClient` is replaced, by one that holds its
commits in memory. In every commit that is ever made, all that the logs refer to must be there. The mutants show that
the runs would notice.
"""

import hashlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.log.commit import collect
from onnxreg.registry.maintain import verify
from onnxreg.registry.store import hub_client
from onnxreg.registry.store.hub import HubPush, HubRegistry
from onnxreg.registry.store.hub_client import CommitSnapshot, StaleParentError, token_of
from onnxreg.registry.store.protocol import BlobKey, TreeFile, new_identity
from onnxreg.registry.store.requests import UnansweredError
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

NAMES = ("acme/one", "acme/two")
RUNS, MORE_RUNS = 15, 150


class Schedule:
    """Lets one thread go on at a time, whichever the dice say, as soon as all of them wait."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._turn = threading.Condition()
        self._waiting: list[str] = []
        self._next: str | None = None

    def run(self, programs: dict[str, Callable[[], object]]) -> None:
        """All programs to their ends; what one of them raised."""
        self._running = len(programs)

        def body(name: str) -> None:
            threading.current_thread().name = name
            try:
                self.step()
                programs[name]()
            finally:
                with self._turn:
                    self._running -= 1
                    self._choose()

        with ThreadPoolExecutor(len(programs)) as pool:
            list(pool.map(body, programs))

    def step(self) -> None:
        """Called before each request. Other threads than the programs' own run freely."""
        name = threading.current_thread().name
        if not name.startswith("program"):
            return
        with self._turn:
            self._waiting.append(name)
            self._choose()
            self._turn.wait_for(lambda: self._next == name)
            self._next = None
            self._waiting.remove(name)

    def _choose(self) -> None:
        if self._next is None and self._waiting and len(self._waiting) == self._running:
            self._next = self.dice.choice(sorted(self._waiting))
            self._turn.notify_all()


class MemoryHub:
    """What `hub_client.HubClient` does, with commits in memory: a list of trees, the last one is the head."""

    url = "hf://acme/models"

    def __init__(self, files: dict[str, bytes], schedule: Schedule) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.schedule = schedule
        self._add(files)

    def _add(self, files: dict[str, bytes]) -> str:
        commit = hashlib.sha1(str(len(self.commits)).encode()).hexdigest()
        self.commits[commit] = files
        return commit

    def read(
        self, path: str, revision: str | None = None, cached: bytes | None = None
    ) -> tuple[bytes | None, str]:
        self.schedule.step()
        commit = revision or list(self.commits)[-1]
        return self.commits[commit].get(path), commit

    def open(self, path: str, revision: str, start: int = 0) -> BinaryIO | None:
        data, _ = self.read(path, revision)
        return None if data is None else BytesIO(data[start:])

    def entries(self, revision: str, paths: list[str]) -> list[TreeFile]:
        self.schedule.step()
        files = self.commits[revision]
        found = [self._entry(path, files[path]) for path in paths if path in files]
        folders = [path for path in paths if any(other.startswith(f"{path}/") for other in files)]
        return found + [TreeFile(path, None, "0" * 40) for path in folders]

    def tree(self, revision: str, folder: str = "", recursive: bool = True) -> list[TreeFile]:
        self.schedule.step()
        prefix = f"{folder}/" if folder else ""
        return [self._entry(*item) for item in self.commits[revision].items() if item[0].startswith(prefix)]

    def _entry(self, path: str, data: bytes) -> TreeFile:
        return TreeFile(path, len(data), token_of(data).partition("-")[0])

    def upload(self, operations: list[Any]) -> None:
        pass

    def commit(self, operations: list[Any], message: str, parent: str) -> str:
        self.schedule.step()
        if parent != list(self.commits)[-1]:
            raise StaleParentError
        fate = self.schedule.dice.random()
        if fate < 0.05:
            raise UnansweredError("not applied")
        files = dict(self.commits[parent])
        for operation in operations:
            if hasattr(operation, "path_or_fileobj"):
                with operation.as_file() as file:
                    files[operation.path_in_repo] = file.read()
            else:
                del files[operation.path_in_repo]
        commit = self._add(files)
        if fate > 0.9:
            raise UnansweredError("applied")
        return commit


@pytest.fixture
def source(tmp_path) -> Registry:
    """Two models that share a blob."""
    registry = Registry(tmp_path / "source")
    for name in NAMES:
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_bytes(b"shared weights")
            registry.add(Draft(name, workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)), "1.0.0")
    return registry


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(hub_client, "MAX_UNANSWERED_COMMITS", 100)


def play(source: Registry, seed: int) -> MemoryHub:
    """Two pushes of blobs that lie there unreferred to, and two collectors."""
    paths = [file.path for file in source.store.files() if file.path.startswith("blobs/")]
    strays = {path: (source.store.root / path).read_bytes() for path in paths}
    hub = MemoryHub({"registry.json": new_identity("a" * 32), **strays}, Schedule(seed))

    def push(name: str) -> None:
        exchange(source.store, HubRegistry(hub), ExchangeRequest(name, [Version(1, 0, 0)]))

    programs: dict[str, Callable[[], object]] = {
        f"program push {name}": partial(push, name) for name in NAMES
    }
    programs |= {f"program collect {n}": lambda: collect(HubRegistry(hub), patience=0) for n in range(2)}
    hub.schedule.run(programs)
    return hub


def judge(hub: MemoryHub) -> None:
    """Whatever a log refers to is there, in every commit; in the end both models are, and no note."""
    for commit, files in hub.commits.items():
        at = HubRegistry(MemoryHub(files, hub.schedule))
        damages = verify(at).damages
        assert not damages, (commit, damages)
    assert list(at.names()) == list(NAMES)
    assert not [path for path in files if path.startswith("gc/")]


@pytest.mark.parametrize(
    "runs",
    [RUNS, pytest.param(3 * RUNS, marks=pytest.mark.more), pytest.param(MORE_RUNS, marks=pytest.mark.large)],
)
def test_no_interleaving_takes_a_blob_that_a_log_refers_to(source, runs):
    collected = raced = 0
    for seed in range(runs):
        hub = play(source, seed)
        judge(hub)
        keys = [key for path in list(hub.commits.values())[-1] if (key := BlobKey.of_path(path))]
        raced += any(key.generation for key in keys)
        collected += len(hub.commits) > 1 + len(NAMES)
    assert collected > runs // 2 and raced > runs // 10, "the runs met what they are about"


def forget_condemned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitSnapshot, "condemned", lambda self: set())


def forget_relied_on(patch: pytest.MonkeyPatch) -> None:
    has = HubPush.has

    def forgetful(self: HubPush, digests: Any) -> Any:
        found = has(self, digests)
        self._relied = set()
        return found

    patch.setattr(HubPush, "has", forgetful)


@pytest.mark.parametrize("forget", [forget_condemned, forget_relied_on])
def test_without_a_rule_some_interleaving_goes_wrong(source, monkeypatch, forget):
    def goes_wrong(seed: int) -> bool:
        try:
            judge(play(source, seed))
        except Exception:  # noqa: BLE001 - any way will do
            return True
        return False

    forget(monkeypatch)
    assert any(goes_wrong(seed) for seed in range(MORE_RUNS))
