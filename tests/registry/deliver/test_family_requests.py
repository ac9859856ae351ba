"""What hundreds of small files cost at a remote: a family of 320 heads is pushed, one head is updated, requests are counted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session
from support.registries.family_drafts import NAME, VARIANTS, write_family
from support.registries.home import Home
from support.servers.faults import Proxy
from support.servers.hub import TOKEN, Hub, running

HEADS = 320
INT8 = VARIANTS[-1:]
BLOBS = HEADS + 4
"""The heads, the backbone, the layout, the manifest, and the set of operators that all of them need."""
AROUND = 30
"""Requests of a first push beside those of its blobs: what may be written there is tried, once."""

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.fixture(scope="module")
def crops(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Two versions, one head apart, of one variant."""
    root = tmp_path_factory.mktemp("crops")
    registry = Home(root / "home")
    registry.add(write_family(root / "one", HEADS, variants=INT8), "1.0.0")
    registry.add(write_family(root / "two", HEADS, {"species001": "b"}, variants=INT8), "1.1.0")
    return registry


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as found:
        for name, value in (
            ("HF_ENDPOINT", found.endpoint),
            ("HF_TOKEN", TOKEN),
            ("HF_HUB_DISABLE_XET", "1"),
        ):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        yield found
        close_session()


def test_requests_at_s3(crops: Home, bucket_url: str, s3_proxy: Proxy) -> None:
    """One for each new blob, and as many around them whether there are two or hundreds: what is there is listed, not asked for."""
    assert crops.push(f"{NAME}:1.0.0", bucket_url).blobs == BLOBS
    assert s3_proxy.requests("PUT", "/blobs/") == BLOBS
    assert len(s3_proxy.seen) <= BLOBS + AROUND
    s3_proxy.seen.clear()
    assert crops.push(f"{NAME}:1.1.0", bucket_url).blobs == 2
    assert s3_proxy.requests("PUT", "/blobs/") == 2
    assert s3_proxy.requests("PUT", "/index/") == 1
    assert s3_proxy.requests("PUT") == 2 + 1 + s3_proxy.requests("PUT", "/gc/intents/")
    assert len(s3_proxy.seen) <= 15
    s3_proxy.seen.clear()
    assert crops.push(f"{NAME}:1.1.0", bucket_url).blobs == 0
    assert len(s3_proxy.seen) <= 2


@pytest.mark.more
def test_requests_at_the_hub(crops: Home, hub: Hub) -> None:
    """A push is one commit, after one that makes the registry; a file in LFS is one upload and one question whether it arrived."""

    def asked(part: str) -> int:
        return sum(part in line for line in hub.requests)

    assert crops.push(f"{NAME}:1.0.0", "hf://acme/models").blobs == BLOBS
    assert asked("/commit/") == 2
    assert asked("PUT /") == asked("/verify/") == BLOBS
    assert len(hub.requests) <= 2 * BLOBS + AROUND
    hub.requests.clear()
    assert crops.push(f"{NAME}:1.1.0", "hf://acme/models").blobs == 2
    assert asked("/commit/") == 1
    assert asked("PUT /") == asked("/verify/") == 2
    assert len(hub.requests) <= 15
    hub.requests.clear()
    assert crops.push(f"{NAME}:1.1.0", "hf://acme/models").blobs == 0
    assert len(hub.requests) <= 3
