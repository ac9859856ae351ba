"""The log of one model: chain, state, sealing, replay; what a write leaves if it fails; small blobs, read whole and checked."""

from collections.abc import Iterator

import pytest
from conformance.contract import put
from support.registries import memory

from onnxreg.registry.log.commit import announced
from onnxreg.registry.log.contents import read_history
from onnxreg.registry.log.log import Log, Replay, fetcher, load
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, Kind, Push
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError, RemoteError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Attest, Drop, Publish, Tag, Yank
from onnxreg.schema.log.state import SEGMENT_LINES, Checkpoint
from onnxreg.schema.manifest.manifest import Manifest

REGISTRY = "0" * 32
COMMON = {"name": "m", "time": "2026-01-02T03:04:05Z"}


class Store(dict[Digest, bytes]):
    """Manifests and sealed blobs by digest."""

    def keep(self, data: bytes) -> Digest:
        self[Digest.of(data)] = data
        return Digest.of(data)

    def manifest(self, seed: str) -> Digest:
        digest = str(Digest.of(seed.encode()))
        artifact = {
            "format": "onnx",
            "path": "model.onnx",
            "precision": "float32",
            "digest": digest,
            "size": 1,
        }
        document = {"format": "openmed-onnx", "format_version": 2, "name": "m", "formats": ["onnx"]}
        return self.keep(Manifest.from_json({**document, "artifacts": [artifact]}).encode())

    def publish(self, number: int, seed: str | None = None) -> Publish:
        digest = self.manifest(seed or str(number))
        return Publish(
            **COMMON,
            nonce=f"{number:032x}",
            version=Version(0, 0, number),
            manifest=digest,
            size=len(self[digest]),
        )


@pytest.fixture
def store() -> Store:
    return Store()


def filled(store: Store, count: int) -> Log:
    ledger = Log(REGISTRY, "m", store.__getitem__)
    for number in range(count):
        ledger.append(store.publish(number))
        for blob in ledger.blobs:
            store.keep(blob)
    return ledger


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 129, 200])
def test_what_was_written_is_read_again_and_follows_from_its_lines(store, count):
    ledger = filled(store, count)
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    assert again.versions == ledger.versions and len(again.versions) == count
    assert [line.seq for line in again.lines()] == list(range(1, count + 1))
    assert again.encode() == ledger.encode()
    assert Log.replay(ledger.lines(), REGISTRY, "m", store.__getitem__).encode() == ledger.encode()
    for chain in (ledger, again):
        chain.append(store.publish(count))
    assert again.encode() == ledger.encode()


def test_index_file_stays_bounded(store):
    small, large = len(filled(store, 64).encode()), len(filled(store, 64 * 9).encode())
    assert large < small + 9 * 100 + 200


def test_a_version_is_dropped_after_the_log_was_read_again(store):
    ledger = filled(store, 70)
    last = Version(0, 0, 69)
    about = {**COMMON, "nonce": "d" * 32, "version": last, "manifest": ledger.versions[last].manifest}
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    again.append(Drop(**about))
    assert last not in again.versions and again.state.versions[last].dropped
    ledger.append(Drop(**about))
    assert again.encode() == ledger.encode()


@pytest.mark.parametrize("encoded", [False, True], ids=["", "read again"])
def test_a_version_takes_over_the_verdicts_on_its_manifest(encoded):
    """Also if the log is read from an index file in between, and only from versions with the same manifest."""
    artifact, manifest, other = (Digest.of(text) for text in (b"artifact", b"manifest", b"other"))
    log = Replay("m", Checkpoint())
    about = {"name": "m", "time": "2026-01-02T03:04:05Z", "actor": "ada", "nonce": "0" * 32}
    log.apply(Publish(**about, version=Version(1, 0, 0), manifest=manifest, size=1), 1)
    log.apply(
        Attest(
            **about,
            manifest=manifest,
            artifact=artifact,
            state="refused",
            statement=other,
            media_type="application/json",
        ),
        2,
    )
    for fields in ({"artifact": artifact}, {"state": "refused"}):  # half a verdict is none
        log.apply(Attest(**about, manifest=manifest, statement=other, media_type="text/plain", **fields), 3)
    if encoded:
        log = Replay("m", Checkpoint.decode(log.checkpoint().encode()))
    log.apply(Publish(**about, version=Version(1, 1, 0), manifest=manifest, size=1), 3)
    log.apply(Publish(**about, version=Version(1, 2, 0), manifest=other, size=1), 4)
    assert log.versions[Version(1, 1, 0)].attested == {artifact: "refused"}
    assert log.versions[Version(1, 2, 0)].attested == {}


class ClosedStore(DirectoryRegistry):
    """A store that takes a note, and no longer removes it."""

    def remove_note(self, kind: Kind, note: str) -> None:
        raise RemoteError(f"deleting gc/{kind}/{note} failed: no access")


@pytest.fixture
def closed(tmp_path) -> ClosedStore:
    return ClosedStore(DirectoryRegistry.create(tmp_path / "home").root)


@pytest.fixture
def push(closed) -> Iterator[Push]:
    with closed.push() as push:
        yield push


def test_an_error_is_not_hidden_by_that_of_taking_the_intent_back(closed, push):
    with pytest.raises(RemoteError, match="writing the blob failed"), announced(closed, push, "acme/pii"):
        raise RemoteError("writing the blob failed")


def test_a_write_that_succeeds_reports_that_its_intent_stays(closed, push):
    with (
        pytest.raises(RemoteError, match=r"deleting gc/intents/.* failed"),
        announced(closed, push, "acme/pii"),
    ):
        pass


DOCUMENT = b"a document"


def test_a_damaged_copy_is_passed_over(tmp_path):
    near, far, empty = DirectoryRegistry.create(tmp_path / "near"), memory.remote(), memory.remote()
    for place in (near, far):
        put(place, DOCUMENT)
    path = near.root / BlobKey(Digest.of(DOCUMENT)).path
    path.chmod(0o600)
    path.write_bytes(b"rot")
    assert fetcher(far, near)(Digest.of(DOCUMENT)) == DOCUMENT
    with pytest.raises(IntegrityError, match="is damaged"):
        fetcher(near, empty)(Digest.of(DOCUMENT))


def test_a_history_lacks_no_manifest_of_a_version_that_is_here(registry):
    release = registry.make()
    assert [row.manifest for row, _, _ in read_history(load(registry.store, release.name), 5)] == [
        release.digest
    ]
    (registry.store.root / BlobKey(release.digest).path).unlink()
    with pytest.raises(NotFoundError):
        read_history(load(registry.store, release.name), 5)


@pytest.mark.parametrize("later", [0, SEGMENT_LINES])
def test_a_yanked_version_is_refused_by_the_index_file_alone(store, later):
    """The reason is given only while the yank is in the index file."""
    ledger = filled(store, 1)
    fields = {**COMMON, "version": Version(0, 0, 0), "manifest": store.manifest("0")}
    ledger.append(Tag(**fields, nonce="a" * 32, tag="stable"))
    ledger.append(Yank(**fields, nonce="b" * 32, reason="leak"))
    for number in range(1, later + 1):
        ledger.append(store.publish(number))
    read = Log.decode(ledger.encode(), REGISTRY, "m", {}.__getitem__)
    with pytest.raises(NotFoundError) as caught:
        read.find(Ref("m", "stable"))
    assert ("leak" in caught.value.message) is (later == 0)
