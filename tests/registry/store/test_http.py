"""Registries on a static web server, over real connections, read only."""

import random
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from support.registries import owner
from support.servers import s3servers, static
from support.servers.faults import Proxy, at, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.oci.client import OciClient, OciTarget
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import BlobKey, blob_path
from onnxreg.registry.store.requests import http_remote
from onnxreg.registry.support import parallel
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
    assert len(site.seen) == 8 and site.requests("GET", blob_path(made.digest)) == 1
    assert reader.get("acme/pii").digest == made.digest
    assert not owner.verify(reader).damages
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
def test_a_stream_that_breaks_goes_on_where_it_broke(
    site: Proxy, registry: Registry, size: int, fault: str | None
) -> None:
    data = random.Random(size).randbytes(size)
    digest = store(registry, data)
    remote = http_remote(site.url)
    site.plan = lambda method, path: fault if len(site.seen) % 2 == 0 else None
    with remote.open_blob(digest) as stream:
        assert stream.read() == data
    assert fault is None or site.met


def test_a_file_that_changes_meanwhile_is_noticed(site: Proxy, registry: Registry) -> None:
    digest = store(registry, bytes(8 * 2**20))
    remote = http_remote(site.url)
    site.plan = at(0, "truncated")
    with remote.open_blob(digest) as stream, pytest.raises(RemoteError, match=r"asked for|changed"):
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
        remote.delete([BlobKey(Digest.of(b"x")).path])
    with pytest.raises(RemoteError, match="does not list"):
        remote.names()


@pytest.mark.parametrize(
    ("place", "status", "message"),
    [
        ("https://user:secret@models.example/x", 2, "the URL holds credentials"),
        ("http://models.example/x", 2, "write https://"),
        *(
            (f"https://{rest}", 2, "not the URL of a registry")
            for rest in ("/x", "models.example:99999", "a b/x")
        ),
        *((f"https://{rest}", 2, "not the URL of a registry") for rest in ("a/ä", "a/ b")),
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


LARGE = random.Random(1).randbytes(5 * 2**20 + 7)
"""More bytes than one range has."""


@pytest.mark.parametrize("ranges", ["no", "chunked", "star"])
@pytest.mark.parametrize("fault", [None, "truncated"])
def test_a_server_without_ranges_sends_the_file(
    registry: Registry, reader: Registry, make_draft: MakeDraft, ranges: str, fault: str | None
) -> None:
    """`python -m http.server` has none; RFC 9110 lets a server not say the size of a file."""
    registry.add(make_draft(size=700_000))
    with static.serve(registry.store.root, static.Manners(ranges)) as url, proxy(url) as site:
        site.plan = lambda method, path: fault if len(site.seen) % 2 == 0 and "/blobs/" in path else None
        reader.pull("acme/pii", site.url)
        assert fault is None or fault in site.met
    assert reader.get("acme/pii").digest == registry.get("acme/pii").digest
    assert not owner.verify(reader).damages


@pytest.mark.parametrize("start", [0, 1, 2**20, len(LARGE) - 1, len(LARGE), len(LARGE) + 1])
@pytest.mark.parametrize("ranges", ["no", "chunked", "star"])
@pytest.mark.parametrize("size", [len(LARGE), 9])
def test_a_server_without_ranges_sends_the_rest_of_a_file(
    registry: Registry, tmp_path: Path, ranges: str, start: int, size: int
) -> None:
    data = LARGE[:size]
    digest = store(registry, data)
    path = registry.store.root / f"v2/acme/pii/blobs/{digest}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with static.serve(registry.store.root, static.Manners(ranges)) as url:
        oci = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
        for place in (http_remote(url), oci):
            with place.open_blob(digest, start) as stream:
                assert stream.read() == data[start:]


@pytest.mark.parametrize("realm", [403, 404, 429])
@pytest.mark.parametrize("status", [401, 403])
def test_a_blob_that_an_oci_registry_refuses_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, realm: int
) -> None:
    """Also if the server that gives out tokens has no such page, or is busy."""
    monkeypatch.setattr(parallel, "sleep", lambda seconds: None)
    digest = Digest.of(b"blob")
    manners = static.Manners(methods=("GET", "HEAD"))
    with static.serve(tmp_path, manners) as url:
        challenge = {"WWW-Authenticate": f'Bearer realm="{url}/token",service="s"'}
        manners.refused = {
            digest.hex: (status, challenge),
            "repository%3Aacme%2Fpii%3Apull&service=s": (realm, {}),
        }
        client = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
        with pytest.raises(RemoteError) as caught:
            client.open_blob(digest)
    assert "skopeo login" in caught.value.hint or (status, realm) == (401, 429)


def test_a_host_that_answers_otherwise_for_what_is_absent(
    registry: Registry, reader: Registry, make_draft: MakeDraft
) -> None:
    """A bucket whose readers may not list it says 403."""
    registry.add(make_draft())
    registry.tag("acme/pii:0.1.0", "stable")
    manners = static.Manners(absent=403)
    digest = store(registry, b"blob")
    (registry.store.root / BlobKey(digest).path).rename(registry.store.root / BlobKey(digest, 2).path)
    with static.serve(registry.store.root, manners) as url:
        reader.pull("acme/pii:stable", url)
        assert sum("absent-" in line for line in manners.seen) == 1
        remote = http_remote(url)
        assert remote.has([digest, Digest.of(b"absent")]) == {digest}
        with remote.open_blob(digest) as stream:
            assert stream.read() == b"blob"
        with pytest.raises(NotFoundError):
            remote.open_blob(Digest.of(b"absent"))
        with pytest.raises(NotFoundError):
            reader.pull("acme/nobody", url)
    assert not owner.verify(reader).damages


@pytest.mark.parametrize("refused", ["registry.json", "acme/pii.jsonl", "policy.jsonl"])
def test_a_file_that_may_not_be_read_is_not_absent(
    registry: Registry, make_draft: MakeDraft, capfd: pytest.CaptureFixture[str], refused: str
) -> None:
    """The host answers 404 for what is absent, or gives out nothing at all."""
    registry.add(make_draft())
    registry.tag("acme/pii:0.1.0", "stable")
    absent = 403 if refused == "registry.json" else 404
    manners = static.Manners(absent=absent, refused={refused: (403, {})})
    with static.serve(registry.store.root, manners) as url:
        words = ["--registry", str(registry.store.root.with_name("reader")), "pull", "acme/pii:stable", url]
        assert main(words) == 6
    said = capfd.readouterr().err
    assert "403" in said and refused in said
