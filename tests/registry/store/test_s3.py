"""Registries in S3, on a real server: MiniStack. Its siblings have large objects, faults, refusals and other servers."""

import json
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import ObjectContract, put
from support.registries import owner
from support.registries.bucket import assert_nothing_lost, push_at_once
from support.servers import s3servers
from support.servers.faults import Proxy, at, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.collect import collect
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store import bucket, requests
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


class TestMiniStack(ObjectContract):
    @pytest.fixture
    def remote(self, ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> RegistryStore:
        ministack.enter(monkeypatch)
        return bucket_remote(ministack.fresh(), create=True)


@pytest.mark.parametrize(("fault", "burst"), [("lost", 1), ("reset", 2), ("slow-down", 4), ("error", 4)])
def test_a_swap_that_is_answered_late_is_no_lost_race(
    bucket_url: str, s3_proxy: Proxy, fault: str, burst: int
) -> None:
    remote = bucket_remote(bucket_url, create=True)
    store = remote.store
    put(remote, index=b"1\n")
    found = remote.read_index("m")
    assert found is not None
    s3_proxy.plan = at(0, fault, burst)
    assert store.swap("index/m.jsonl", b"2\n", found.token)
    s3_proxy.plan = at(0, fault, burst)
    assert not store.swap("index/m.jsonl", b"3\n", found.token)
    assert s3_proxy.met == [fault] * burst * 2
    again = remote.read_index("m")
    assert again is not None and again.data == b"2\n"


def test_the_verdict_is_remembered(
    bucket_url: str, s3_proxy: Proxy, registry: Registry, make_draft: MakeDraft
) -> None:
    for seed in ("a", "b", "c"):
        registry.add(make_draft(seed=seed))
    probed = []
    for version in ("0.1.0", "0.1.1", "0.1.2"):
        s3_proxy.seen.clear()
        registry.push(f"acme/pii:{version}", bucket_url)
        probed.append(s3_proxy.requests("PUT", "gc/probe-") > 0)
    assert probed == [True, False, False]


def test_makes_a_mirror(bucket_url: str) -> None:
    remote = bucket_remote(bucket_url, create=True, mirror_of="ab" * 16)
    assert (remote.registry_id, remote.is_mirror) == ("ab" * 16, True)


def test_collects_what_nothing_refers_to(bucket_url: str, registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft())
    registry.push("acme/pii", bucket_url)
    remote = bucket_remote(bucket_url)
    before = {file.path for file in remote.files()}
    garbage = [b"garbage %d" % number for number in range(5)]
    with remote.push() as push:
        for data in garbage:
            push.put(BytesIO(data))
    collected = collect(remote, patience=0)
    assert {key.digest for key in collected.freed} == set(map(Digest.of, garbage))
    assert {file.path for file in remote.files()} == before
    assert not verify(remote).damages


@pytest.mark.parametrize("fault", ["lost", "502 BadGateway", "504 GatewayTimeout"])
def test_a_delete_that_was_not_answered_is_not_repeated(bucket_url: str, s3_proxy: Proxy, fault: str) -> None:
    """It may be done at any later time: only the collector's note, which stays, keeps pushes off the key."""
    remote = bucket_remote(bucket_url, create=True)
    put(remote, b"blob")
    s3_proxy.plan = lambda method, path: fault if method == "DELETE" else None
    with pytest.raises(RemoteError, match="deleting blobs/"):
        remote.delete([BlobKey(Digest.of(b"blob")).path])
    assert s3_proxy.requests("DELETE", "/blobs/") == 1


@pytest.mark.parametrize("processes", [2, *(pytest.param(many, marks=pytest.mark.more) for many in (4, 8))])
def test_processes_pushing_versions_of_one_model_lose_nothing(
    bucket_url: str, tmp_path: Path, processes: int
) -> None:
    push_at_once(bucket_url, tmp_path, processes)
    assert_nothing_lost(bucket_remote(bucket_url), processes)


class TestCommandLine:
    def test_push_and_pull(
        self,
        bucket_url: str,
        registry: Registry,
        make_draft: MakeDraft,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        registry.add(make_draft())

        def reg(home: Path | str, *words: object, status: int = 0) -> Any:
            capfd.readouterr()
            assert main(["--registry", str(home), *map(str, words), "--json"]) == status
            out, err = capfd.readouterr()
            return json.loads(out or err)

        ours, other = registry.store.root, tmp_path / "other"
        assert reg(ours, "push", "acme/pii:0.1.0", bucket_url)["events"] == 1
        assert reg(ours, "push", "acme/pii:0.1.0", bucket_url)["blobs"] == 0
        assert (
            reg(ours, "resolve", "acme/pii", "--format", "onnx-int8", "--remote", bucket_url)["version"]
            == "0.1.0"
        )
        assert reg(other, "pull", "acme/pii", bucket_url, "--output", tmp_path / "out")["events"] == 1
        assert (tmp_path / "out" / "model.onnx").read_bytes() == b"fp32 a " * 100
        assert reg(other, "verify")["ok"]
        assert reg(ours, "doctor", bucket_url)["ok"]


def test_a_library_that_is_missing(bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(HostError, match="needs botocore") as error:
        bucket_remote(bucket_url)
    assert "[s3]" in error.value.hint


def test_over_tls(
    bucket_url: str,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Checksums and payloads are signed in another way than over plain HTTP."""
    certificate = s3servers.certificate(tmp_path)
    made = registry.add(make_draft(size=200_000))
    monkeypatch.setattr(bucket, "PART_BYTES", 2**20)
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    with proxy(ministack.endpoint, certificate) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        with pytest.raises(RemoteError, match="certificate verify failed"):
            registry.push("acme/pii", bucket_url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        registry.push("acme/pii", bucket_url)
        reader = Registry(tmp_path / "reader")
        reader.pull("acme/pii", bucket_url)
        assert running.requests("POST", "uploadId") == 1
    assert reader.get("acme/pii").digest == made.digest
    assert not owner.verify(reader).damages
