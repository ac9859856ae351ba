"""Registries on file systems of fsspec: its own in memory, and a directory as sftp has them (write, then rename)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import StoreContract, put
from support.registries import owner

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.collect import collect
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store import fsspec_store
from onnxreg.registry.store.fsspec_store import FileStore
from onnxreg.registry.store.protocol import RegistryStore, open_registry
from onnxreg.schema.core.errors import InputError, RemoteError
from onnxreg.schema.manifest.draft import Draft

fsspec = pytest.importorskip("fsspec")
MakeDraft = Callable[..., Draft]


def memory(single_writer: bool = True) -> FileStore:
    root = f"/{os.urandom(8).hex()}"
    return FileStore(fsspec.filesystem("memory"), root, f"memory:/{root}", single_writer)


def directory(root: Path, single_writer: bool = True) -> FileStore:
    return FileStore(fsspec.filesystem("file"), str(root), f"sftp://host{root}", single_writer)


class TestInMemory(StoreContract):
    @pytest.fixture
    def remote(self) -> RegistryStore:
        return open_registry(memory(), create=True)


class TestRenaming(StoreContract):
    @pytest.fixture
    def remote(self, tmp_path: Path) -> RegistryStore:
        return open_registry(directory(tmp_path / "there"), create=True)


def test_nothing_is_written_without_the_promise(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="two writers would lose") as error:
        open_registry(directory(tmp_path / "there", single_writer=False), create=True)
    assert error.value.hint.endswith("?single_writer=yes")
    assert not (tmp_path / "there").exists()
    put(open_registry(directory(tmp_path / "there"), create=True), b"blob")
    reader = open_registry(directory(tmp_path / "there", single_writer=False), create=False)
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
def test_errors_of_a_driver_become_one_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = directory(tmp_path / "there")
    open_registry(store, create=True)

    def fail(*_: Any, **__: Any) -> None:
        raise EOFError("the driver is confused")

    if call == "readinto":
        monkeypatch.setattr("fsspec.implementations.local.LocalFileOpener.readinto", fail, raising=False)
    else:
        monkeypatch.setattr(store._files, call, fail)
    with pytest.raises(RemoteError, match=r"sftp://.* failed: the driver"):
        READS[call](store)


def test_what_is_read_is_bounded_and_what_is_listed_is_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = directory(tmp_path / "there")
    open_registry(store, create=True)
    (tmp_path / "there/local/tmp").mkdir(parents=True, exist_ok=True)
    (tmp_path / "there/local/tmp/left").write_bytes(b"of a killed command")
    (tmp_path / "there/link").symlink_to("registry.json")
    assert [file.path for file in store.list("") if file.size is not None] == ["registry.json"]
    monkeypatch.setattr(fsspec_store, "MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(RemoteError, match="more than 10 bytes"):
        store.get("registry.json")


def test_a_place_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "photo.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match="not empty"):
        open_registry(directory(tmp_path / "there"), create=True)


def test_push_collect_verify_pull(
    registry: Registry, make_draft: MakeDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By URL, with the driver of a directory in the place of one that needs a server."""
    url = (tmp_path / "there").as_uri().replace("file:", "local:")
    monkeypatch.setattr(fsspec_store, "PROTOCOLS", ("local",))
    registry.add(make_draft())
    registry.push("acme/pii", f"{url}?single_writer=yes")
    remote = open_registry(directory(tmp_path / "there"), create=False)
    with remote.push() as push:
        push.put_file(Path(__file__))
    assert len(collect(remote, patience=0).freed) == 1
    assert not verify(remote).damages
    reader = Registry(tmp_path / "reader")
    reader.pull("acme/pii", url)
    assert not owner.verify(reader).damages


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
def test_bad_input(
    registry: Registry, capfd: pytest.CaptureFixture[str], url: str, status: int, message: str
) -> None:
    assert main(["--registry", str(registry.store.root), "pull", "acme/pii", url]) == status
    said = capfd.readouterr().err
    assert message in said
    assert "secret" not in said
