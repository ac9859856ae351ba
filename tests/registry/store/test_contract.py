"""The contract of a store, for each kind of store; servers that people run have habits of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import ObjectContract, StoreContract, put
from support.registries import memory
from support.sampling import sampled
from support.servers import s3servers
from support.servers.hub import TOKEN

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.maintain import verify
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import fsspec_store
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.fsspec_store import FileStore
from onnxreg.registry.store.hub import open_hub
from onnxreg.registry.store.protocol import BlobKey, RegistryStore, open_registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, RemoteError


def driven(kind: str, root: object, single_writer: bool = True) -> FileStore:
    """A store on a file system of fsspec."""
    import fsspec

    url = f"sftp://host{root}" if kind == "file" else f"{kind}:/{root}"
    return FileStore(lambda: (fsspec.filesystem(kind), str(root)), url, single_writer)


def opened(root: Path, single_writer: bool = True, create: bool = False) -> RegistryStore:
    return open_registry(driven("file", root, single_writer), create=create)


STORES: dict[str, Callable[[Path], RegistryStore]] = {
    "memory": lambda root: memory.remote(),
    "directory": lambda root: DirectoryRegistry.create(root / "registry"),
    "memory of fsspec": lambda root: open_registry(driven("memory", f"/{os.urandom(8).hex()}"), create=True),
    "write, then rename": lambda root: opened(root / "there", create=True),
    "hub": lambda root: open_hub("hf://acme/models", create=True),
}
BUCKETS = ["ministack", *(pytest.param(name, marks=pytest.mark.large) for name in ("seaweedfs", "ceph"))]
"""Ceph 16 knows an ETag without the quotes that it gives it with, and no checksums."""


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
class TestStores(StoreContract):
    @pytest.fixture(params=STORES)
    def remote(self, request, tmp_path) -> RegistryStore:
        if request.param == "hub":
            request.getfixturevalue("hub")
        return STORES[request.param](tmp_path)


class TestBuckets(ObjectContract):
    @pytest.fixture(params=BUCKETS)
    def remote(self, request, monkeypatch) -> RegistryStore:
        server: s3servers.Server = request.getfixturevalue(request.param)
        server.enter(monkeypatch)
        return open_url(server.fresh(), create=True)

    def test_a_batch_is_deleted(self, remote):
        blobs = [b"%d" % number for number in range(20)]
        put(remote, *blobs)
        remote.delete([BlobKey(Digest.of(blob)).path for blob in [*blobs, b"absent"]])
        assert remote.has(map(Digest.of, blobs)) == set()


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
@pytest.mark.parametrize("kind", sampled(["hub", "s3"], 2))
def test_the_command_line(request, kind, registry, other, tmp_path, capfd):
    place = request.getfixturevalue("hub" if kind == "hub" else "bucket_url")
    url = "hf://acme/models" if kind == "hub" else place
    registry.make()

    def reg(home: Registry, *words: str) -> Any:
        capfd.readouterr()
        assert main(["--registry", str(home.store.root), *words, "--json"]) == 0
        out, err = capfd.readouterr()
        assert TOKEN not in out + err
        return json.loads(out)

    assert registry.reg("remote", "add", "origin", url) == 0
    assert reg(registry, "push", "acme/pii:0.1.0")["events"] == 1
    again = reg(registry, "push", "acme/pii:0.1.0")
    assert (again["remote"], again["blobs"]) == (url, 0)
    found = reg(registry, "resolve", "acme/pii", "--format", "onnx-int8", "--remote", url)
    assert found["version"] == "0.1.0"
    words = ["--registry", other.store.root, "pull", "acme/pii", url, "--output", tmp_path / "out"]
    done = subprocess.run([sys.executable, "-m", "onnxreg.cli", *words], capture_output=True, check=True)
    assert done.stderr == b"" and TOKEN.encode() not in done.stdout
    assert (tmp_path / "out" / "model.onnx").read_bytes() == b"fp32 a " * 100
    assert reg(other, "verify")["ok"] and reg(registry, "doctor", url)["ok"]


def test_a_blob_under_a_key_that_was_condemned_since_is_placed_again(tmp_path):
    remote, key = DirectoryRegistry.create(tmp_path), BlobKey(Digest.of(b"blob"))
    with remote.push() as push:
        push.put(BytesIO(b"blob"))
        push.flush()
        push.avoid({key})
        push.publish("m", b"1\n", None)
    names = {path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    assert names == {key.digest.hex, f"{key.digest.hex}.1"}


@pytest.fixture
def there(tmp_path) -> Path:
    return tmp_path / "there"


def test_nothing_is_written_without_the_promise(there):
    with pytest.raises(RemoteError, match="two writers would lose") as error:
        opened(there, single_writer=False, create=True)
    assert error.value.hint.endswith("?single_writer=yes")
    assert not there.exists()
    put(opened(there, create=True), b"blob")
    reader = opened(there, single_writer=False)
    assert reader.read_index("m") is not None
    with pytest.raises(RemoteError, match="two writers would lose"):
        put(reader, b"other")


READS: dict[str, Callable[[FileStore], object]] = {
    "cat_file": lambda store: store.get("registry.json"),
    "open": lambda store: store.open("registry.json"),
    "info": lambda store: store.has(["registry.json"]),
    "find": lambda store: list(store.list("")),
    "read": lambda store: store.open("registry.json").read(),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("call", READS)
def test_errors_of_a_driver_become_one_family(there, monkeypatch, call):
    opened(there, create=True)

    def fail(*_: Any, **__: Any) -> None:
        raise EOFError("the driver is confused")

    place = f"fsspec.implementations.local.{'LocalFileOpener' if call == 'read' else 'LocalFileSystem'}"
    monkeypatch.setattr(f"{place}.{call}", fail, raising=False)
    with pytest.raises(RemoteError, match=r"sftp://.* failed: the driver"):
        READS[call](driven("file", there))


def test_what_is_read_is_bounded_and_what_is_listed_is_the_tree(there, monkeypatch):
    opened(there, create=True)
    (there / "local/tmp").mkdir(parents=True, exist_ok=True)
    (there / "local/tmp/left").write_bytes(b"of a killed command")
    (there / "link").symlink_to("registry.json")
    assert [file.path for file in driven("file", there).list("") if file.size is not None] == [
        "registry.json"
    ]
    monkeypatch.setattr(fsspec_store, "MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(RemoteError, match="more than 10 bytes"):
        driven("file", there).get("registry.json")


def test_a_place_that_holds_something_else_is_left_alone(there):
    there.mkdir()
    (there / "photo.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match="not empty"):
        opened(there, create=True)


def test_push_verify_pull(registry, other, there, monkeypatch):
    """By URL, with the driver of a directory in the place of one that needs a server."""
    url = there.as_uri().replace("file:", "local:")
    monkeypatch.setattr(fsspec_store, "PROTOCOLS", ("local",))
    registry.make()
    registry.push("acme/pii", f"{url}?single_writer=yes")
    assert not verify(opened(there)).damages
    other.pull("acme/pii", url)
    other.check()
    monkeypatch.setattr("fsspec.core.url_to_fs", None)  # nothing connects any more
    assert other.reg("resolve", "acme/pii", "--remote", url, "--offline") == 0
    assert other.reg("resolve", "acme/pii", "--remote", url) == 6


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        ("sftp://user:secret@host/x", 2, "the URL holds credentials"),
        ("smb://host/x?token=secret", 2, "the URL holds credentials"),
        ("smb://host/x?colour=red", 2, "has an unknown option"),
        ("ftp://host/x", 2, "no backend for ftp:"),
        (f"/tmp/{'x' * 256}", 2, "is too long for a path"),
        ("/tmp" + "/x" * 3000, 2, "is too long for a path"),
        ("smb://host/x", 9, "smb:// needs a driver that is not installed"),
        ("abfs://host/x", 2, "no backend for abfs:"),
        ("https://user:secret@models.example/x", 2, "the URL holds credentials"),
        ("http://models.example/x", 2, "write https://"),
        *(
            (f"https://{rest}", 2, "not the URL of a registry")
            for rest in ("/x", "models.example:99999", "a b/x", "a/ä", "a/ b")
        ),
    ],
)
def test_bad_input(registry, capfd, url, status, message):
    assert registry.reg("pull", "acme/pii", url) == status
    said = capfd.readouterr().err
    assert message in said
    assert "secret" not in said
