"""Registries on a static web server, over real connections, read only."""

import random
from io import BytesIO

import pytest
from support.sampling import sampled
from support.servers import s3servers, static
from support.servers.faults import at, proxy

from onnxreg.registry import Registry, system
from onnxreg.registry.log.log import read_blob
from onnxreg.registry.oci import OciClient, OciTarget
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, blob_path
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import NotFoundError, RemoteError

ABSENT = Digest.of(b"absent")


@pytest.fixture(autouse=True)
def made(registry):
    DirectoryRegistry.create(registry.store.root)


def store(registry: Registry, data: bytes, generation: int = 0) -> Digest:
    with registry.store.push() as push:
        digest, _ = push.put(BytesIO(data))
        push.flush()
    path = registry.store.root / BlobKey(digest).path
    path.rename(registry.store.root / BlobKey(digest, generation).path)
    return digest


def test_resolve_and_pull(site, registry, other):
    made = registry.make()
    other.pull("acme/pii", site.url)
    assert len(site.seen) == 8 and site.requests("GET", blob_path(made.digest)) == 1
    assert other.get("acme/pii").digest == made.digest
    other.check()
    other.pull("acme/pii", f"{site.url}/")
    for file in (*made.manifest.artifacts, *made.manifest.files):
        assert site.requests("GET", blob_path(file.digest)) == 1, file.path


def test_an_index_is_asked_for_with_its_tag(site, registry):
    registry.make()
    remote = open_url(site.url)
    first = remote.read_index("acme/pii")
    assert remote.read_index("acme/pii", first) is first
    assert site.answers[-1] == 304
    registry.make(seed="b")
    second = remote.read_index("acme/pii", first)
    assert second is not None and second.data == (registry.store.root / "index/acme/pii.jsonl").read_bytes()


@pytest.mark.parametrize("size", sampled([0, 1, 2**20, 2**20 + 1, 5 * 2**20 + 7], 2))
@pytest.mark.parametrize("fault", [None, "reset", "truncated", "error"])
def test_a_stream_that_breaks_goes_on_where_it_broke(site, registry, size, fault):
    data = random.Random(size).randbytes(size)
    remote, digest = open_url(site.url), store(registry, data)
    site.plan = lambda method, path: fault if len(site.seen) % 2 == 0 else None
    assert read_blob(remote, digest) == data
    assert fault is None or site.met


def test_a_file_that_changes_meanwhile_is_noticed(site, registry):
    remote, digest = open_url(site.url), store(registry, bytes(8 * 2**20))
    site.plan = at(0, "truncated")
    with remote.open_blob(digest) as stream, pytest.raises(RemoteError, match=r"asked for|changed"):
        stream.read(10)
        path = registry.store.root / BlobKey(digest).path
        path.chmod(0o600)
        path.write_bytes(b"x" * 8 * 2**20)
        stream.read()


def test_writes_and_lists_nothing(site, other):
    other.make()
    remote = open_url(site.url)
    with pytest.raises(RemoteError, match="only read"), remote.push() as push:
        push.put(BytesIO(b"x"))
    for write in (lambda: other.push("acme/pii", site.url), lambda: remote.delete([BlobKey(ABSENT).path])):
        with pytest.raises(RemoteError, match="only read"):
            write()
    with pytest.raises(RemoteError, match="does not list"):
        remote.names()


def test_a_place_without_a_registry_or_a_server(site, other, capfd):
    closed = f"http://127.0.0.1:{s3servers.free_port()}"
    for url, status, message in (
        (f"{site.url}/nowhere", 3, "there is no registry"),
        (closed, 6, "failed: Connection refused"),
    ):
        assert other.reg("pull", "acme/pii", url) == status
        assert message in capfd.readouterr().err


def test_a_web_page_is_no_registry(site, other):
    site.plan = lambda method, path: "page"
    with pytest.raises(RemoteError, match="is a web page"):
        other.pull("acme/pii", site.url)


