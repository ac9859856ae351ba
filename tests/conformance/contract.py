"""The contract of a store, as tests: subclass, provide a `remote` fixture, and pytest runs the suite.

class TestMine(ObjectContract):
    @pytest.fixture
    def remote(self): return create_registry(MyObjectStore(...))
"""

import secrets
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from support.registries import memory

from onnxreg.registry.log.commit import collect
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, LostRaceError, NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.manifest.draft import Draft, DraftArtifact


def put(
    remote: RegistryStore, *blobs: bytes, name: str = "m", index: bytes = b"{}\n", expected: str | None = None
) -> None:
    """Publish some blobs with an index file."""
    with remote.push() as push:
        for blob in blobs:
            push.put(BytesIO(blob))
        push.publish(name, index, expected)


class StoreContract:
    """The obligations of `protocol.RegistryStore`, and the promises of the store below."""

    def test_has_an_id_of_32_hex_digits(self, remote):
        assert len(remote.registry_id) == 32
        assert int(remote.registry_id, 16) >= 0

    def test_is_empty_at_first(self, remote):
        assert list(remote.names()) == []
        assert remote.read_index("m") is None
        assert remote.has([Digest.of(b"x")]) == set()

    def test_gives_back_what_was_put(self, remote):
        put(remote, b"", b"one", bytes(3 * 2**20))
        for blob in (b"", b"one", bytes(3 * 2**20)):
            with remote.open_blob(Digest.of(blob)) as stream:
                assert stream.read() == blob
        assert remote.has([Digest.of(b"one"), Digest.of(b"two")]) == {Digest.of(b"one")}

    def test_put_says_digest_and_size(self, remote):
        with remote.push() as push:
            assert push.put(BytesIO(b"four")) == (Digest.of(b"four"), 4)

    def test_put_file_takes_the_bytes(self, remote, tmp_path):
        (tmp_path / "f").write_bytes(b"content")
        with remote.push() as push:
            assert push.put_file(tmp_path / "f") == (Digest.of(b"content"), 7)
            push.publish("m", b"{}\n", None)
        with remote.open_blob(Digest.of(b"content")) as stream:
            assert stream.read() == b"content"

    def test_wrong_bytes_are_refused_and_not_kept(self, remote):
        expected = Digest.of(b"good")
        with remote.push() as push:
            with pytest.raises(IntegrityError):
                push.put(BytesIO(b"evil"), expected)
            push.publish("m", b"{}\n", None)
        assert remote.has([expected, Digest.of(b"evil")]) == set()

    def test_a_blob_that_is_there_may_be_put_again(self, remote):
        put(remote, b"same")
        put(remote, b"same", name="n")
        assert remote.has([Digest.of(b"same")]) == {Digest.of(b"same")}

    def test_an_absent_blob_is_not_found(self, remote):
        with pytest.raises(NotFoundError):
            remote.open_blob(Digest.of(b"nowhere"))

    def test_index_files_are_compared_and_swapped(self, remote):
        def swap(data: bytes) -> bool:
            try:
                with remote.push() as push:
                    push.publish("org/m", data, token)
            except LostRaceError:
                return False
            return True

        token = None
        for number in range(8):
            contents = [b"%d of %d" % (writer, number) for writer in range(8)]
            with ThreadPoolExecutor(8) as pool:
                winners = [
                    data for data, is_done in zip(contents, pool.map(swap, contents), strict=True) if is_done
                ]
            index = remote.read_index("org/m")
            assert index is not None and winners == [index.data]
            assert not swap(b"stale") and remote.read_index("org/m") == index
            token = index.token

    def test_policies_are_compared_and_swapped_as_an_index_is(self, remote):
        assert remote.read_index(POLICY_LOG) is None
        put(remote, name=POLICY_LOG, index=b"1\n")
        first = remote.read_index(POLICY_LOG)
        assert first is not None and first.data == b"1\n"
        with pytest.raises(LostRaceError):
            put(remote, name=POLICY_LOG, index=b"2\n")
        put(remote, name=POLICY_LOG, index=b"2\n", expected=first.token)
        assert list(remote.names()) == []

    def test_a_missing_index_cannot_be_swapped_with_a_token(self, remote):
        with pytest.raises(LostRaceError):
            put(remote, name="m", index=b"1\n", expected="0" * 64)
        assert remote.read_index("m") is None

    def test_publish_may_be_repeated_after_a_lost_race(self, remote):
        with remote.push() as push:
            push.put(BytesIO(b"kept"))
            put(remote, name="m", index=b"1\n")
            with pytest.raises(LostRaceError):
                push.publish("m", b"2\n", None)
            winner = remote.read_index("m")
            assert winner is not None
            push.publish("m", b"2\n", winner.token)
        assert remote.has([Digest.of(b"kept")])

    def test_files_by_path_are_compared_and_swapped(self, remote):
        path = "search/newest"
        assert remote.read_file(path) is None
        assert remote.swap_file(path, b"1", None)
        assert not remote.swap_file(path, b"2", None)
        first = remote.read_file(path)
        assert first is not None and first[0] == b"1"
        assert remote.read_file(path, first) == first
        assert (remote.read_file(path, first._replace(data=b"")) or ("", ""))[1] == first[1]
        assert remote.swap_file(path, b"2", first[1])
        assert not remote.swap_file(path, b"3", first[1])
        newest = remote.read_file(path, first)
        assert newest is not None and newest.data == b"2"
        assert list(remote.names()) == []
        remote.delete([path])
        assert remote.read_file(path, newest) is None

    def test_of_several_who_swap_a_file_one_wins(self, remote):
        with ThreadPoolExecutor(4) as pool:
            results = list(
                pool.map(lambda number: remote.swap_file("search/newest", b"%d" % number, None), range(4))
            )
        winner = remote.read_file("search/newest")
        assert results.count(True) == 1 and winner is not None and winner[0] == b"%d" % results.index(True)

    def test_the_tokens_of_index_files_change_with_them(self, remote):
        for name in ("a", "org/b"):
            put(remote, name=name, index=b"1\n")
        before = remote.index_tokens()
        index = remote.read_index("a")
        assert before.keys() == {"a", "org/b"} and index is not None
        put(remote, name="a", index=b"2\n", expected=index.token)
        after = remote.index_tokens()
        assert after["org/b"] == before["org/b"]
        assert after["a"] != before["a"] or after["a"] == ""

    def test_names_are_sorted(self, remote):
        for name in ("b", "a", "org/z", "org/a"):
            put(remote, name=name)
        assert list(remote.names()) == ["a", "b", "org/a", "org/z"]

    def test_blobs_may_be_put_from_many_threads(self, remote):
        blobs = [b"blob %d" % number for number in range(50)]
        with remote.push() as push, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda blob: push.put(BytesIO(blob)), blobs))
            push.publish("m", b"{}\n", None)
        assert len(remote.has(Digest.of(blob) for blob in blobs)) == 50

    def test_what_nothing_refers_to_is_collected_and_nothing_else(self, remote):
        draft = Draft("m", Path(), (DraftArtifact("onnx", "float32", "model.onnx"),))
        memory.publish(remote, draft, "1.0.0", {"model.onnx": b"weights"})
        before = {file.path for file in remote.files()}
        with remote.push() as push:
            push.put(BytesIO(b"stray"))
            push.flush()
        for freed in ({Digest.of(b"stray")}, set()):
            assert {key.digest for key in collect(remote, patience=0).freed} == freed
            assert {file.path for file in remote.files()} == before and not verify(remote).damages


