"""What each step costs as its input grows, counted: calls of functions, requests, bytes, files opened, syncs. No clock.

A step takes a size and a directory, prepares so much, and returns its counts. `GROWTH` has all steps by what grows.
Steps that start from the same registry get copies of one that a process makes once.
"""

import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import onnx
import onnx.parser

from onnxreg.converters.importers.adopt import adopt
from onnxreg.registry import Registry
from onnxreg.registry.log.log import open_log
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import (
    BlobKey,
    MemoryStore,
    RegistryReader,
    RegistryStore,
    StoredObject,
    TreeFile,
    create_registry,
)
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core import files
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from support.made_once import made_once, stock
from support.registries import grow, owner
from support.registries.opened import opened

NAME = grow.model_name(0)
Counts = dict[str, float]
Step = Callable[[int, Path], Counts]


class CountingStore(MemoryStore):
    """An object store that counts what it is asked for, as S3 is: each blob of `has`, each page of a list, all bytes."""

    PAGE = 1000

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.objects.update(objects or {})
        self._uncounted = MemoryStore()
        self._uncounted.objects = self.objects
        self._counting = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.counts: Counts = {"requests": 0, "bytes sent": 0, "bytes received": 0}

    def _count(self, requests: int, sent: int = 0, received: int = 0) -> None:
        with self._counting:
            for what, number in zip(self.counts, (requests, sent, received), strict=True):
                self.counts[what] += number

    def get(self, key: str, known: StoredObject | None = None) -> StoredObject | None:
        found = super().get(key, known)
        self._count(1, received=len(found[0]) if found else 0)
        return found

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        stream = super().open(key, start)
        self._count(1, received=len(self.objects[key]) - start if stream else 0)
        return stream

    def has(self, keys: Iterable[str]) -> set[str]:
        asked = list(keys)
        blobs = (BlobKey.of_path(key) for key in asked)
        self._count(len({blob.digest if blob else None for blob in blobs}))
        return super().has(asked)

    def create(self, key: str, source: BinaryIO) -> bool:
        return self.swap(key, source.read(), None)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._count(1, sent=len(data))
        return self._uncounted.swap(key, data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        asked = list(keys)
        self._count(len(asked))
        super().delete(asked)

    def list(self, prefix: str) -> Iterator[TreeFile]:
        found = list(super().list(prefix))
        self._count(1 + len(found) // self.PAGE)
        return iter(found)


@contextmanager
def counted(root: Path) -> Iterator[Counts]:
    """Files opened below a directory, syncs, and calls of functions, Python's and built-in ones, in all threads."""
    found: Counts = {}
    calls, fsync, synced = itertools.count(), os.fsync, list[int]()

    def count(frame: Any, event: str, function: Any) -> None:
        if event in ("call", "c_call"):
            next(calls)

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        fsync(descriptor)

    with opened(root) as files, patch("os.fsync", sync):
        threading.setprofile(count)
        sys.setprofile(count)
        try:
            yield found
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    found |= {"files opened": len(files), "syncs": len(synced), "calls": next(calls)}


def draft(root: Path, name: str, blobs: int, seed: str = "") -> Draft:
    """A version of so many small files, all of them different."""
    (root / "model.onnx").write_text(f"{name} {seed}")
    for number in range(blobs - 1):
        (root / f"{number}.txt").write_text(f"note {number} of {seed}")
    notes = tuple(DraftFile("report", f"{number}.txt") for number in range(blobs - 1))
    return Draft(name, root, (DraftArtifact("onnx", "float32", "model.onnx"),), notes)


def add(registry: Registry, name: str = NAME, blobs: int = 1, seed: str = "") -> Version:
    with registry.workspace() as workspace:
        return registry.add(draft(workspace, name, blobs, seed)).version


def copy_of(make: Callable[[Path, int], object], size: int, root: Path) -> Registry:
    """The registry that `make` makes with this size, at `root`. Files are links: whatever writes to a registry replaces them."""
    shutil.copytree(made_once(make, size), root, copy_function=os.link)
    return Registry(root)


def make_blobs(root: Path, size: int) -> None:
    """One version of so many files."""
    add(Registry(root), blobs=size)


def make_versions(root: Path, size: int) -> None:
    """So many versions of one model, without their blobs."""
    grow.grow(root, 1, size)


def make_whole_versions(root: Path, size: int) -> None:
    grow.grow(root, 1, size, [0])


def make_models(root: Path, size: int) -> None:
    """So many models of three versions."""
    grow.grow(root, size, 3)


def make_whole_models(root: Path, size: int) -> None:
    grow.grow(root, size, 3, range(size))


def make_small_models(root: Path, size: int) -> None:
    """So many models of one version with one file."""
    for number in range(size):
        add(Registry(root), grow.model_name(number))


def step(make: Callable[[Path, int], object], act: Callable[[Registry], object]) -> Step:
    """The step of a registry that `make` makes."""

    def measure(size: int, root: Path) -> Counts:
        registry = copy_of(make, size, root / "home")
        with counted(root) as found:
            act(registry)
        return found

    return measure


def verify(registry: Registry) -> None:
    assert not owner.verify(registry).damages


def search(registry: Registry) -> None:
    LocalCatalog(registry.store).refresh()


def mirror_here(registry: Registry) -> None:
    target = DirectoryRegistry.create(registry.store.root.with_name("mirror"), mirror_of=registry.id)
    assert mirror(registry.store, target).models


def every_version(reader: RegistryReader) -> list[Version]:
    return list(open_log(reader, NAME).versions)


def read_files(size: int, root: Path) -> Counts:
    """What `reg add` does before it adds: a graph, and so many companions."""
    files = [root / "model.onnx", *(root / f"{number}.txt" for number in range(size - 1))]
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    )
    for file in files:
        file.write_bytes(graph.SerializeToString() if file.suffix == ".onnx" else file.name.encode())
    (root / "workspace").mkdir()
    with counted(root) as found:
        adopt(files, root / "workspace", name=NAME)
    return found


def add_blobs(size: int, root: Path) -> Counts:
    return _add(Registry(root / "home"), size)


def add_after_versions(size: int, root: Path) -> Counts:
    return _add(copy_of(make_versions, size, root / "home"), 1, "next")


def _add(registry: Registry, blobs: int, seed: str = "") -> Counts:
    with registry.workspace() as workspace:
        made = draft(workspace, NAME, blobs, seed)
        with counted(registry.store.root) as found:
            registry.add(made)
    return found


def push(make: Callable[[Path, int], object]) -> Step:
    """All of a history at once."""
    return lambda size, root: _push(make, size)[0]


@cache
def _push(make: Callable[[Path, int], object], size: int) -> tuple[Counts, Mapping[str, bytes]]:
    """The cost of a push of every version of the model, and what a bucket has then."""
    store = CountingStore()
    remote = create_registry(store)
    with tempfile.TemporaryDirectory(dir=stock()) as directory:
        registry = copy_of(make, size, Path(directory) / "home")
        versions = every_version(registry.store)
        with counted(registry.store.root) as found:
            exchange(registry.store, remote, ExchangeRequest(NAME, versions))
    return found | store.counts, store.objects


def pull_blobs(size: int, root: Path) -> Counts:
    store, other = CountingStore(_push(make_blobs, size)[1]), Registry(root / "other")
    remote = RegistryStore(store)
    versions = every_version(remote)
    store.forget()
    with counted(other.store.root) as found:
        exchange(remote, other.store, ExchangeRequest(NAME, versions))
    return found | store.counts


def collect_blobs(size: int, root: Path) -> Counts:
    """Everything is dropped and goes."""
    registry = copy_of(make_blobs, size, root / "home")
    (version,) = every_version(registry.store)
    owner.drop(registry, f"{NAME}:{version}")
    with counted(registry.store.root) as found:
        owner.gc(registry)
    return found


def push_newest(size: int, root: Path) -> Counts:
    """One version more, where the remote has all before it."""
    registry = copy_of(make_whole_versions, size, root / "home")
    store = CountingStore(_push(make_whole_versions, size)[1])
    version = add(registry, seed="next")
    with counted(registry.store.root) as found:
        exchange(registry.store, RegistryStore(store), ExchangeRequest(NAME, [version]))
    return found | store.counts


def search_one_changed(size: int, root: Path) -> Counts:
    """What was written a moment ago may change within the same tick of the clock, and is read again: not here."""
    registry = copy_of(make_models, size, root / "home")
    with patch.object(files, "SETTLED_NANOSECONDS", 0):
        search(registry)
        registry.tag(f"{NAME}:1.0.0", "beta")
        with counted(registry.store.root) as found:
            search(registry)
    return found


def mirror_to_bucket(size: int, root: Path) -> Counts:
    """Models of one version with one file, for the first time."""
    return _mirror(size)[0]


def mirror_again(size: int, root: Path) -> Counts:
    """Nothing changed."""
    _, registry, remote, store = _mirror(size)
    store.forget()
    with _own_state(registry), counted(registry.store.root) as found:
        assert mirror(registry.store, remote).versions == 0
    return found | store.counts


@cache
def _mirror(size: int) -> tuple[Counts, Registry, RegistryStore, CountingStore]:
    """The cost of a first mirror to a bucket, its source, the bucket's registry and the bucket."""
    registry = copy_of(make_small_models, size, Path(tempfile.mkdtemp(dir=stock())) / "home")
    store = CountingStore()
    remote = create_registry(store, registry.id, mirror=True)
    with _own_state(registry), counted(registry.store.root) as found:
        assert mirror(registry.store, remote).versions == size
    return found | store.counts, registry, remote, store


def _own_state(registry: Registry) -> Any:
    """Inside, the memory of the heads that were seen lies beside a registry."""
    return patch.dict(os.environ, REG_STATE=str(registry.store.root.with_name("state")))


def pushers(name: Callable[[int], str]) -> Step:
    """So many machines at once, each with a version of its own of the model that a number names."""

    def measure(size: int, root: Path) -> Counts:
        store = CountingStore()
        create_registry(store)
        machines = [Registry(root / str(number)) for number in range(size)]
        for number, registry in enumerate(machines):
            with registry.workspace() as workspace:
                registry.add(draft(workspace, name(number), 3, str(number)), f"1.{number}.0")
        begun = threading.Barrier(size)

        def push(number: int) -> None:
            begun.wait()
            wish = ExchangeRequest(name(number), [Version(1, number, 0)])
            exchange(machines[number].store, RegistryStore(store), wish)

        threads = [threading.Thread(target=push, args=(number,)) for number in range(size)]
        store.forget()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({*store.list("index/")}) == len({name(number) for number in range(size)})
        return store.counts

    return measure


GROWTH: dict[str, dict[str, Step]] = {
    "blobs of a version": {
        "read files": read_files,
        "add": add_blobs,
        "push": push(make_blobs),
        "pull": pull_blobs,
        "verify": step(make_blobs, verify),
        "collect": collect_blobs,
    },
    "versions of a model": {
        "resolve": step(make_versions, lambda registry: registry.resolve(NAME)),
        "add one more": add_after_versions,
        "push one more": push_newest,
        "push all": push(make_whole_versions),
        "log": step(make_versions, lambda registry: registry.log(NAME)),
        "verify": step(make_whole_versions, verify),
    },
    "models": {
        "resolve one": step(make_models, lambda registry: registry.resolve(NAME)),
        "search, no index yet": step(make_models, search),
        "search, one model changed": search_one_changed,
        "verify": step(make_whole_models, verify),
        "mirror": step(make_whole_models, mirror_here),
        "mirror to a bucket": mirror_to_bucket,
        "mirror to a bucket, nothing changed": mirror_again,
    },
    "pushers at once": {
        "to models of their own": pushers(grow.model_name),
        "to one model": pushers(lambda number: NAME),
    },
}
