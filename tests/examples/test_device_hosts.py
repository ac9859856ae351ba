"""The clients at web servers that answer as hosts and CDNs do; the one in JavaScript also with the `fetch` for Node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

import pytest
from examples.conftest import CLIENTS, needs_node
from support.registries.for_devices import blob, publish
from support.sampling import sampled
from support.servers import static, web_client
from support.servers.static import Manners

from onnxreg.registry import Registry

NAME = "acme/pii"


@pytest.fixture(scope="module", params=[*CLIENTS, pytest.param("node", marks=needs_node)])
def client(request: pytest.FixtureRequest, clients: Callable[[str], web_client.Call]) -> web_client.Call:
    return clients(request.param)


def update(
    client: web_client.Call, registry: Registry, manners: Manners, store: Path, name: str = NAME
) -> Any:
    with static.serve(registry.store.root, manners) as url:
        return client(url, store, "update", name)


@pytest.mark.parametrize("ranges", sampled(["no", "chunked", "star"], 3))
def test_a_host_without_ranges_or_sizes(client, registry, tmp_path, ranges):
    files, manners = publish(registry, tmp_path / "1", "1.0.0", 9 * 2**20), Manners(ranges, head=405)
    outcome = update(client, registry, manners, tmp_path / "store")
    assert outcome["files"] == files and outcome["progress"][-1] == [9 * 2**20 + 5] * 2
    sent = sum(blob(registry, files["model_int8.onnx"]).name in line for line in manners.seen)
    assert sent == 1 or ranges == "star"


@pytest.mark.parametrize("absent", [403, 200])
def test_a_host_that_hides_absence(client, registry, tmp_path, absent):
    files = publish(registry, tmp_path / "1", "1.0.0")
    path = blob(registry, files["model_int8.onnx"])
    path.rename(path.with_name(f"{path.name}.2"))
    manners = Manners(absent=absent)
    assert update(client, registry, manners, tmp_path / "store")["files"] == files
    assert update(client, registry, manners, tmp_path / "store", "acme/other")["error"] == "remote"


def test_a_file_that_comes_packed_is_no_damage(client, registry, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")
    assert update(client, registry, Manners("no", packed=True), tmp_path / "store")["files"] == files


def headers(seconds: int) -> list[dict[str, str]]:
    """What servers say to ask for so long a pause."""
    return [
        {"Retry-After": str(seconds)},
        {"Retry-After": formatdate(time() + seconds, usegmt=True)},
        {"RateLimit": f'"api";r=0;t={seconds}'},
    ]


@pytest.mark.parametrize("form", range(3), ids=["seconds", "date", "ratelimit"])
def test_a_server_that_says_when_to_come_back(client, registry, tmp_path, form):
    files = publish(registry, tmp_path / "1", "1.0.0")
    manners = Manners(once=[(429, headers(7200)[form])])
    assert update(client, registry, manners, tmp_path / "store")["error"] == "remote"
    assert len(manners.seen) == 1, "it is asked again too early"
    manners = Manners(once=[(429, headers(0)[form])])
    assert update(client, registry, manners, tmp_path / "store")["files"] == files


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers as it is told: its URL, and the Authorization of each request."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", tokens
        server.shutdown()
        thread.join()


def test_a_redirect_to_another_origin_gets_no_token(client, registry, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")

    def serve(request: BaseHTTPRequestHandler) -> None:
        path = registry.store.root / request.path.lstrip("/")
        request.send_response(200 if path.exists() else 404)
        request.end_headers()
        request.wfile.write(path.read_bytes() if path.exists() else b"")

    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.send_response(307)
        request.send_header("Location", other + request.path)
        request.end_headers()

    with answering(serve) as (other, there), answering(redirect) as (url, here):
        outcome = client(url, tmp_path / "store", "update", NAME, token="secret")
    assert outcome["files"] == files
    assert set(here) == {"Bearer secret"}
    assert set(there) == {None}
