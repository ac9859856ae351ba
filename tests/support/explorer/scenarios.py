"""Pushes, pulls and collections of two models in one registry, and what must hold of it whatever happens."""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onnxreg.registry.log import commit as committing
from onnxreg.registry.log.commit import MAX_COMMIT_TRIES, collect, commit
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log, read_blob
from onnxreg.registry.store.protocol import BlobKey, MemoryStore, ObjectStore, RegistryStore, create_registry
from onnxreg.registry.system import stamp
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import LostRaceError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Expire
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from support.explorer.explorer import Run, Scenario
from support.explorer.replay import Contents, Fixed, ViolationError, determined
from support.registries import memory

HERE, THERE = "a" * 32, "b" * 32
"""The ids of the registry that is explored, and of the one that pushes come from and pulls go to."""

SHARED = b"weights"
"""The file of every version."""


def draft(name: str) -> Draft:
    return Draft(name, Path(), (DraftArtifact("onnx", "float32", "model.onnx"),))


def manifest(name: str, data: bytes = SHARED) -> bytes:
    """The document of a version that has one file."""
    return memory.manifest_of(draft(name), {"model.onnx": data})


def publish(remote: RegistryStore, name: str, version: str, data: bytes = SHARED) -> None:
    """Publish a version made of one file."""
    memory.publish(remote, draft(name), version, {"model.onnx": data})


def expire(remote: RegistryStore, name: str, version: str) -> None:
    """Give up the file of a version."""
    event = Expire(**stamp(name), version=Version.parse(version), manifest=Digest.of(manifest(name)))

    def change(ledger: Log) -> list[Digest]:
        ledger.append(event)
        return []

    with remote.push() as push:
        commit(remote, push, name, change)


@cache
def origin() -> RegistryStore:
    """Where pushes come from: it has version 1.0.0 of three models."""
    with determined("origin"):
        remote = memory.remote(THERE)
        for name in ("a", "b", "c"):
            publish(remote, name, "1.0.0")
        return remote


def pusher(name: str, tries: int = MAX_COMMIT_TRIES) -> Run:
    """Pushes version 1.0.0. With fewer tries than the real ones it may give up after that many lost races."""

    def run(store: ObjectStore) -> Hashable:
        with patch.object(committing, "MAX_COMMIT_TRIES", tries):
            try:
                exchange(origin(), RegistryStore(store), ExchangeRequest(name, [Version.parse("1.0.0")]))
            except LostRaceError:
                return "gave up", name
        return "pushed", name

    return run


def puller(name: str, version: str) -> Run:
    """Pulls a version into an empty registry."""

    def run(store: ObjectStore) -> Hashable:
        ours = memory.remote("c" * 32)
        try:
            exchange(RegistryStore(store), ours, ExchangeRequest(name, [Version.parse(version)]))
        except NotFoundError as error:
            return "not found" if " is expired" in error.message else "not there yet", name, version
        right = all(read_blob(ours, Digest.of(data)) == data for data in (SHARED, manifest(name)))
        return "pulled" if right else "pulled something else", name, version

    return run


def collector(store: ObjectStore) -> Hashable:
    """Deletes what nothing refers to, without patience for pushes."""
    collect(RegistryStore(store), patience=0)
    return ("collected",)


def retention(store: ObjectStore) -> Hashable:
    """Gives up all but the newest version, then deletes what nothing refers to."""
    remote = RegistryStore(store)
    Decisions(remote).expire(1)
    collect(remote, patience=0)
    return ("collected",)


def dropper(store: ObjectStore) -> Hashable:
    """Takes a version back that never left the registry."""
    Decisions(RegistryStore(store)).drop(Ref.parse("a:2.0.0"), lambda found: False)
    return ("dropped",)


# What must hold, read from the tree with nothing but json: the code under test is not asked.


def logs(contents: Contents) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Name, state and whole log of each model."""
    for key in sorted(contents):
        if key.startswith("index/"):
            state, *tail = map(json.loads, contents[key].splitlines())
            sealed = b"".join(blob(contents, segment) for segment in state["segments"])
            yield state["name"], state, [*map(json.loads, sealed.splitlines()), *tail]


def blob(contents: Contents, digest: str) -> bytes:
    """A blob's bytes, under whichever key it lies."""
    plain = BlobKey(Digest.parse(digest)).path
    for key in (plain, *(f"{plain}.{generation}" for generation in range(1, 8))):
        if key in contents:
            return contents[key]
    raise ViolationError(f"{plain} is not there, but referred to")


def versions(log: list[dict[str, Any]]) -> dict[str, str | None]:
    """The versions that were published, with their manifests; without one where the files were given up."""
    found: dict[str, str | None] = {}
    for line in log:
        event = line["event"]
        if event["kind"] == "publish":
            found[event["version"]] = event["manifest"]
        elif event["kind"] == "expire":
            found[event["version"]] = None
        elif event["kind"] == "drop":
            del found[event["version"]]
    return found


