"""Registries on further S3 servers that people run, each with habits of its own."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest
from conformance.contract import ObjectContract, put
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
from support.servers.faults import proxy

from onnxreg.registry import Registry
from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.mark.more
class TestSeaweedFS(ObjectContract):
    @pytest.fixture
    def remote(self, seaweedfs: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> RegistryStore:
        seaweedfs.enter(monkeypatch)
        return bucket_remote(seaweedfs.fresh(), create=True)

    def test_a_batch_is_deleted(self, remote: RegistryStore) -> None:
        blobs = [b"%d" % number for number in range(20)]
        put(remote, *blobs)
        remote.delete([BlobKey(Digest.of(blob)).path for blob in [*blobs, b"absent"]])
        assert remote.has(map(Digest.of, blobs)) == set()


@pytest.mark.large
class TestCeph(ObjectContract):
    """Ceph 16 knows an ETag without the quotes that it gives it with, and no checksums."""

    @pytest.fixture
    def remote(self, ceph: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> RegistryStore:
        ceph.enter(monkeypatch)
        return bucket_remote(ceph.fresh(), create=True)


@pytest.mark.large
@pytest.mark.parametrize("name", ["seaweedfs", "ceph"])
def test_processes_that_push_versions_of_one_model_lose_nothing_there_either(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: s3servers.Server = request.getfixturevalue(name)
    server.enter(monkeypatch)
    url = server.fresh()
    push_at_once(url, tmp_path)
    assert_nothing_lost(bucket_remote(url))


@pytest.mark.more
class TestAServerThatIgnoresConditions:
    """JuiceFS's gateway takes a condition and ignores it."""

    def test_is_found_out_before_the_first_write(
        self,
        juicefs: s3servers.Server,
        registry: Registry,
        make_draft: MakeDraft,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        juicefs.enter(monkeypatch)
        registry.add(make_draft())
        url = juicefs.fresh()
        fault = "an object that is there can be created again"
        with pytest.raises(RemoteError, match=f"cannot be written safely: {fault}"):
            registry.push("acme/pii", url)
        assert finished(url, juicefs) == []

    def test_a_server_without_conditions_may_be_read(
        self,
        juicefs: s3servers.Server,
        registry: Registry,
        make_draft: MakeDraft,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        juicefs.enter(monkeypatch)
        made = registry.add(make_draft(size=10**6))
        url = juicefs.fresh()
        for file in registry.store.files():
            juicefs.put(url, file.path, (registry.store.root / file.path).read_bytes())
        reader = Registry(registry.store.root.with_name("reader"))
        reader.pull("acme/pii", url)
        assert reader.get("acme/pii").digest == made.digest
        with pytest.raises(RemoteError, match="cannot be written safely"):
            bucket_remote(url).remove_note("intents", "0" * 16)


def restartable(name: str, directory: Path) -> Callable[[], AbstractContextManager[s3servers.Server]]:
    """Starts a server again and again, at one address, with what it has kept."""
    if name == "ministack":
        return partial(s3servers.ministack, directory, s3servers.free_port())
    return partial(s3servers.seaweedfs, directory, s3servers.low_ports())


@pytest.mark.more
@pytest.mark.parametrize("name", ["ministack", pytest.param("seaweedfs", marks=pytest.mark.large)])
def test_a_server_that_is_killed_in_the_middle_of_a_push(
    name: str, registry: Registry, make_draft: MakeDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server").mkdir()
    start = restartable(name, tmp_path / "server")
    registry.add(make_draft())
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    with ExitStack() as life:
        server = life.enter_context(start())
        url, blobs = server.fresh(), itertools.count(1)
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
