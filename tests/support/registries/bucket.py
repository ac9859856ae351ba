"""What tests ask of a registry in a bucket, past every proxy; and many processes that push to it at once."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from onnxreg.registry.log.log import load
from onnxreg.registry.maintain import verify
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store.bucket import BucketStore
from onnxreg.registry.store.protocol import RegistryStore
from support.servers.faults import Proxy
from support.servers.s3servers import Server


def direct(url: str, server: Server) -> RegistryStore:
    """The registry at a URL, with no proxy in between."""
    return open_url(f"{url}?endpoint={server.endpoint}")


def finished(url: str, server: Server) -> list[str]:
    """What lies below a URL; blobs without `blobs/`."""
    store = BucketStore(f"{url}?endpoint={server.endpoint}")
    return [file.path.removeprefix("blobs/") for file in store.list("")]


def versions(remote: RegistryStore) -> set[str]:
    return {str(version) for name in remote.names() for version in load(remote, name).versions}


def damages(remote: RegistryStore) -> list[str]:
    """What is wrong, but for the scratch object that a probe leaves where its delete is not answered."""
    return [damage.name for damage in verify(remote).damages if "gc/probe-" not in damage.name]


def sent_again(seen: list[tuple[str, str]], before: list[str]) -> list[str]:
    """Of the blobs that were there before: those that these requests sent once more."""
    paths = [path.partition("?")[0] for method, path in seen if method == "PUT" and "/blobs/" in path]
    return [path for path in paths if path.partition("/blobs/")[2] in before]


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


PUSHER = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

home, number, url = sys.argv[1:]
registry = Registry(Path(home))
with registry.workspace() as workspace:
    (workspace / "model.onnx").write_text(number * 1000)
    (workspace / "shared.json").write_text("{}")
    registry.add(Draft("acme/busy", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)), f"0.{number}.0")
registry.push("acme/busy", url)
"""


def push_at_once(url: str, directory: Path, processes: int = 8) -> None:
    """Each process pushes another version of one model."""
    running = [
        subprocess.Popen([sys.executable, "-c", PUSHER, directory / f"home{number}", str(number), url])
        for number in range(processes)
    ]
    assert [process.wait() for process in running] == [0] * processes


def assert_nothing_lost(remote: RegistryStore, processes: int = 8) -> None:
    """Every version of `push_at_once` is there, once, and nothing else is left."""
    ledger = load(remote, "acme/busy")
    assert {str(version) for version in ledger.versions} == {f"0.{number}.0" for number in range(processes)}
    assert ledger.seq == processes
    assert not verify(remote).damages
    assert not [file.path for file in remote.files() if file.path.startswith("gc/")]
