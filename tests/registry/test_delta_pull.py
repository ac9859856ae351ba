"""Updates by deltas: the bytes that move, the fallbacks, what a takedown leaves; and the vectors of docs/delta.md."""

import base64
import json
import shutil
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner, retrained
from support.registries.home import Home
from support.sampling import sampled
from support.servers import static
from support.servers.faults import Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.cli.services import DeltaReport, make_deltas
from onnxreg.registry.log.commit import blob_keys, collect
from onnxreg.registry.log.decisions import publish_deltas
from onnxreg.registry.log.log import load, read_deltas
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.transfer.exchange import apply_delta, open_by_delta
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.delta.delta_format import Delta, DeltaHeader, choose_deltas

NAME = "acme/pii"


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A registry with three versions, each with deltas from the one before and from the first, which a channel holds."""
    root = tmp_path_factory.mktemp("published")
    registry = Home(root / "home")
    for step in range(3):
        registry.add(retrained.draft(root / f"draft{step}", step))
        registry.tag(f"{NAME}:0.1.0", "stable")
        make(registry)
    return root / "home"


def make(registry: Home, *since: str, tag: str | None = None) -> DeltaReport:
    versions = [Version.parse(item) for item in since]
    return make_deltas(registry, registry.store, Ref(NAME, tag), versions, SILENT)


@pytest.fixture
def source(published, tmp_path) -> Home:
    """A copy of it, to be changed."""
    shutil.copytree(published, tmp_path / "source")
    return Home(tmp_path / "source")


@pytest.fixture
def server(source) -> Iterator[Proxy]:
    """The copy behind a web server and a proxy that counts and spoils requests."""
    with static.serve(source.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture
def client(server, tmp_path) -> Home:
    """A registry that has the first version."""
    registry = Home(tmp_path / "client")
    registry.pull(f"{NAME}:0.1.0", server.url)
    server.seen.clear()
    return registry


def blobs_seen(server: Proxy) -> set[str]:
    return {path.rpartition("/")[2] for method, path in server.seen if "/blobs/" in path}


def main_files(registry: Home, version: str) -> dict[str, Digest]:
    return {item.path: item.digest for item in registry.get(f"{NAME}:{version}").manifest.artifacts}


def offered(registry: Home, version: str) -> list[Delta]:
    ledger = load(registry.store, NAME)
    return read_deltas(ledger.fetch, ledger.versions[Version.parse(version)].deltas)


def deltas_of(registry: Home, version: str) -> dict[tuple[str, str], Digest]:
    """The deltas of a version, by path and old version."""
    paths = {digest: path for path, digest in main_files(registry, version).items()}
    return {(paths[item.new], str(item.since)): item.digest for item in offered(registry, version)}


def table_of(registry: Home, version: str) -> Path:
    table = load(registry.store, NAME).versions[Version.parse(version)].deltas
    assert table is not None
    return registry.store.blob_path(table)


def test_an_update_takes_deltas_and_gives_the_same_bytes(source, client, server):
    result = client.pull(f"{NAME}:0.1.2", server.url)
    files = main_files(source, "0.1.2")
    assert blobs_seen(server).isdisjoint(digest.hex for digest in files.values())
    arrivals = {item.path: item for item in result.arrivals if item.path in files}
    assert {str(item.since) for item in arrivals.values()} == {"0.1.0"}
    assert sum(item.moved for item in arrivals.values()) < sum(item.size for item in arrivals.values()) / 2
    client.check()


@pytest.mark.parametrize("why", ["a first pull", "the user wants no deltas", "a lost table"])
def test_whole_files_without_an_old_one_a_wish_or_a_table(source, client, other, server, why):
    if why == "a lost table":
        table_of(source, "0.1.2").unlink()
    registry, wanted = other if why == "a first pull" else client, why != "the user wants no deltas"
    result = registry.pull(f"{NAME}:0.1.2", server.url, deltas=wanted)
    assert all(item.since is None and item.moved == item.size for item in result.arrivals)


def test_a_delta_that_makes_another_file_is_not_believed(source, client, server):
    """The table names a good delta of another file."""
    right, wrong = (
        next(item for item in offered(source, "0.1.2") if item.new == main_files(source, "0.1.2")[path])
        for path in ("model.onnx", "model_int8.onnx")
    )
    lies = [right.replace(digest=wrong.digest, old=(main_files(source, "0.1.0")["model.onnx"],), size=1)]
    with source.store.push() as push:
        publish_deltas(source.store, push, NAME, Version.parse("0.1.2"), lies, None)
    result = client.pull(f"{NAME}:0.1.2", server.url)
    arrivals = {item.path: item for item in result.arrivals}
    assert arrivals["model.onnx"].doubt and arrivals["model.onnx"].since is None
    client.check()


@pytest.mark.parametrize("fault", sampled(["garbled", "astray", "error", "truncated"], 2))
def test_the_right_files_arrive_despite_damaged_deltas(source, client, server, fault):
    spoiled_blobs = {digest.hex for digest in deltas_of(source, "0.1.2").values()}
    server.plan = lambda method, path: (
        fault if path.rpartition("/")[2].split(".")[0] in spoiled_blobs else None
    )
    result = client.pull(f"{NAME}:0.1.2", server.url)
    doubts = [item for item in result.arrivals if item.doubt]
    assert doubts and all("fetched whole" in item.doubt for item in doubts)
    client.check()


def test_wrong_bytes_are_fetched_whole_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(retrained, "ELEMENTS", 2_400_000)
    source, client = Home(tmp_path / "source"), Home(tmp_path / "client")
    for step in range(2):
        source.add(retrained.draft(tmp_path / f"draft{step}", step))
    make(source)
    client.pull(f"{NAME}:0.1.0", source.place)
    old = client.store.blob_path(main_files(source, "0.1.0")["model.onnx"])
    old.chmod(0o600)
    with old.open("r+b") as file:
        file.write(bytes([file.read(1)[0] ^ 1, 0]))
        file.seek(9_000_000)
        file.write(b"damaged")
    with static.serve(source.store.root) as url:
        result = client.pull(f"{NAME}:0.1.1", url)
    arrival = next(item for item in result.arrivals if item.path == "model.onnx")
    assert arrival.since is None and arrival.doubt
    assert arrival.doubt.startswith("model.onnx was fetched whole: blob ")
    assert all("0.1.0" in str(damage) for damage in verify(client.store).damages)


def test_a_delta_is_not_made_twice_and_the_same_files_give_the_same_bytes(source, published, tmp_path):
    before = deltas_of(source, "0.1.2")
    report = make(source)
    assert report.new == 0 and load(source.store, NAME).seq == 6
    again = Home(tmp_path / "again")
    for step in range(3):
        again.add(retrained.draft(tmp_path / f"draft{step}", step))
    make(again, "0.1.0", "0.1.1")
    assert deltas_of(again, "0.1.2") == before


def test_a_mirror_has_them_and_a_pull_does_not(source, server, tmp_path):
    copied = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=source.id)
    mirror(source.store, copied)
    assert not verify(copied).damages
    assert copied.read_index(NAME) == source.store.read_index(NAME)
    client = Home(tmp_path / "new")
    client.pull(f"{NAME}:0.1.2", server.url)
    assert client.kinds() == ["publish"]


def test_a_mirror_refuses_before_any_delta_is_made(source, tmp_path):
    copied = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=source.id)
    mirror(source.store, copied)
    steps: list[str] = []
    progress = Progress()
    progress.step = steps.append  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="mirror"):
        make_deltas(Home(tmp_path / "mirror"), copied, Ref(NAME), (), progress)
    assert steps == []


def test_a_version_that_does_not_exist_gets_no_deltas(source):
    with source.store.push() as push, pytest.raises(NotFoundError, match=r"0\.1\.9"):
        publish_deltas(source.store, push, NAME, Version.parse("0.1.9"), offered(source, "0.1.2"), None)


@pytest.mark.parametrize("verb", ["purge", "expire"])
def test_a_removed_version_takes_its_deltas_with_it(source, verb):
    before = deltas_of(source, "0.1.2")
    gone = {digest for (_, since), digest in before.items() if since == "0.1.1"}
    gone |= set(deltas_of(source, "0.1.1").values())
    assert len(gone) > 3
    if verb == "purge":
        banned = owner.purge(source, f"{NAME}:0.1.1", "leaked").blobs
        assert gone <= banned
    else:
        owner.pin(source, f"{NAME}:0.1.0")
        expired, _ = owner.gc(source, 1)
        assert [str(ref) for ref in expired] == [f"{NAME}:0.1.1"]
    present = {key.digest for key in blob_keys(source.store)}
    assert present.isdisjoint(gone)
    assert all(since != "0.1.1" for _, since in deltas_of(source, "0.1.2"))
    source.check()
    collect(source.store)
    source.check()


@pytest.mark.parametrize("lost", ["the version", "the table"])
def test_what_was_lost_is_made_again(source, tmp_path, lost):
    before = deltas_of(source, "0.1.2")
    if lost == "the version":
        owner.drop(source, f"{NAME}:0.1.2")
        source.check()
        source.add(retrained.draft(tmp_path / "again", 2))
    else:
        table_of(source, "0.1.2").unlink()
    assert deltas_of(source, "0.1.2") == {}
    make(source)
    assert deltas_of(source, "0.1.2") == before
    source.check()


@pytest.mark.parametrize("verb", ["purge", "drop"])
def test_a_lost_table_stops_no_takedown(source, verb):
    """Nobody knows which deltas the lost table had from the version, so all of it goes."""
    gone = {digest for (_, since), digest in deltas_of(source, "0.1.2").items() if since == "0.1.1"}
    table_of(source, "0.1.2").unlink()
    if verb == "purge":
        assert gone <= owner.purge(source, f"{NAME}:0.1.1", "leaked").blobs
    else:
        owner.drop(source, f"{NAME}:0.1.1")
        collect(source.store)
    assert {key.digest for key in blob_keys(source.store)}.isdisjoint(gone)
    source.check()


def test_a_purge_leaves_the_deltas_that_another_version_offers_too(source, tmp_path):
    """Two versions have the same model files, so the same bytes are their delta."""
    twin = retrained.draft(tmp_path / "twin", 2)
    (twin.root / "config.json").write_bytes(b"{}")
    source.add(twin)
    make(source, "0.1.0", tag="0.1.3")
    before = deltas_of(source, "0.1.3")
    assert set(before.values()) & set(deltas_of(source, "0.1.2").values())
    owner.purge(source, f"{NAME}:0.1.2", "leaked")
    assert deltas_of(source, "0.1.3") == before
    assert {key.digest for key in blob_keys(source.store)} >= set(before.values())
    source.check()


def test_a_lost_delta_is_found_by_verify(source):
    digest = next(iter(deltas_of(source, "0.1.2").values()))
    source.store.blob_path(digest).unlink()
    assert [damage.kind for damage in verify(source.store).damages] == ["missing"]


def test_a_locked_artifact_arrives_by_a_delta(source, client, server, tmp_path, capsys):
    home, lock = client.place, str(tmp_path / "app.lock")
    options = ["--format", "onnx-int8", "--output", lock]
    assert main(["--registry", home, "lock", f"{NAME}:0.1.2", "--remote", server.url, *options]) == 0
    words = ["pull", "--locked", lock, server.url]
    capsys.readouterr()
    assert main(["--registry", home, *words]) == 0
    out = capsys.readouterr().out
    assert "model_int8.onnx" in out and "deltas saved" in out
    client.check()


VECTORS = Path(__file__).parents[1] / "vectors" / "delta"
CASES = json.loads((VECTORS / "apply.json").read_text())["vectors"]
CHOICES = json.loads((VECTORS / "choose.json").read_text())["vectors"]
GOOD = [case for case in CASES if "new" in case]


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: case["name"])
def test_a_choice(case):
    chosen = choose_deltas(
        [Delta.read(delta) for delta in case["deltas"]],
        {Digest.parse(file): size for file, size in case["sizes"].items()},
        frozenset(map(Digest.parse, case["present"])),
    )
    assert {str(file): str(delta.digest) for file, delta in chosen.items()} == case["chosen"]


def applied(case: dict[str, Any], start: int = 0) -> bytes:
    """What a vector's delta makes. InputError also if it is not the file that the header names."""
    stream = BytesIO(base64.b64decode(case["delta"]))
    header = DeltaHeader.read_from(stream)
    old = [BytesIO(base64.b64decode(data)) for data in case["old"]]
    data = b"".join(bytes(part) for part in apply_delta(stream, header, old, start))
    if start == 0 and Digest.of(data) != header.new.digest:
        raise InputError("other bytes")
    return data


