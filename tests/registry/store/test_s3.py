"""Registries in S3, on real servers: MiniStack, and further ones that people run, each with habits of its own."""

import itertools
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest
from conformance.contract import put
from support.registries.bucket import (
    assert_nothing_lost,
    damages,
    direct,
    finished,
    push_at_once,
    sent_again,
    versions,
)
from support.servers import s3servers
from support.servers.faults import at, proxy

from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import bucket, requests
from onnxreg.registry.store.bucket import cas_faults, prove
from onnxreg.registry.store.protocol import BlobKey, MemoryStore
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, RemoteError

# The promises of an object store, proven before the first write


class Broken(MemoryStore):
    """A store that breaks one promise, as some gateways do."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        if self.fault == "ignores conditions" or (self.fault == "only creates" and expected is not None):
            self.objects[key] = data
            return True
        if self.fault == "never replaces" and expected is not None:
            return False
        return super().swap(key, data[:1] if self.fault == "lies" else data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        if self.fault != "deletes nothing":
            super().delete(keys)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ignores conditions", "can be created again"),
        ("ignores conditions", "stale token is done"),
        ("only creates", "stale token is done"),
        ("never replaces", "right token is refused"),
        ("deletes nothing", "still there"),
        ("lies", "not what is read"),
    ],
)
def test_a_store_that_breaks_a_promise_is_found(fault, words):
    store = Broken(fault)
    assert words in "; ".join(cas_faults(store))
    assert store.objects == {} or fault == "deletes nothing"


def test_promises_are_proven_once_for_each_server(tmp_path, monkeypatch):
    careless = Broken("ignores conditions")
    prove(MemoryStore(), "one")
    prove(careless, "one")
    with pytest.raises(RemoteError, match="cannot be written safely"):
        prove(careless, "two")
    (tmp_path / "file").touch()
    monkeypatch.setenv("REG_STATE", str(tmp_path / "file" / "home"))
    prove(MemoryStore(), "no record can be kept")


@pytest.mark.large
def test_a_server_that_ignores_conditions_is_only_read(juicefs, registry, other, monkeypatch):
    """JuiceFS's gateway takes a condition and ignores it."""
    juicefs.enter(monkeypatch)
    made, url = registry.make(size=10**6), juicefs.fresh()
    fault = "an object that is there can be created again"
    with pytest.raises(RemoteError, match=f"cannot be written safely: {fault}"):
        registry.push("acme/pii", url)
    assert finished(url, juicefs) == []
    for file in registry.store.files():
        juicefs.put(url, file.path, (registry.store.root / file.path).read_bytes())
    other.pull("acme/pii", url)
    assert other.get("acme/pii").digest == made.digest
    with pytest.raises(RemoteError, match="cannot be written safely"):
        open_url(url).remove_note("intents", "0" * 16)


# Requests without an answer


@pytest.mark.parametrize(("fault", "burst"), [("lost", 1), ("reset", 2), ("slow-down", 4), ("error", 4)])
def test_a_swap_that_is_answered_late_is_no_lost_race(bucket_url, s3_proxy, fault, burst):
    remote = open_url(bucket_url, create=True)
    put(remote, index=b"1\n")
    found = remote.read_index("m")
    assert found is not None
    for data, is_first in ((b"2\n", True), (b"3\n", False)):
        s3_proxy.plan = at(0, fault, burst)
        assert remote.store.swap("index/m.jsonl", data, found.token) == is_first
    assert s3_proxy.met == [fault] * burst * 2
    again = remote.read_index("m")
    assert again is not None and again.data == b"2\n"


@pytest.mark.parametrize("fault", ["lost", "502 BadGateway", "504 GatewayTimeout"])
def test_a_delete_that_was_not_answered_is_not_repeated(bucket_url, s3_proxy, fault):
    """It may be done at any later time: only the collector's note, which stays, keeps pushes off the key."""
    remote = open_url(bucket_url, create=True)
    put(remote, b"blob")
    s3_proxy.plan = lambda method, path: fault if method == "DELETE" else None
    with pytest.raises(RemoteError, match="deleting blobs/"):
        remote.delete([BlobKey(Digest.of(b"blob")).path])
    assert s3_proxy.requests("DELETE", "/blobs/") == 1


