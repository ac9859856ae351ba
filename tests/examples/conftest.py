"""The examples are scripts with modules beside them; the clients of devices are called as apps call them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import jvm
from support.registries.for_devices import publish
from support.servers import static, web_client
from support.servers.faults import Proxy, proxy

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry

NODE = shutil.which("node")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    return registry


needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
CLIENTS = (
    pytest.param("web", marks=needs_node),
    pytest.param("jvm", marks=[pytest.mark.more, pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)]),
)


def running(name: str) -> AbstractContextManager[web_client.Call]:
    """A client in one process for many calls; `node` is the web one with the `fetch` for Node."""
    return jvm.running() if name == "jvm" else web_client.running(str(NODE), name)


@pytest.fixture(scope="session")
def clients() -> Iterator[Callable[[str], web_client.Call]]:
    """Each client by its name, started once for all tests."""
    with ExitStack() as started:
        yield cache(lambda name: started.enter_context(running(name)))


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, clients: Callable[[str], web_client.Call]) -> web_client.Call:
    """Each client in turn."""
    return clients(request.param)


@pytest.fixture
def release(registry: Registry, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Publish a version, and move a channel to it; returns the digests of the files that a device downloads."""

    def release(version: str, *size: int, channel: str | None = None, **more: Any) -> dict[str, str]:
        files = publish(registry, tmp_path / version, version, *size, **more)
        if channel is not None:
            registry.tag(f"acme/pii:{version}", channel)
        return files

    return release


@pytest.fixture
def site(registry: Registry) -> Iterator[Proxy]:
    """The registry on a static server, behind a proxy that can spoil answers."""
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture
def call(client: web_client.Call, site: Proxy, tmp_path: Path) -> Callable[..., Any]:
    """Call the client about acme/pii, with the store that the last call left or one of another name."""
    return lambda name, *words, store="store": client(site.url, tmp_path / store, name, "acme/pii", *words)
