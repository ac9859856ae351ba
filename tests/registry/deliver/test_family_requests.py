"""What hundreds of small files cost at a remote: a family of 320 heads is pushed, one head is updated, requests are counted."""

import pytest
from support.registries.family_drafts import NAME, VARIANTS, write_family
from support.registries.home import Home
from support.servers.faults import Proxy

HEADS = 320
INT8 = VARIANTS[-1:]
BLOBS = HEADS + 4
"""The heads, the backbone, the layout, the manifest, and the set of operators that all of them need."""
AROUND = 30
"""Requests of a first push beside those of its blobs: what may be written there is tried, once."""


@pytest.fixture(scope="module")
def crops(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Two versions, one head apart, of one variant."""
    root = tmp_path_factory.mktemp("crops")
    registry = Home(root / "home")
    registry.add(write_family(root / "one", HEADS, variants=INT8), "1.0.0")
    registry.add(write_family(root / "two", HEADS, {"species001": "b"}, variants=INT8), "1.1.0")
    return registry


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