def needed(contents: Contents) -> set[str]:
    """The digests of the blobs that the logs refer to; each is there."""
    digests: set[str] = set()
    for _, state, log in logs(contents):
        digests.update(state["segments"], [state["checkpoint"]] if "checkpoint" in state else [])
        events = [line["event"] for line in log]
        present = versions(log)
        digests.update(event["manifest"] for event in events if event.get("version") in present)
        for document in filter(None, present.values()):
            digests.update(re.findall(r'"digest": ?"(sha256:\w+)"', blob(contents, document).decode()))
    for digest in digests:
        blob(contents, digest)
    return digests


def complete(contents: Contents) -> None:
    """Whatever a log refers to is there."""
    needed(contents)


def only_grows(before: Contents, after: Contents) -> None:
    """No log loses a line."""
    now = {name: log for name, _, log in logs(after)}
    for name, _, log in logs(before):
        if now.get(name, [])[: len(log)] != log:
            raise ViolationError(f"the log of {name} lost a line")


def truthful(program: str, outcome: Hashable, contents: Contents) -> None:
    """What a program reports is so; only a version that was given up is not found; nothing else goes wrong."""
    found = {name: versions(log) for name, _, log in logs(contents)}
    match outcome:
        case "pushed", str(name):
            true = found.get(name, {}).get("1.0.0") is not None
        case (("pulled" | "not there yet" | "gave up"), *_):
            true = True
        case "not found", str(name), str(version):
            true = found.get(name, {}).get(version) is None
        case _:
            true = outcome in (("collected",), ("dropped",))
    if not true:
        raise ViolationError(f"{program} ended with {outcome}")


def tidy(contents: Contents) -> None:
    """Where nobody works and nobody crashed there are no notes."""
    notes = sorted(key for key in contents if key.startswith("gc/"))
    if notes:
        raise ViolationError(f"all have ended, and there is still {', '.join(notes)}")


def recovers(store: MemoryStore) -> None:
    """After everybody crashed, two collections remove all garbage, and pushes and pulls work.

    One is not enough where its fence seals a log, which replaces a checkpoint.
    """
    before = dict(store.objects)
    for _ in range(2):
        collector(store)
    only_grows(before, store.objects)
    kept = {Digest.parse(digest).hex for digest in needed(store.objects)}
    lost = [key for key in store.objects if key.startswith("blobs/") and Path(key).name[:64] not in kept]
    if lost or any(key.startswith("gc/intents/") for key in store.objects):
        raise ViolationError(f"a collection after a crash leaves {lost} and {sorted(store.objects)}")
    pusher("c")(store)
    if puller("c", "1.0.0")(store) != ("pulled", "c", "1.0.0"):
        raise ViolationError("after a crash, nothing can be pushed and pulled")
    complete(store.objects)


# Where it starts.


def empty() -> tuple[MemoryStore, RegistryStore]:
    store = MemoryStore()
    return store, create_registry(store, HERE)


def garbage() -> MemoryStore:
    """Version 0.9.0 of both models was published and has expired: the manifests stay, the file is garbage."""
    store, remote = empty()
    for name in ("a", "b"):
        publish(remote, name, "0.9.0")
        expire(remote, name, "0.9.0")
    return store


def expiring() -> MemoryStore:
    """Two versions of `a`, of which a retention policy gives up the first one; there is no other model."""
    store, remote = empty()
    publish(remote, "a", "1.0.0")
    publish(remote, "a", "2.0.0", b"other weights")
    return store


def nothing() -> MemoryStore:
    """A registry without models."""
    return empty()[0]


def sealing() -> MemoryStore:
    """The next line of `a` seals its log: another checkpoint takes the place of the present one."""
    store, remote = empty()
    for minor in range(2 * SEGMENT):
        publish(remote, "a", f"0.{minor}.0")
    return store


SEGMENT = 5
"""Lines in a segment, while `sealing` is explored."""


def scenario(
    begin: Callable[[], MemoryStore],
    programs: Mapping[str, Run],
    observers: Mapping[str, Run] | None = None,
    kept: Iterable[bytes] = (),
    lists: Iterable[str] = (),
) -> Scenario:
    """What these programs and observers do from there on; nobody writes or deletes the blobs that are kept, or changes the lists."""
    with determined("begin"):
        contents = begin().objects
    documents = {Digest.of(manifest(name)).hex: f"manifest of {name}" for name in ("a", "b", "c")}
    fixed = ["registry.json", *(BlobKey(Digest.of(blob)).path for blob in kept)]
    return Scenario(
        contents,
        programs,
        Fixed.of(contents, fixed, lists),
        always=complete,
        onwards=only_grows,
        ended=truthful,
        resting=tidy,
        aftermath=recovers,
        observers=observers or {},
        names={"blobs/sha256/": "", Digest.of(SHARED).hex: "shared"} | documents,
    )
