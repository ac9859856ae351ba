"""The log of one model: chain, state, sealing, replay. Manifests come from memory."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.registry.log.log import Log, Replay
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Drop, Publish, Tag, Unyank, Yank
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
def test_read_gives_back_what_was_written(store: Store, count: int) -> None:
    ledger = filled(store, count)
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    assert again.versions == ledger.versions and len(again.versions) == count
    assert [line.seq for line in again.lines()] == list(range(1, count + 1))
    assert again.encode() == ledger.encode()


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_state_equals_a_replay_of_the_log(store: Store, count: int) -> None:
    ledger = filled(store, count)
    assert Log.replay(ledger.lines(), REGISTRY, "m", store.__getitem__).encode() == ledger.encode()


def test_index_file_stays_bounded(store: Store) -> None:
    small, large = len(filled(store, 64).encode()), len(filled(store, 64 * 9).encode())
    assert large < small + 9 * 100 + 200


@pytest.mark.parametrize("more", [b"\n", b"{}\n", b"x"])
def test_a_segment_has_as_many_lines_as_a_segment_has(store: Store, more: bytes) -> None:
    ledger = filled(store, 65)
    data = store[ledger.segments[0]]
    store[ledger.segments[0]] = data + more if more.endswith(b"\n") else data[:-1] + more
    with pytest.raises(IntegrityError, match="does not hold 64 lines"):
        list(Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__).lines())


def test_a_written_and_reread_ledger_continues_the_same(store: Store) -> None:
    straight = filled(store, 70)
    ledger = Log(REGISTRY, "m", store.__getitem__)
    for number in range(70):
        ledger.append(store.publish(number))
        for blob in ledger.blobs:
            store.keep(blob)
        ledger = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    assert ledger.encode() == straight.encode()


def test_a_version_cannot_stand_for_two_manifests(store: Store) -> None:
    ledger = filled(store, 3)
    with pytest.raises(ConflictError, match=r"m:0\.0\.1 is already published"):
        ledger.append(store.publish(1, seed="other"))


def test_channel_moves_only_from_the_expected_holder(store: Store) -> None:
    ledger = filled(store, 2)
    first, second = (ledger.versions[Version(0, 0, number)].manifest for number in (0, 1))
    move = {**COMMON, "nonce": "f" * 32, "tag": "stable"}
    ledger.append(Tag(**move, version=Version(0, 0, 0), manifest=first))
    with pytest.raises(ConflictError, match=r"holds 0\.0\.0 by now"):
        ledger.append(Tag(**move, version=Version(0, 0, 1), manifest=second))
    ledger.append(Tag(**move, version=Version(0, 0, 1), manifest=second, expects=first))
    assert ledger.state.channels["stable"].version == Version(0, 0, 1)


def test_yanked_versions_are_not_newest(store: Store) -> None:
    ledger = filled(store, 3)
    last = Version(0, 0, 2)
    event = {**COMMON, "nonce": "e" * 32, "version": last, "manifest": ledger.versions[last].manifest}
    yank = Yank(**event)
    ledger.append(yank)
    assert ledger.state.newest[0] == Version(0, 0, 1)
    ledger.append(Unyank(**event, yank=yank.id))
    assert ledger.state.newest[0] == last


def test_a_version_is_dropped_after_the_log_was_read_again(store: Store) -> None:
    ledger = filled(store, 70)
    last = Version(0, 0, 69)
    about = {**COMMON, "nonce": "d" * 32, "version": last, "manifest": ledger.versions[last].manifest}
    again = Log.decode(ledger.encode(), REGISTRY, "m", store.__getitem__)
    again.append(Drop(**about))
    assert last not in again.versions and again.state.versions[last].dropped
    ledger.append(Drop(**about))
    assert again.encode() == ledger.encode()


def tamperings(lines: list[bytes]) -> Iterator[list[bytes]]:
    yield lines[:-1]
    yield lines[1:]
    yield [lines[0], *lines[2:]]
    yield [lines[0], lines[2], lines[1], *lines[3:]]
    yield [*lines, lines[-1]]
    yield [lines[0], lines[1].replace(b"0.0.0", b"0.0.9"), *lines[2:]]
    yield [lines[0].replace(b'"seq":4,', b'"seq":3,'), *lines[1:]]


def test_every_tampering_with_the_index_file_is_seen(store: Store) -> None:
    ledger = filled(store, 4)
    lines = ledger.encode().splitlines()
    for changed in tamperings(lines):
        assert changed != lines
        with pytest.raises(IntegrityError):
            list(Log.decode(b"\n".join(changed) + b"\n", REGISTRY, "m", store.__getitem__).lines())


def test_a_log_of_another_registry_or_model_is_refused(store: Store) -> None:
    data = filled(store, 2).encode()
    for registry, name in (("1" * 32, "m"), (REGISTRY, "n")):
        with pytest.raises(IntegrityError):
            Log.decode(data, registry, name, store.__getitem__)


@given(st.data())
def test_no_flipped_byte_goes_unnoticed_or_crashes(data: st.DataObject) -> None:
    store = Store()
    original = filled(store, 3).encode()
    position = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[position] ^= data.draw(st.integers(1, 255))
    try:
        ledger = Log.decode(bytes(changed), REGISTRY, "m", store.__getitem__)
        again = Log.replay(ledger.lines(), REGISTRY, "m", store.__getitem__).encode()
    except IntegrityError:
        return
    assert again != bytes(changed)


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
    if encoded:
        log = Replay("m", Checkpoint.decode(log.checkpoint().encode()))
    log.apply(Publish(**about, version=Version(1, 1, 0), manifest=manifest, size=1), 3)
    log.apply(Publish(**about, version=Version(1, 2, 0), manifest=other, size=1), 4)
    assert log.versions[Version(1, 1, 0)].attested == {artifact: "refused"}
    assert log.versions[Version(1, 2, 0)].attested == {}
