"""Drafts made of a few bytes: the registry does not look inside files; and S3 servers, each started once when needed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.registries.drafts import write_draft
from support.servers import ceph as ceph_server
from support.servers import s3servers
from support.servers.faults import Proxy, proxy

from onnxreg.registry import Registry
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.store.net import retry
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture
def make_draft(tmp_path: Path) -> MakeDraft:
    """Make a draft with two artifacts and two companions; `seed` decides the bytes of the weights."""
    count = 0

    def make(name: str = "acme/pii", seed: str = "a", size: int = 100) -> Draft:
        nonlocal count
        count += 1
        return write_draft(tmp_path / f"workspace{count}", name, seed, size)

    return make


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def other(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "other")


@pytest.fixture(scope="session")
def ministack_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    """MiniStack with its root key."""
    with s3servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack(ministack_root: s3servers.Server) -> s3servers.Server:
    """MiniStack with the key of an IAM user, whose signature it checks (it does not check the root key's)."""
    return s3servers.Server(ministack_root.endpoint, *s3servers.user(ministack_root, "tester", ["s3:*"]))


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def juicefs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with ceph_server.ceph(tmp_path_factory.mktemp("ceph")) as server:
        yield server


@pytest.fixture
def there(ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty prefix at MiniStack."""
    ministack.enter(monkeypatch)
    return ministack.fresh()


@pytest.fixture
def behind(ministack: s3servers.Server, there: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of MiniStack, through which every client goes whose URL names no endpoint."""
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.001)
    with proxy(ministack.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture(scope="session")
def delivered(
    ministack: s3servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, PublishedVersion]:
    """The URL of a registry at MiniStack, for reading only, and the version that was pushed to it."""
    home, url = tmp_path_factory.mktemp("delivered"), ministack.fresh()
    with pytest.MonkeyPatch.context() as patch:
        ministack.enter(patch)
        registry = Registry(home / "home")
        made = registry.add(write_draft(home / "workspace", "acme/pii", "a", 100))
        registry.push("acme/pii", url)
    return url, made
