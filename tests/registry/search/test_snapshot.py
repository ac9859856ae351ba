"""The snapshot of a registry: at every kind of place, what readers ask for, and what is wrong with some."""

import gzip
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from huggingface_hub import close_session
from support.registries import grow
from support.servers import regserve
from support.servers.faults import Proxy, proxy
from support.servers.hub import running
from support.servers.static import serve

from onnxreg.registry import Registry
from onnxreg.registry.log.collect import collect
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.read.remotes import Remotes
from onnxreg.registry.search import candidates, snapshot, snapshot_publisher
from onnxreg.registry.search.remote_search import RemoteSearch
from onnxreg.registry.search.search_index import SearchIndex
from onnxreg.registry.search.snapshot_publisher import SnapshotPublication
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.hub.hub import open_hub
from onnxreg.registry.store.layout import SNAPSHOT, index_path
from onnxreg.registry.store.memory import memory_remote
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.transfer.mirror_registry import mirror
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError, RegError
from onnxreg.schema.query.expression import parser

EXPRESSIONS = (
    None,
    "newest",
    "certified and size <= 30MB",
    "version >= 1.2.0 and recall.NAME >= 0.9",
    "yanked or 'stable' in channels",
    "name ~ '*-01' and profile ~ '*'",
)


@pytest.fixture
def models(tmp_path: Path) -> Registry:
    """Three models of seven versions; of each, three manifests are not summarised."""
    return grow.grow(tmp_path / "models", 3, 7, manifests=True)


@dataclass
class Reader:
    """A search over a remote, what it said, and how often index files were listed or read one by one."""

    reader: RegistryReader
    lines: list[str] = field(default_factory=list)
    time: str | None = None

    def query(self, text: str | None = None, **options: Any) -> list[dict[str, Any]]:
        question = None if text is None else parser.parse(text)
        search = RemoteSearch(self.reader, self.lines.append, **options)
        rows, damages = search.query(question, "*", list, profiled=True)
        assert damages == []
        self.time = search.time
        return rows


def open_reader(tmp_path: Path, url: str) -> Reader:
    return Reader(Remotes.load(DirectoryRegistry.create(tmp_path / "own")).read(url))


def direct(store: RegistryStore, text: str | None) -> list[dict[str, Any]]:
    """The answer of the index files themselves."""
    question = None if text is None else parser.parse(text)
    return candidates.query(store, question, list(store.names()), list, profiled=True)[0]


def publish(store: RegistryStore, copy: Path | None = None, **options: Any) -> SnapshotPublication:
    return snapshot_publisher.publish(store, copy, **options)


def check_life(store: RegistryStore, models: Registry, tmp_path: Path) -> None:
    """Push, publish, query; a push is not in the snapshot until the next run, which reads only what changed."""
    for name in list(models.store.names())[:2]:
        _push(models, name, store)
    copy = tmp_path / "publisher's"
    assert publish(store, copy)[1:4] == (2, 35, 2)
    reader = open_reader(tmp_path, store.url)
    for text in EXPRESSIONS:
        assert reader.query(text) == direct(store, text) == reader.query(text, fresh=True)
    _push(models, grow.model_name(2), store)
    assert len({row["name"] for row in reader.query()}) == 2
    assert publish(store, copy, if_changed=True)[1:4] == (3, 49, 1)
    reader = open_reader(tmp_path, store.url)
    assert reader.query() == direct(store, None) and reader.lines == []
    assert publish(store, copy, if_changed=True).size is None
    assert all(damage.kind == "missing" for damage in verify(store).damages)


def _push(models: Registry, name: str, store: RegistryStore) -> None:
    """Write the index file and the manifests of a model, whose other files nobody reads here."""
    number = [grow.model_name(number) for number in range(3)].index(name)
    ledger, versions = grow.history(store.registry_id, name, number, 7)
    with store.push() as push:
        for blob in [*ledger.blobs, *(item.manifest for item in versions.values())]:
            push.put(BytesIO(blob))
        push.publish(name, ledger.encode(), None)


