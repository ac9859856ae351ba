"""The client in a real browser, with its store in IndexedDB: a registry behind `reg serve`, and a proxy that spoils it."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.registries.for_devices import publish
from support.servers import client_package
from support.servers.faults import Proxy, at, proxy
from support.servers.regserve import running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.directory import DirectoryRegistry

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NAME = "acme/pii"
SIZE = 2_000_000

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"),
]


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Static files, as any web server has them."""

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Browser:
    """A headless browser with a profile of its own, in which nothing is kept but what the client keeps."""

    def __init__(self, process: "subprocess.Popen[str]", page: str, site: str) -> None:
        self._process = process
        self._words = (page, site)

    def __call__(self, call: str) -> Any:
        """Call a method of the registry in a new load of the page; `files` are the digests of what it returned."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([*self._words, call, NAME]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    return registry


@pytest.fixture
def site(registry: Registry) -> Iterator[Proxy]:
    with running(registry.store.root, Settings(origins=("*",))) as server, proxy(server.url) as spoiled:
        yield spoiled


@pytest.fixture
def browser(site: Proxy, tmp_path: Path) -> Iterator[Browser]:
    built = client_package.build(tmp_path / "package")
    (built / "dist" / "page.html").write_text("<!doctype html><title>An app</title>")
    script = Path(__file__).with_name("web_client.mjs")
    command = ["node", script, client_package.TOOLS / "node_modules", str(CHROMIUM), tmp_path / "profile"]
    with (
        serving(built / "dist") as page,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        yield Browser(process, page, site.url)
        assert process.stdin is not None
        process.stdin.close()


def test_a_download_that_broke_off_goes_on(
    registry: Registry, site: Proxy, browser: Browser, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", SIZE)
    cut, model = at(0, "faltering"), files["model_int8.onnx"].removeprefix("sha256:")
    site.plan = lambda method, path: (cut(method, path) or "reset") if model in path else None
    assert browser("update")["error"] == "remote"
    site.plan = lambda method, path: None
    assert browser("update") == {"version": "1.0.0", "files": files}
    asked = [
        headers["Range"] for (_, path), headers in zip(site.seen, site.headers, strict=True) if model in path
    ]
    assert asked[0] == f"bytes=0-{SIZE - 1}"
    assert asked[-1] == f"bytes={SIZE // 2}-{SIZE - 1}"


def test_a_flipped_byte_is_refused_and_the_current_release_stays(
    registry: Registry, site: Proxy, browser: Browser, tmp_path: Path
) -> None:
    first = {"version": "1.0.0", "files": publish(registry, tmp_path / "1", "1.0.0", SIZE)}
    site.plan = lambda method, path: "garbled" if "/blobs/" in path else None
    assert browser("update")["error"] == "integrity"
    assert browser("slot") is None
    site.plan = lambda method, path: None
    assert browser("update") == first
    publish(registry, tmp_path / "2", "1.1.0", SIZE)
    site.plan = lambda method, path: "garbled" if "/blobs/" in path else None
    assert browser("update")["error"] == "integrity"
    assert browser("slot") == first


def test_offline_and_rollback(registry: Registry, site: Proxy, browser: Browser, tmp_path: Path) -> None:
    first = {"version": "1.0.0", "files": publish(registry, tmp_path / "1", "1.0.0", SIZE)}
    assert browser("update") == first
    second = {"version": "1.1.0", "files": publish(registry, tmp_path / "2", "1.1.0", SIZE)}
    assert browser("update") == second
    site.plan = lambda method, path: "reset"
    assert browser("update") == second
    assert browser("rollback") == first
    site.plan = lambda method, path: None
    assert browser("update") == first, "what was rolled back is not taken again"
