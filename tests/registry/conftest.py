"""Drafts made of a few bytes: the registry does not look inside files; and a bucket, with or without a proxy before it."""

from collections.abc import Callable, Iterator

import pytest
from support.registries import parts
from support.registries.drafts import write_draft
from support.registries.home import Home
from support.servers import static
from support.servers.faults import Proxy, proxy

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Release
from onnxreg.schema.log.state import SEGMENT_LINES
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture
def make_draft(tmp_path) -> MakeDraft:
    """Make a draft with two artifacts and two companions; `seed` decides the bytes of the weights."""
    count = 0

    def make(name: str = "acme/pii", seed: str = "a", size: int = 100) -> Draft:
        nonlocal count
        count += 1
        return write_draft(tmp_path / f"workspace{count}", name, seed, size)

    return make


@pytest.fixture
def registry(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def other(tmp_path) -> Home:
    return Home(tmp_path / "other")


@pytest.fixture(scope="session")
def sealed_template(isolated_user, tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("sealed") / "home")
    for seed in "ab":
        home.make(seed=seed)
    for number in range(SEGMENT_LINES + 3):
        home.tag(f"acme/pii:0.1.{number % 2}", "stable")
    return home


@pytest.fixture
def sealed(sealed_template, tmp_path) -> Home:
    """A model of two versions, whose channel moved so often that the log has a sealed segment."""
    return sealed_template.copied(tmp_path / "home")


@pytest.fixture
def whole(registry, tmp_path) -> Home:
    """Where every artifact of version 1.0.0 is; see `support.registries.parts`."""
    registry.add(parts.draft(tmp_path / "draft"), "1.0.0")
    return registry


@pytest.fixture
def site(registry, monkeypatch) -> Iterator[Proxy]:
    """What serves the registry's directory, behind a proxy that counts."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture
def bucket_url(ministack, monkeypatch) -> str:
    """The URL of an empty prefix at MiniStack."""
    ministack.enter(monkeypatch)
    return ministack.fresh()


@pytest.fixture
def s3_proxy(ministack, bucket_url, monkeypatch) -> Iterator[Proxy]:
    """A proxy in front of MiniStack, through which every client goes whose URL names no endpoint."""
    with proxy(ministack.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture(scope="session")
def pushed_model(ministack, tmp_path_factory) -> tuple[str, Release]:
    """The URL of a registry at MiniStack, for reading only, and the version that was pushed to it."""
    home, url = tmp_path_factory.mktemp("pushed"), ministack.fresh()
    with pytest.MonkeyPatch.context() as patch:
        ministack.enter(patch)
        registry = Registry(home / "home")
        made = registry.add(write_draft(home / "workspace", "acme/pii", "a", 100))
        registry.push("acme/pii", url)
    return url, made
