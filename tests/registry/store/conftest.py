"""Places for a registry: a Hub, and a bucket behind a proxy."""

from collections.abc import Iterator

import pytest
from support.registries.bucket import Bucket
from support.servers import hub as emulator


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[emulator.Hub]:
    """An empty Hub that this process, and those that it starts, are logged in to."""
    from huggingface_hub.utils import close_session

    from onnxreg.registry.store import hub_client

    with emulator.running(tmp_path / "hub") as server:
        server.enter(monkeypatch, tmp_path / "hf")
        monkeypatch.setattr(hub_client, "MAX_WAIT_SECONDS", 0.02)
        yield server
        close_session()


@pytest.fixture
def bucket(bucket_url, s3_proxy, ministack) -> Bucket:
    return Bucket(bucket_url, s3_proxy, ministack)