def test_a_delete_that_a_busy_server_refused_is_repeated(bucket_url, s3_proxy):
    remote, digest = open_url(bucket_url, create=True), Digest.of(b"blob")
    put(remote, b"blob")
    s3_proxy.plan = at(0, "slow-down")
    remote.delete([BlobKey(digest).path])
    assert s3_proxy.met == ["slow-down"] and not remote.has([digest])


def restartable(name: str, directory: Path) -> Callable[[], AbstractContextManager[s3servers.Server]]:
    """Starts a server again and again, at one address, with what it has kept."""
    directory.mkdir()
    if name == "ministack":
        return partial(s3servers.ministack, directory, s3servers.free_port())
    return partial(s3servers.seaweedfs, directory, s3servers.low_ports())


@pytest.mark.more
@pytest.mark.parametrize("name", ["ministack", pytest.param("seaweedfs", marks=pytest.mark.large)])
def test_a_server_that_is_killed_in_the_middle_of_a_push(name, registry, tmp_path, monkeypatch):
    start, blobs = restartable(name, tmp_path / "server"), itertools.count(1)
    registry.make()
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    with ExitStack() as life:
        server = life.enter_context(start())
        url = server.fresh()
        server.enter(monkeypatch)
        with proxy(server.endpoint) as through:
            monkeypatch.setenv("AWS_ENDPOINT_URL", through.url)

            def kill(method: str, path: str) -> None:
                if method == "PUT" and "/blobs/" in path and next(blobs) == 4:
                    life.close()

            through.plan = kill
            with pytest.raises(RemoteError, match="failed"):
                registry.push("acme/pii", url)
            with start():
                server.await_object(url, "registry.json")
                before = finished(url, server)
                assert versions(direct(url, server)) == set()
                through.seen.clear()
                registry.push("acme/pii", url)
                assert sent_again(through.seen, before) == []
                assert versions(direct(url, server)) == {"0.1.0"}
                assert damages(direct(url, server)) == []


# Whole stories


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param("ministack", 2, marks=pytest.mark.more),
        *(pytest.param(name, 8, marks=pytest.mark.large) for name in ("ministack", "seaweedfs", "ceph")),
    ],
)
def test_processes_pushing_versions_of_one_model_lose_nothing(
    name, processes, request, tmp_path, monkeypatch
):
    server: s3servers.Server = request.getfixturevalue(name)
    server.enter(monkeypatch)
    url = server.fresh()
    push_at_once(url, tmp_path, processes)
    assert_nothing_lost(open_url(url), processes)


def test_makes_a_mirror_in_a_folder_that_a_console_made(bucket_url, ministack):
    ministack.put(bucket_url, "", b"")
    remote = open_url(bucket_url, create=True, mirror_of="ab" * 16)
    assert (remote.registry_id, remote.is_mirror) == ("ab" * 16, True)
    for key in ("index/", "index/m.jsonl"):
        ministack.put(bucket_url, key, b"")
    assert [file.path for file in remote.files()] == ["index/m.jsonl", "registry.json"]


def test_a_library_that_is_missing(bucket_url, monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(HostError, match="needs botocore") as error:
        open_url(bucket_url)
    assert "[s3]" in error.value.hint


def test_over_tls(bucket_url, ministack, registry, other, monkeypatch, tmp_path):
    """Checksums and payloads are signed in another way than over plain HTTP."""
    certificate = s3servers.certificate(tmp_path)
    made = registry.make(size=200_000)
    monkeypatch.setattr(bucket, "PART_BYTES", 2**20)
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    with proxy(ministack.endpoint, certificate) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        with pytest.raises(RemoteError, match="certificate verify failed"):
            registry.push("acme/pii", bucket_url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        registry.push("acme/pii", bucket_url)
        other.pull("acme/pii", bucket_url)
        assert running.requests("POST", "uploadId") == 1
    assert other.get("acme/pii").digest == made.digest
    other.check()
