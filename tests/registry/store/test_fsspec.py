"""Registries on file systems of fsspec: its own in memory, and a directory as sftp has them (write, then rename)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import put
from support.registries import owner

from onnxreg.cli.main import main
from onnxreg.registry.log.collect import collect
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store import fsspec_store
from onnxreg.registry.store.fsspec_store import FileStore
from onnxreg.registry.store.protocol import RegistryStore, open_registry
from onnxreg.schema.core.errors import InputError, RemoteError

fsspec = pytest.importorskip("fsspec")


def directory(root: Path, single_writer: bool = True) -> FileStore:
    return FileStore(fsspec.filesystem("file"), str(root), f"sftp://host{root}", single_writer)


def opened(root: Path, single_writer: bool = True, create: bool = False) -> RegistryStore:
    return open_registry(directory(root, single_writer), create=create)


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
    "readinto": lambda store: store.open("registry.json").read(),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("call", READS)
def test_errors_of_a_driver_become_one_family(there, monkeypatch, call):
    opened(there, create=True)

    def fail(*_: Any, **__: Any) -> None:
        raise EOFError("the driver is confused")

    if call == "readinto":
        monkeypatch.setattr("fsspec.implementations.local.LocalFileOpener.readinto", fail, raising=False)
    else:
        monkeypatch.setattr(f"fsspec.implementations.local.LocalFileSystem.{call}", fail)
    with pytest.raises(RemoteError, match=r"sftp://.* failed: the driver"):
        READS[call](directory(there))


def test_what_is_read_is_bounded_and_what_is_listed_is_the_tree(there, monkeypatch):
    opened(there, create=True)
    (there / "local/tmp").mkdir(parents=True, exist_ok=True)
    (there / "local/tmp/left").write_bytes(b"of a killed command")
    (there / "link").symlink_to("registry.json")
    assert [file.path for file in directory(there).list("") if file.size is not None] == ["registry.json"]
    monkeypatch.setattr(fsspec_store, "MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(RemoteError, match="more than 10 bytes"):
        directory(there).get("registry.json")


def test_a_place_that_holds_something_else_is_left_alone(there):
    there.mkdir()
    (there / "photo.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match="not empty"):
        opened(there, create=True)


def test_push_collect_verify_pull(registry, other, make_draft, there, monkeypatch):
    """By URL, with the driver of a directory in the place of one that needs a server."""
    url = there.as_uri().replace("file:", "local:")
    monkeypatch.setattr(fsspec_store, "PROTOCOLS", ("local",))
    registry.add(make_draft())
    registry.push("acme/pii", f"{url}?single_writer=yes")
    remote = opened(there)
    with remote.push() as push:
        push.put_file(Path(__file__))
    assert len(collect(remote, patience=0).freed) == 1
    assert not verify(remote).damages
    other.pull("acme/pii", url)
    assert not owner.verify(other).damages


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
    ],
)
def test_bad_input(registry, capfd, url, status, message):
    assert main(["--registry", str(registry.store.root), "pull", "acme/pii", url]) == status
    said = capfd.readouterr().err
    assert message in said
    assert "secret" not in said
