"""Registries in object stores: what they are, and which are written to."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from conformance.contract import put

from onnxreg.registry.store.bucket import cas_faults, prove
from onnxreg.registry.store.protocol import MemoryStore, RegistryStore, memory_remote
from onnxreg.schema.core.errors import HostError, RemoteError


class Careless(MemoryStore):
    """Ignores conditions, as some gateways do."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.objects[key] = data
        return True


class Forgetful(MemoryStore):
    """Knows how to create only, not how to compare."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        if expected is None:
            return super().swap(key, data, None)
        self.objects[key] = data
        return True


class Timid(MemoryStore):
    """Creates, but never replaces."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return expected is None and super().swap(key, data, expected)


class Hoarding(MemoryStore):
    """Deletes nothing."""

    def delete(self, keys: Iterable[str]) -> None:
        pass


class Lying(MemoryStore):
    """Reads something else than was written."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return super().swap(key, data[:1], expected)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (Careless, "can be created again"),
        (Careless, "stale token is done"),
        (Forgetful, "stale token is done"),
        (Timid, "right token is refused"),
        (Hoarding, "still there"),
        (Lying, "not what is read"),
    ],
)
def test_a_store_that_breaks_a_promise_is_found(kind: type[MemoryStore], word: str) -> None:
    store = kind()
    assert word in "; ".join(cas_faults(store))
    if kind is not Hoarding:
        assert store.objects == {}


def test_a_registry_of_a_newer_build_is_not_written() -> None:
    store = MemoryStore()
    identity = json.loads(memory_remote().store.get("registry.json")[0])  # type: ignore[index]
    store.objects["registry.json"] = json.dumps(identity | {"min_writer": 99}).encode()
    remote = RegistryStore(store, identity["id"])
    with pytest.raises(HostError, match="newer"):
        put(remote, b"blob")
    with pytest.raises(HostError, match="newer"):
        remote.swap_file("search/part", b"tile", None)
    assert list(store.objects) == ["registry.json"]


def test_promises_are_proven_once_for_each_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(MemoryStore(), "one")
    prove(Careless(), "one")
    with pytest.raises(RemoteError, match="cannot be written safely"):
        prove(Careless(), "two")
    (tmp_path / "file").touch()
    monkeypatch.setenv("REG_STATE", str(tmp_path / "file" / "home"))
    prove(MemoryStore(), "no record can be kept")
