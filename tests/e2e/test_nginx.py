"""The nginx configurations of docs/serve.md, run by a real nginx (`apt-get install nginx-light`)."""

import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers import showroom
from support.servers.nginx import documented, nginx
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import BlobKey, blob_path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("showroom")
    showroom.fill(root / "registry", root / "made")
    return root / "registry"


@pytest.fixture
def registry(template: Path, tmp_path: Path) -> Registry:
    return Registry(shutil.copytree(template, tmp_path / "registry"))


@pytest.fixture
def in_front(registry: Registry, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        site = stack.enter_context(running(registry.store.root, Settings(behind_proxy=True)))
        block = re.sub(r"server 127\.0\.0\.1:808[01]; ?", "", documented("upstream registry"))
        block = re.sub(r"(_timeout|send_timeout) \d+s;", r"\1 1s;", block)
        block = block.replace("upstream registry {", f"upstream registry {{ server 127.0.0.1:{site.port};")
        yield stack.enter_context(nginx(tmp_path / "nginx", registry.store.root, block))


@pytest.fixture
def alone(registry: Registry, tmp_path: Path) -> Iterator[Site]:
    block = f"server {{ listen 443 ssl http2; {documented('location / { return 404; }')} }}"
    with nginx(tmp_path / "nginx", registry.store.root, block) as site:
        yield site


@pytest.fixture(params=["in_front", "alone"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


def blob_of(registry: Registry) -> BlobKey:
    return BlobKey(registry.resolve("acme/pii").artifact.digest)


def test_in_front_questions_are_answered_and_files_come_from_the_disk(registry, in_front):
    told = in_front.resolve({"ref": "acme/pii"}, Host="models.example").json
    assert told["files"][0]["url"].startswith("http://models.example/blobs/sha256/")
    assert in_front.get("/models/acme/pii").status == 200
    path = f"/{blob_of(registry).path}"
    whole, part = in_front.get(path), in_front.get(path, Range="bytes=10-19")
    assert "nginx" in whole.headers["server"]
    assert "immutable" in whole.headers["cache-control"]
    assert (part.status, part.body) == (206, whole.body[10:20])
    assert in_front.get(path, If_None_Match=whole.headers["etag"]).status == 304


def test_in_front_a_blob_under_a_generation_key_is_found(registry, in_front):
    key = blob_of(registry)
    path = registry.store.root / key.path
    whole = path.read_bytes()
    path.rename(registry.store.root / BlobKey(key.digest, 1).path)
    assert in_front.get(f"/{blob_path(key.digest)}").body == whole


def test_a_pull_through_nginx_and_nothing_but_the_tree_is_reached(registry, site, tmp_path):
    root = registry.store.root
    (root / "local" / "remotes.json").write_text("secret")
    (root / "blobs" / "sha256" / "link").symlink_to("/etc/passwd")
    hidden = "local/remotes.json blobs/../local/remotes.json blobs/sha256/link gc/ blobs/sha256/"
    for path in hidden.split():
        answer = site.get(f"/{path}")
        assert answer.status in (400, 403, 404), path
        assert b"secret" not in answer.body
    Registry(tmp_path / "other").pull("acme/pii", site.url)
    assert (tmp_path / "other" / blob_of(registry).path).is_file()
    assert site.get("/index/acme/pii.jsonl").headers["cache-control"] == "no-cache"


def taken(connection: socket.socket) -> int:
    """Bytes that arrive until the server closes the connection."""
    connection.settimeout(30)
    count = 0
    try:
        while data := connection.recv(65536):
            count += len(data)
    except ConnectionError:
        pass
    return count


SLOW = {
    "head": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: y",
    "head without an end": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000,
    "body": b"POST /v1/resolve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    "nothing": b"",
    "idle": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_or_idle_client_is_cut_off_and_delays_nobody(in_front, kind):
    """The times of the page, shortened to a second."""
    slow = [in_front.connect() for _ in range(20)]
    for connection in slow:
        connection.sendall(SLOW[kind])
    assert in_front.get("/healthz").status == 200
    for connection in slow:
        assert taken(connection) < 1000
        connection.close()


def test_a_reader_that_takes_nothing_is_cut_off(registry, in_front):
    (registry.store.root / "index" / "large.jsonl").write_bytes(bytes(32 * 2**20))
    with in_front.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /index/large.jsonl HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        time.sleep(2)
        assert taken(connection) < 32 * 2**20
    assert in_front.get("/healthz").status == 200
