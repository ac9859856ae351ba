"""Registries in object stores: what they are, and which are written to."""

import json
from pathlib import Path

import pytest
from conformance.contract import put

from onnxreg.registry.store.memory import MemoryStore, memory_remote
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.promises import CasGuardedStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, RemoteError


class Careless(MemoryStore):
    """Accepts every condition and ignores it."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.objects[key] = data
        return True


def test_a_registry_of_a_newer_build_is_not_written() -> None:
    store = MemoryStore()
    identity = json.loads(memory_remote().store.get("registry.json")[0])  # type: ignore[index]
    store.objects["registry.json"] = json.dumps(identity | {"min_writer": 99}).encode()
    remote = ObjectRegistry(store, identity["id"])
    with pytest.raises(HostError, match="newer"):
        put(remote, b"blob")
    with pytest.raises(HostError, match="newer"):
        remote.swap_file("search/part", b"tile", None)
    assert list(store.objects) == ["registry.json"]


def test_promises_are_proven_for_each_server() -> None:
    """A registry that was copied to another server keeps its id."""
    first = ObjectRegistry.create(CasGuardedStore(MemoryStore("s3://one/models"), "s3://one/models"))
    put(first, b"blob")
    moved = Careless("s3://two/models")
    moved.objects["registry.json"] = first.store.get("registry.json")[0]  # type: ignore[index]
    second = ObjectRegistry(CasGuardedStore(moved, "s3://two/models"))
    with pytest.raises(RemoteError, match="cannot be written safely"):
        put(second, b"blob")


def test_a_remote_is_written_also_if_its_proof_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    remote = ObjectRegistry.create(CasGuardedStore(MemoryStore("s3://one/models"), "s3://one/models"))
    monkeypatch.setenv("REG_STATE", str(tmp_path / "file" / "home"))
    put(remote, b"blob")
    assert remote.has([Digest.of(b"blob")])
