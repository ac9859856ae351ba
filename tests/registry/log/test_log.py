"""The log of one model: chain, state, sealing, replay. Manifests come from memory."""

import pytest

from onnxreg.registry.log.log import Log, Replay
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Drop, Publish
from onnxreg.schema.log.state import Checkpoint
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
def test_what_was_written_is_read_again_and_follows_from_its_lines(store: Store, count: int) -> None:
    ledger = filled(store, count)
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    assert again.versions == ledger.versions and len(again.versions) == count
    assert [line.seq for line in again.lines()] == list(range(1, count + 1))
    assert again.encode() == ledger.encode()
    assert Log.replay(ledger.lines(), REGISTRY, "m", store.__getitem__).encode() == ledger.encode()
    for chain in (ledger, again):
        chain.append(store.publish(count))
    assert again.encode() == ledger.encode()


def test_index_file_stays_bounded(store: Store) -> None:
    small, large = len(filled(store, 64).encode()), len(filled(store, 64 * 9).encode())
    assert large < small + 9 * 100 + 200


def test_a_version_is_dropped_after_the_log_was_read_again(store: Store) -> None:
    ledger = filled(store, 70)
    last = Version(0, 0, 69)
    about = {**COMMON, "nonce": "d" * 32, "version": last, "manifest": ledger.versions[last].manifest}
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    again.append(Drop(**about))
    assert last not in again.versions and again.state.versions[last].dropped
    ledger.append(Drop(**about))
    assert again.encode() == ledger.encode()


@pytest.mark.parametrize("encoded", [False, True], ids=["", "read again"])
def test_a_version_takes_over_the_verdicts_on_its_manifest(encoded: bool) -> None:
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
