"""The client in a real browser, with its store in IndexedDB: a registry behind `reg serve`, and a proxy that spoils it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries.for_devices import publish
from support.servers.browser import browsing, needs_chromium, serving
from support.servers.client_package import TOOLS, build
from support.servers.faults import Proxy, proxy
from support.servers.regserve import running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings

pytestmark = [pytest.mark.more, needs_chromium]
NAME, SIZE = "acme/pii", 2_000_000
MODULES = TOOLS / "node_modules"
CALL = """async (url, store, call, name) => {
  const { browserStore, Registry, sha256 } = await import('/onnxreg.js')
  const stores = { browserStore, ...(await import('/browser-stores.js')) }
  const registry = new Registry(url, stores[store]('models'), { delays: [10] })
  try {
    const found = await registry[call](name)
    const release = 'current' in found ? found.current : (found.release ?? found)
    if (!release) return null
    const digest = async ({ path }) => [path, `sha256:${await sha256(await registry.read(release, path))}`]
    return { version: release.version, files: Object.fromEntries(await Promise.all(release.files.map(digest))) }
  } catch (error) {
    return { error: error.family ?? String(error) }
  }
}"""
WORKER = """
import { browserStore, preset, Registry, sha256 } from './client/onnxreg.js'

addEventListener('message', async ({ ports: [port] }) => {
  const registry = new Registry(`${location.origin}/registry`, browserStore('models'), { delays: [] })
  const { release } = await registry.update('acme/pii', { device: preset('ort-web-1.30') })
  const bytes = await registry.read(release, release.artifact.path)
  port.postMessage({ version: release.version, digest: await sha256(bytes), page: typeof document })
})
"""
ASK_THE_WORKER = """async () => {
  await navigator.serviceWorker.register('/worker.js', { type: 'module' })
  const { active } = await navigator.serviceWorker.ready
  const { port1, port2 } = new MessageChannel()
  const answered = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)))
  active.postMessage('update', [port2])
  return answered
}"""


@pytest.fixture
def site(registry: Registry) -> Iterator[Proxy]:
    with running(registry.store.root, Settings(origins=("*",))) as server, proxy(server.url) as spoiled:
        yield spoiled


@pytest.fixture(params=["browserStore", "opfsStore", pytest.param("cacheStore", marks=pytest.mark.large)])
def browser(request: pytest.FixtureRequest, site: Proxy, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Call a method of the client's registry in a new load of the page."""
    dist = build(tmp_path / "package") / "dist"
    (dist / "page.html").write_text("<!doctype html><title>An app</title>")
    with serving(dist) as page, browsing(MODULES, tmp_path / "profile") as evaluate:
        yield lambda call: evaluate(f"{page}/page.html", CALL, site.url, request.param, call, NAME)


def test_spoiled_bytes_are_refused_and_a_release_stays_offline_and_goes_back(
    registry, site, browser, tmp_path
):
    def spoil(fault: str | None, part: str = "") -> None:
        site.plan = lambda method, path: fault if part in path else None

    first = {"version": "1.0.0", "files": publish(registry, tmp_path / "1", "1.0.0", SIZE)}
    spoil("garbled", "/blobs/")
    assert browser("update")["error"] == "integrity"
    assert browser("slot") is None
    spoil(None)
    assert browser("update") == first
    second = {"version": "1.1.0", "files": publish(registry, tmp_path / "2", "1.1.0", SIZE)}
    spoil("garbled", "/blobs/")
    assert browser("update")["error"] == "integrity"
    assert browser("slot") == first
    spoil(None)
    assert browser("update") == second
    spoil("reset")
    assert browser("update") == second
    assert browser("rollback") == first
    spoil(None)
    assert browser("update") == first, "what was rolled back is not taken again"


def test_a_service_worker_has_the_model_for_its_pages(registry, tmp_path):
    publish(registry, tmp_path / "draft", "1.0.0", 10_000_000)
    model = registry.resolve(NAME).artifact
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<!doctype html><title>An app</title>")
    (site / "worker.js").write_text(WORKER)
    (site / "client").symlink_to(build(tmp_path / "package") / "dist")
    (site / "registry").symlink_to(registry.store.root)
    expected = {"version": "1.0.0", "digest": model.digest.hex, "page": "undefined"}
    with serving(site) as url:
        for _ in range(2):
            with browsing(MODULES, tmp_path / "profile") as evaluate:
                assert evaluate(url, ASK_THE_WORKER) == expected
            shutil.rmtree(registry.store.root / "blobs", ignore_errors=True)