def test_in_a_directory(models: Registry, tmp_path: Path) -> None:
    check_life(DirectoryRegistry.create(tmp_path / "there"), models, tmp_path)


def test_in_a_bucket(bucket_url: str, models: Registry, tmp_path: Path) -> None:
    check_life(bucket_remote(bucket_url, create=True), models, tmp_path)


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
def test_on_the_hub(models: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        check_life(open_hub("hf://acme/models", create=True), models, tmp_path)
        close_session()


def test_a_store_without_tokens_is_read_as_a_whole(models: Registry, tmp_path: Path) -> None:
    store = memory_remote()
    _push(models, grow.model_name(0), store)
    copy = tmp_path / "copy"
    assert publish(store, copy).changed == 1
    assert publish(store, copy, if_changed=True).size is None
    _push(models, grow.model_name(1), store)
    assert publish(store, copy, if_changed=True).changed == 1


def test_it_has_what_the_search_index_has(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    with SearchIndex(DirectoryRegistry(models.store.root)) as index:
        for text in EXPRESSIONS:
            question = None if text is None else parser.parse(text)
            expected = index.query(question, "*", list, profiled=True)[0]
            assert open_reader(tmp_path, str(models.store.root)).query(text) == expected
        search = RemoteSearch(open_reader(tmp_path, str(models.store.root)).reader, print)
        assert search.models("org-*") == (index.models(), []) and search.time is not None


def test_a_model_that_is_gone_leaves_it(models: Registry, tmp_path: Path) -> None:
    publish(models.store, tmp_path / "copy")
    (models.store.root / index_path(grow.model_name(1))).unlink()
    assert publish(models.store, tmp_path / "copy", if_changed=True)[1:4] == (2, 28, 1)


def test_only_changed_index_files_are_read(models: Registry, tmp_path: Path) -> None:
    _settle(models)
    publish(models.store, tmp_path / "copy")
    grow.add_model(models, 1, 8, whole=False, manifests=True)
    _settle(models)
    reads: list[str] = []
    store = Spy(models.store.root)
    store.reads = reads
    assert publish(store, tmp_path / "copy", if_changed=True).changed == 1
    assert set(reads) == {grow.model_name(1)}
    reads.clear()
    assert publish(store, tmp_path / "copy", if_changed=True).size is None
    assert reads == []


def _settle(models: Registry) -> None:
    """Wait until nobody can change an index file within the same tick of the clock."""
    paths = (models.store.root / index_path(name) for name in models.store.names())
    time.sleep(max(0.0, 2.1 - (time.time() - max(path.stat().st_ctime for path in paths))))


class Spy(DirectoryRegistry):
    """A directory that records which index files are read."""

    reads: list[str]

    def read_index(self, name: str, cached: Any = None) -> Any:
        self.reads.append(name)
        return super().read_index(name, cached)


@contextmanager
def counted(root: Path) -> Iterator[Proxy]:
    """A web server with the files of a directory, and a proxy that counts what is asked of it."""
    with serve(root) as url, proxy(url) as requests:
        yield requests


@contextmanager
def served(root: Path) -> Iterator[Proxy]:
    with regserve.running(root) as site, proxy(site.url) as requests:
        yield requests


@pytest.mark.parametrize("host", [counted, served])
def test_a_reader_of_a_web_server_makes_one_conditional_request(
    models: Registry, tmp_path: Path, host: Callable[[Path], Any]
) -> None:
    publish(models.store)
    with host(models.store.root) as requests:
        reader = open_reader(tmp_path, requests.url)
        assert reader.query() == direct(models.store, None)
        requests.seen.clear()
        assert reader.query("certified") == direct(models.store, "certified")
        assert requests.seen == [("GET", f"/{SNAPSHOT}")] and requests.answers[-1] == 304
        with pytest.raises(RegError, match="does not list"):
            reader.query(fresh=True)
        time.sleep(1.1)
        with pytest.raises(RegError, match="the snapshot there is older than allowed"):
            reader.query(max_age=0)
    with pytest.raises(RegError) as refused:
        reader.query()
    assert "does not list" not in refused.value.message


def test_a_reader_of_a_bucket_makes_one_conditional_request(
    s3_proxy: Proxy, bucket_url: str, models: Registry, tmp_path: Path
) -> None:
    store = bucket_remote(bucket_url, create=True)
    for name in models.store.names():
        _push(models, name, store)
    publish(store, tmp_path / "copy")
    reader = open_reader(tmp_path, bucket_url)
    reader.query()
    s3_proxy.seen.clear()
    reader.query("newest")
    assert [path.partition("?")[0].partition("/search/")[2] for _, path in s3_proxy.seen] == [
        "snapshot.sqlite.gz"
    ]
    s3_proxy.seen.clear()
    publish(store, tmp_path / "copy", if_changed=True)
    assert len([path for _, path in s3_proxy.seen if "/index/" in path or "list-type" in path]) == 1


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
def test_a_reader_of_the_hub_fetches_no_byte_again(
    models: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        store = open_hub("hf://acme/models", create=True)
        for name in models.store.names():
            _push(models, name, store)
        publish(store)
        reader = open_reader(tmp_path, store.url)
        reader.query()
        unpacked: list[object] = []
        monkeypatch.setattr(snapshot, "unpack", lambda *arguments: unpacked.append(arguments))
        assert open_reader(tmp_path, store.url).query() == direct(store, None)
        assert unpacked == []
        close_session()


def edit(statement: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(gzip.decompress(data))
            with database:
                database.execute(statement)
            return gzip.compress(database.serialize())

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[: len(data) // 2], "is damaged"),
        (lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:], "is damaged"),
        (lambda data: b"<html>please log in</html>", "is damaged"),
        (lambda data: b"", "is damaged|not a snapshot"),
        (lambda data: gzip.compress(b"not a database"), "is damaged"),
        (
            edit("UPDATE meta SET value = '2' WHERE key = 'format_version'"),
            "has format 2, this onnxreg reads 1",
        ),
        (edit("UPDATE meta SET value = 'tea' WHERE key = 'format'"), "is not a snapshot"),
        (edit("UPDATE meta SET value = hex(zeroblob(16)) WHERE key = 'registry'"), "is of another registry"),
        (edit("DELETE FROM meta WHERE key = 'time'"), "is damaged"),
        (edit("UPDATE meta SET value = 'tea' WHERE key = 'time'"), "is damaged"),
        (edit("UPDATE meta SET value = x'00' WHERE key = 'time'"), "is damaged"),
        (edit("CREATE TABLE more(x)"), "has other tables"),
        (edit("DROP VIEW artifacts"), "has other tables"),
        (edit("UPDATE candidates SET channels = 'no JSON'"), "is damaged"),
        (edit("UPDATE candidates SET channels = '[1]'"), "is damaged"),
        (edit("UPDATE candidates SET channels = '7'"), "is damaged"),
        (edit("UPDATE candidates SET size = 'large'"), "is damaged"),
        (edit("UPDATE candidates SET path = x'00'"), "is damaged"),
        (edit('UPDATE candidates SET recall = \'{"NAME": "high"}\''), "is damaged"),
    ],
)
def test_one_that_cannot_be_used_is_not(
    models: Registry, tmp_path: Path, change: Callable[[bytes], bytes], problem: str
) -> None:
    publish(models.store)
    file = models.store.root / SNAPSHOT
    file.write_bytes(change(file.read_bytes()))
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query() == direct(models.store, None)
    assert reader.time is None and len(reader.lines) == 1
    assert any(part in reader.lines[0] for part in problem.split("|"))
    assert reader.lines[0].endswith("; every index file is read instead")


@pytest.mark.more
def test_damaged_pages_are_never_a_bug(models: Registry, tmp_path: Path) -> None:
    """A file with right checksums, some bytes of which are others: an answer, or the index files, but no other error."""
    publish(models.store)
    file = models.store.root / SNAPSHOT
    right, random = gzip.decompress(file.read_bytes()), Random(7)
    reader = open_reader(tmp_path, str(models.store.root))
    for _ in range(200):
        data = bytearray(right)
        for _ in range(random.randint(1, 20)):
            data[random.randrange(len(data))] = random.randrange(256)
        file.write_bytes(gzip.compress(data, 1))
        search = RemoteSearch(reader.reader, reader.lines.append)
        search.query(parser.parse("newest and size > 1"), "*", list, profiled=True)
        search.models("*")
    assert reader.lines


def test_without_one_every_index_file_is_read(models: Registry, tmp_path: Path) -> None:
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query() == direct(models.store, None) and (reader.time, reader.lines) == (None, [])
    many = grow.grow(tmp_path / "many", 60, 1, manifests=True)
    reader = open_reader(tmp_path, str(many.store.root))
    assert len(reader.query("newest")) > 60
    assert reader.lines == [
        f"the snapshot of {reader.reader.url} is not there; every index file is read instead"
    ]


def test_one_that_is_too_old_is_not_used(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    file = models.store.root / SNAPSHOT
    file.write_bytes(
        edit("UPDATE meta SET value = '2020-01-01T00:00:00Z' WHERE key = 'time'")(file.read_bytes())
    )
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query(max_age=3600) == direct(models.store, None)
    assert "is older than allowed" in reader.lines[0]
    reader.query()
    assert reader.time == "2020-01-01T00:00:00Z"


def test_damage_is_shown_and_read_again(models: Registry, tmp_path: Path) -> None:
    path = models.store.root / index_path(grow.model_name(1))
    right = path.read_bytes()
    path.write_bytes(b"{}\n")
    copy = tmp_path / "copy"
    assert [grow.model_name(1) in damage for damage in publish(models.store, copy).damages] == [True]
    search = RemoteSearch(open_reader(tmp_path, str(models.store.root)).reader, print)
    rows, damages = search.query(None, "*", list)
    assert {row["name"] for row in rows} == {grow.model_name(0), grow.model_name(2)} and len(damages) == 1
    assert publish(models.store, copy, if_changed=True).size is None
    path.write_bytes(right)
    assert publish(models.store, copy, if_changed=True).damages == []


def test_a_version_that_cannot_be_read_is_named(models: Registry, tmp_path: Path) -> None:
    name = grow.model_name(0)
    _, versions = grow.history(models.id, name, 0, 7)
    manifest = next(iter(versions.values())).digest
    models.store.blob_path(manifest).unlink()
    assert publish(models.store).artifacts == 47
    search = RemoteSearch(open_reader(tmp_path, str(models.store.root)).reader, print)
    rows, damages = search.query(None, "*", list)
    assert len(rows) == 47 and f"{name}:1.0.0" in damages[0]
    assert search.models("*")[1] == []


def test_two_runs_do_not_overwrite_each_other(models: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(models.store)
    pack = snapshot_publisher.pack

    def late(file: Path) -> bytes:
        monkeypatch.setattr(snapshot_publisher, "pack", pack)
        time.sleep(1.1)
        publish(models.store)
        return pack(file)

    monkeypatch.setattr(snapshot_publisher, "pack", late)
    with pytest.raises(LostRaceError):
        publish(models.store)


def test_one_of_a_later_format_is_not_replaced(models: Registry) -> None:
    publish(models.store)
    file = models.store.root / SNAPSHOT
    file.write_bytes(edit("UPDATE meta SET value = '2' WHERE key = 'format_version'")(file.read_bytes()))
    with pytest.raises(HostError, match="has format 2"):
        publish(models.store)


def test_a_damaged_one_is_replaced(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    (models.store.root / SNAPSHOT).write_bytes(b"damaged")
    assert publish(models.store, if_changed=True).size is not None
    assert open_reader(tmp_path, str(models.store.root)).query() == direct(models.store, None)


def test_a_copy_that_somebody_damaged_is_fetched_again(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    reader = open_reader(tmp_path, str(models.store.root))
    reader.query()
    (copy,) = state_directory().rglob("snapshot.sqlite")
    for data in (b"", copy.read_bytes()[:8192], b"x" * 20_000):
        copy.write_bytes(data)
        assert reader.query() == direct(models.store, None) and reader.lines == []


def test_a_copy_with_damaged_rows_is_used_once(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    reader = open_reader(tmp_path, str(models.store.root))
    reader.query()
    (copy,) = state_directory().rglob("snapshot.sqlite")
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("UPDATE candidates SET channels = 'no JSON'")
    assert reader.query() == direct(models.store, None) and "is damaged" in reader.lines.pop()
    assert reader.query() == direct(models.store, None) and reader.lines == []
    assert reader.time is not None


def test_nothing_needs_to_be_kept(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    reader = Reader(models.store)
    assert reader.query() == direct(models.store, None) and reader.time is not None


def test_collecting_mirroring_and_verifying_know_it(tmp_path: Path) -> None:
    source = grow.grow(tmp_path / "whole", 2, 3, whole=[0, 1])
    publish(source.store, table=True)
    collect(source.store)
    assert verify(source.store).damages == []
    target = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=source.id)
    mirror(source.store, target)
    assert verify(target).damages == []
    for name in ("snapshot.sqlite.gz", "snapshot.parquet"):
        assert (target.root / "search" / name).read_bytes() == (
            source.store.root / "search" / name
        ).read_bytes()
    with pytest.raises(InputError, match="is a mirror"):
        publish(target)


def test_equal_registries_have_equal_bytes(models: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_publisher, "_index_tokens", lambda store: dict.fromkeys(store.names(), ""))
    file = models.store.root / SNAPSHOT
    publish(models.store)
    first = snapshot_of(file)
    file.unlink()
    publish(models.store)
    assert snapshot_of(file) == first


def snapshot_of(file: Path) -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(gzip.decompress(file.read_bytes()))
        tables = ("models", "artifacts")
        return [database.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in tables]


JUDGE = """
import json, sys
from datetime import UTC, datetime
import duckdb
from fsspec.implementations.http import HTTPFileSystem

class Web(HTTPFileSystem):
    def modified(self, path):
        return datetime.now(UTC)

with duckdb.connect() as database:
    database.register_filesystem(Web())
    sql = f"SELECT name, version, path, digest, download_size, recall['NAME'] FROM '{sys.argv[1]}' "
    rows = database.execute(sql + "WHERE certified ORDER BY name, version, path").fetchall()
print(json.dumps(rows))
"""


def test_duckdb_reads_the_table_over_http(models: Registry) -> None:
    """The judge: the Parquet file as DuckDB reads it from `reg serve`, in ranges."""
    publish(models.store, table=True)
    with served(models.store.root) as requests:
        command = [sys.executable, "-c", JUDGE, f"{requests.url}/search/snapshot.parquet"]
        rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    fields = ("name", "version", "path", "digest", "download_size")
    answer = direct(models.store, "certified")
    expected = [[*(row[field] for field in fields), row["recall"].get("NAME")] for row in answer]
    assert rows == sorted(expected) and rows
    assert 206 in requests.answers


def test_the_documented_view_answers_sql(models: Registry) -> None:
    publish(models.store)
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(gzip.decompress((models.store.root / SNAPSHOT).read_bytes()))
        rows = database.execute(
            "SELECT name, version, path, download_size, json_extract(recall, '$.NAME') FROM artifacts "
            "WHERE certified AND EXISTS(SELECT 1 FROM json_each(channels) WHERE value = 'stable')"
        ).fetchall()
    expected = direct(models.store, "certified and 'stable' in channels")
    assert [row[:4] for row in rows] == [
        (row["name"], row["version"], row["path"], row["download_size"]) for row in expected
    ]


def test_no_pull_or_resolve_reads_it(models: Registry, tmp_path: Path) -> None:
    """What decides about a version reads the index file, whatever a snapshot says."""
    publish(models.store)
    file = models.store.root / SNAPSHOT
    file.write_bytes(edit("UPDATE candidates SET state = 'certified', certified = 1")(file.read_bytes()))
    own = Registry(tmp_path / "own")
    with counted(models.store.root) as requests:
        remote = own.remotes.read(requests.url)
        assert own.resolve(grow.model_name(2), remote=remote).artifact.state == "unknown"
        assert not requests.requests("GET", "/search/")