LARGE = random.Random(1).randbytes(5 * 2**20 + 7)
"""More bytes than one range has."""
RANGES = ["no", "chunked", "star"]
"""`python -m http.server` has none; RFC 9110 lets a server not say the size of a file."""


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("fault", sampled(["truncated", None], 2))
def test_a_server_without_ranges_sends_the_file(registry, other, ranges, fault):
    registry.make(size=700_000)
    with static.serve(registry.store.root, static.Manners(ranges)) as url, proxy(url) as site:
        site.plan = lambda method, path: fault if len(site.seen) % 2 == 0 and "/blobs/" in path else None
        other.pull("acme/pii", site.url)
        assert fault is None or fault in site.met
    assert other.get("acme/pii").digest == registry.get("acme/pii").digest
    other.check()


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("data", [LARGE, LARGE[:9]], ids=["large", "small"])
def test_a_server_without_ranges_sends_the_rest_of_a_file(registry, ranges, data):
    digest = store(registry, data)
    path = registry.store.root / f"v2/acme/pii/blobs/{digest}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with static.serve(registry.store.root, static.Manners(ranges)) as url:
        oci = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
        for start in (0, 1, 2**20, len(LARGE) - 1, len(LARGE), len(LARGE) + 1):
            for place in (open_url(url), oci):
                with place.open_blob(digest, start) as stream:
                    assert stream.read() == data[start:]


@pytest.mark.parametrize("realm", [403, 404, 429])
@pytest.mark.parametrize("status", [401, 403])
def test_a_blob_that_an_oci_registry_refuses_is_not_absent(tmp_path, monkeypatch, status, realm):
    """Also if the server that gives out tokens has no such page, or is busy."""
    monkeypatch.setattr(system, "sleep", lambda seconds: None)
    manners = static.Manners(methods=("GET", "HEAD"))
    with static.serve(tmp_path, manners) as url:
        challenge = {"WWW-Authenticate": f'Bearer realm="{url}/token",service="s"'}
        manners.refused = {
            ABSENT.hex: (status, challenge),
            "repository%3Aacme%2Fpii%3Apull&service=s": (realm, {}),
        }
        client = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
        with pytest.raises(RemoteError) as caught:
            client.open_blob(ABSENT)
    assert "skopeo login" in caught.value.hint or (status, realm) == (401, 429)


@pytest.mark.parametrize("absent", [404, 403])
def test_what_is_absent_and_a_blob_under_a_generation_key(registry, other, absent):
    """A bucket whose readers may not list it says 403 for what is absent."""
    registry.make()
    registry.tag("acme/pii:0.1.0", "stable")
    digest, manners = store(registry, b"blob", 2), static.Manners(absent=absent)
    with static.serve(registry.store.root, manners) as url:
        other.pull("acme/pii:stable", url)
        assert sum("absent-" in line for line in manners.seen) == (absent == 403)
        remote = open_url(url)
        assert remote.has([digest, ABSENT]) == {digest}
        assert read_blob(remote, digest) == b"blob"
        for absence in (lambda: remote.open_blob(ABSENT), lambda: other.pull("acme/nobody", url)):
            with pytest.raises(NotFoundError):
                absence()
    other.check()


@pytest.mark.parametrize("refused", ["registry.json", "acme/pii.jsonl", "policy.jsonl"])
def test_a_file_that_may_not_be_read_is_not_absent(registry, other, capfd, refused):
    """The host answers 404 for what is absent, or gives out nothing at all."""
    registry.make()
    registry.tag("acme/pii:0.1.0", "stable")
    manners = static.Manners(absent=403 if refused == "registry.json" else 404, refused={refused: (403, {})})
    with static.serve(registry.store.root, manners) as url:
        assert other.reg("pull", "acme/pii:stable", url) == 6
    said = capfd.readouterr().err
    assert "403" in said and refused in said