def test_every_vector_and_it_can_begin_anywhere():
    for case in GOOD:
        new = base64.b64decode(case["new"])
        for start in {0, 1, len(new) // 2, len(new) - 1, len(new)} - {-1}:
            assert applied(case, start) == new[start:], case["name"]
    for case in CASES:
        if "new" not in case:
            with pytest.raises(InputError):
                applied(case)


def test_every_damaged_byte_is_noticed_or_does_no_harm():
    """A flipped bit anywhere gives an InputError or the same file, never another exception."""
    case = next(case for case in GOOD if case["name"].startswith("a difference of a part"))
    delta = base64.b64decode(case["delta"])
    for at in range(len(delta)):
        damaged = delta[:at] + bytes([delta[at] ^ 0x41]) + delta[at + 1 :]
        try:
            data = applied(case | {"delta": base64.b64encode(damaged).decode()})
        except InputError:
            continue
        assert data == base64.b64decode(case["new"])


def test_a_delta_that_ends_early_is_an_error_of_the_new_file(tmp_path):
    case = next(case for case in GOOD if case["name"].startswith("a difference of a part"))
    data = base64.b64decode(case["delta"])
    header = DeltaHeader.read_from(BytesIO(data))
    old = {blob.digest: tmp_path / blob.digest.hex for blob in header.old}
    for path, content in zip(old.values(), case["old"], strict=True):
        path.write_bytes(base64.b64decode(content))
    delta = Delta(header.new.digest, tuple(old), Digest.of(data), len(data), Version(1, 0, 0))
    for sent in (data[:-1], data[: len(data) // 2], b""):
        with pytest.raises(IntegrityError):
            open_by_delta(header.new, delta, partial(BytesIO, sent), old.get, 0).read()
    with pytest.raises(IntegrityError):
        open_by_delta(header.new, delta, lambda: BytesIO(data), lambda digest: None, 0).read()
    assert open_by_delta(header.new, delta, lambda: BytesIO(data), old.get, 0).read() == base64.b64decode(
        case["new"]
    )


def test_an_old_file_that_became_shorter_is_an_error():
    case = next(case for case in GOOD if case["name"] == "the whole file is copied")
    with pytest.raises(InputError, match="shorter"):
        applied(case | {"old": [base64.b64encode(bytes(10)).decode()]})
