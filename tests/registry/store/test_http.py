"""Registries on a static web server, over real connections, read only."""

import random
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from support.servers import s3servers, static
from support.servers.faults import Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store import range_stream
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.http import http_remote
from onnxreg.registry.store.layout import BlobKey, blob_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError, RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture
def site(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What serves the registry's directory, behind a proxy that can spoil it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    DirectoryRegistry.create(registry.store.root)
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture
def reader(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "reader")


def store(registry: Registry, data: bytes) -> Digest:
    with registry.store.push() as push:
        digest, _ = push.put(BytesIO(data))
        push.flush()
    return digest


def test_resolve_and_pull(site: Proxy, registry: Registry, reader: Registry, make_draft: MakeDraft) -> None:
    made = registry.add(make_draft())
    reader.pull("acme/pii", site.url)
    assert reader.get("acme/pii").digest == made.digest
    assert not reader.verify().damages
    reader.pull("acme/pii", f"{site.url}/")
    for file in (*made.manifest.artifacts, *made.manifest.files):
        assert site.requests("GET", blob_path(file.digest)) == 1, file.path


def test_an_index_is_asked_for_with_its_tag(site: Proxy, registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft())
    remote = http_remote(site.url)
    first = remote.read_index("acme/pii")
    assert remote.read_index("acme/pii", first) is first
    assert site.answers[-1] == 304
    registry.add(make_draft(seed="b"))
    second = remote.read_index("acme/pii", first)
    assert second is not None and second.data == (registry.store.root / "index/acme/pii.jsonl").read_bytes()


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 5 * 2**20 + 7])
@pytest.mark.parametrize("fault", [None, "reset", "truncated", "error"])
def test_ranges(
    site: Proxy, registry: Registry, monkeypatch: pytest.MonkeyPatch, size: int, fault: str | None
) -> None:
    monkeypatch.setattr(range_stream, "RANGE_BYTES", 2**20)
    data = random.Random(size).randbytes(size)
    digest = store(registry, data)
    remote = http_remote(site.url)
    site.plan = lambda method, path: fault if len(site.seen) % 2 == 0 else None
    with remote.open_blob(digest) as stream:
        assert stream.read() == data
    assert fault is None or len(site.met) >= max(1, size // 2**20)


def test_a_file_that_changes_meanwhile_is_noticed(
    site: Proxy, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_stream, "RANGE_BYTES", 2**20)
    digest = store(registry, bytes(8 * 2**20))
    with (
        http_remote(site.url).open_blob(digest) as stream,
        pytest.raises(RemoteError, match=r"asked for|changed"),
    ):
        stream.read(10)
        path = registry.store.root / BlobKey(digest).path
        path.chmod(0o600)
        path.write_bytes(b"x" * 8 * 2**20)
        stream.read()


def test_a_blob_is_found_under_a_generation_key(site: Proxy, registry: Registry) -> None:
    digest = store(registry, b"blob")
    path = registry.store.root / BlobKey(digest).path
    path.rename(registry.store.root / BlobKey(digest, 3).path)
    remote = http_remote(site.url)
    assert remote.has([digest, Digest.of(b"absent")]) == {digest}
    with remote.open_blob(digest) as stream:
        assert stream.read() == b"blob"
    with pytest.raises(NotFoundError):
        remote.open_blob(Digest.of(b"absent"))


def test_writes_and_lists_nothing(site: Proxy, reader: Registry, make_draft: MakeDraft) -> None:
    reader.add(make_draft())
    remote = http_remote(site.url)
    with pytest.raises(RemoteError, match="only read"):
        reader.push("acme/pii", site.url)
    with pytest.raises(RemoteError, match="only read"), remote.push() as push:
        push.put(BytesIO(b"x"))
    with pytest.raises(RemoteError, match="only read"):
        remote.delete([BlobKey(Digest.of(b"x"))])
    with pytest.raises(RemoteError, match="does not list"):
        remote.names()


@pytest.mark.parametrize(
    ("place", "status", "message"),
    [
        ("https://user:secret@models.example/x", 2, "the URL holds credentials"),
        ("http://models.example/x", 2, "write https://"),
        ("https:///x", 2, "not the URL of a registry"),
        ("{url}/nowhere", 3, "there is no registry"),
        ("{closed}", 6, "failed: Connection refused"),
    ],
)
def test_bad_input(
    site: Proxy, registry: Registry, capfd: pytest.CaptureFixture[str], place: str, status: int, message: str
) -> None:
    url = place.format(url=site.url, closed=f"http://127.0.0.1:{s3servers.free_port()}")
    assert main(["--registry", str(registry.store.root), "pull", "acme/pii", url]) == status
    said = capfd.readouterr().err
    assert message in said
    assert "secret" not in said


def test_a_web_page_is_no_registry(site: Proxy, reader: Registry) -> None:
    site.plan = lambda method, path: "page"
    with pytest.raises(RemoteError, match="is a web page"):
        reader.pull("acme/pii", site.url)
