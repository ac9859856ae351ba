"""Places for a registry: a Hub, and a bucket behind a proxy."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.registries.bucket import damages, direct, finished, sent_again, versions
from support.servers import hub as emulator
from support.servers.faults import Proxy
from support.servers.s3servers import Server

from onnxreg.registry.store.protocol import RegistryStore


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[emulator.Hub]:
    """An empty Hub that this process, and those that it starts, are logged in to."""
    from huggingface_hub.utils import close_session

    from onnxreg.registry.store import hub_client

    with emulator.running(tmp_path / "hub") as server:
        server.enter(monkeypatch, tmp_path / "hf")
        monkeypatch.setattr(hub_client, "MAX_WAIT_SECONDS", 0.02)
        yield server
        close_session()


@dataclass(frozen=True)
class Bucket:
    """The URL of an empty prefix at MiniStack, the proxy before it, and what is there past that proxy."""

    url: str
    proxy: Proxy
    server: Server

    @property
    def remote(self) -> RegistryStore:
        return direct(self.url, self.server)

    @property
    def keys(self) -> list[str]:
        return finished(self.url, self.server)

    @property
    def uploads(self) -> list[str]:
        """Keys whose upload in parts was neither completed nor given up."""
        return self.server.uploads(self.url)

    def put(self, key: str, body: bytes) -> None:
        self.server.put(self.url, key, body)

    def has(self, *expected: str) -> bool:
        """True if these are the versions, and nothing is damaged."""
        return versions(self.remote) == set(expected) and damages(self.remote) == []

    def sent_again(self, before: list[str]) -> list[str]:
        return sent_again(self.proxy.seen, before)


@pytest.fixture
def bucket(bucket_url: str, s3_proxy: Proxy, ministack: Server) -> Bucket:
    return Bucket(bucket_url, s3_proxy, ministack)
