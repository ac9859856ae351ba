"""The package in a service worker: it downloads, verifies and keeps a model for its pages."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from e2e.test_web_client import serving
from support.registries.for_devices import publish
from support.servers import client_package

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = Path(__file__).with_name("service_worker.mjs")
WORKER = """
import { browserStore, preset, Registry, sha256 } from './client/onnxreg.js'

addEventListener('message', async ({ ports: [port] }) => {
  try {
    const registry = new Registry(`${location.origin}/registry`, browserStore('models'), { delays: [] })
    const release = await registry.update('acme/pii', { device: preset('ort-web-1.30') })
    const bytes = await registry.read(release, release.artifact.path)
    port.postMessage({ version: release.version, digest: await sha256(bytes), page: typeof document })
  } catch (error) {
    port.postMessage({ error: String(error) })
  }
})
"""

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"),
]


def test_a_service_worker_has_the_model_for_its_pages(tmp_path: Path) -> None:
    built = client_package.build(tmp_path / "package")
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    publish(registry, tmp_path / "draft", "1.0.0", 10_000_000)
    model = registry.resolve("acme/pii").artifact
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<!doctype html><title>An app</title>")
    (site / "worker.js").write_text(WORKER)
    (site / "client").symlink_to(built / "dist")
    (site / "registry").symlink_to(registry.store.root)
    command = ["node", DRIVER, client_package.TOOLS / "node_modules", CHROMIUM, tmp_path / "profile"]

    with serving(site) as url:

        def answer() -> Any:
            done = subprocess.run(
                [*map(str, command), url], capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        expected = {"version": "1.0.0", "digest": model.digest.hex, "page": "undefined"}
        assert answer() == expected
        shutil.rmtree(registry.store.root / "blobs")
        assert answer() == expected, "the second start of the browser reads its store"