class ObjectContract(StoreContract):
    """The obligations of an `ObjectStore` too; `remote` is the registry over it."""

    def test_objects_are_read_as_soon_as_they_are_written(self, remote):
        for number in range(8):
            key, data = f"gc/trial-read/{number}", secrets.token_bytes(100)
            assert remote.store.get(key) is None and not remote.store.has([key])
            assert remote.store.create(key, BytesIO(data))
            current = remote.store.get(key)
            assert current is not None and current[0] == data and remote.store.has([key])
            assert remote.store.swap(key, data[::-1], current[1])
            assert (remote.store.get(key) or (b"",))[0] == data[::-1]
            assert not remote.store.swap(key, b"stale", current[1])

    def test_objects_are_listed_as_soon_as_they_are_written(self, remote):
        for number in range(8):
            key = f"gc/trial-list/{number}"
            remote.store.create(key, BytesIO(b"listed"))
            assert [file[:2] for file in remote.store.list("gc/trial-list/")] == [(key, 6)]
            remote.store.delete([key])
            assert list(remote.store.list("gc/trial-list/")) == []

    def test_a_large_object_comes_back(self, remote):
        data = secrets.token_bytes(12 * 2**20 + 1)
        assert remote.store.create("gc/trial-large", BytesIO(data))
        for start in (0, 1, 2**20, len(data) - 1, len(data)):
            stream = remote.store.open("gc/trial-large", start)
            assert stream is not None
            with stream:
                assert stream.read() == data[start:]
        assert remote.store.open("gc/trial-absent") is None

    def test_deleted_objects_are_gone_at_once(self, remote):
        keys = [f"gc/trial-delete/{number}" for number in range(20)]
        for key in keys:
            remote.store.create(key, BytesIO(b"deleted"))
        remote.store.delete(keys[:1])
        assert remote.store.get(keys[0]) is None
        remote.store.delete([*keys, "gc/trial-delete/absent"])
        assert remote.store.has(keys) == set()
        assert remote.store.create(keys[0], BytesIO(b"again"))
