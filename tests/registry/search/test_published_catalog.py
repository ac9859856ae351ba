"""The published catalog of a registry: at every kind of place, what readers ask for, and what is wrong with some."""

import gzip
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

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
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.search import catalog as catalog_module
from onnxreg.registry.search import catalogs
from onnxreg.registry.search.catalog import Catalog, CatalogError
from onnxreg.registry.search.catalogs import COPY, CatalogPublication, LocalCatalog, read_remote
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.hub import open_hub
from onnxreg.registry.store.layout import CATALOG, index_path
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError, RegError
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import FIELDS

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
        question = None if text is None else parse(text)
        catalog = read_remote(self.reader, self.lines.append, artifacts=True, **options)
        rows, damages = answers(catalog, question)
        assert damages == []
        self.time = catalog.time
        return rows


def answers(catalog: Catalog, question: Any = None) -> tuple[list[dict[str, Any]], list[str]]:
    rows = [{name: getattr(row, name) for name in FIELDS} for row in catalog.query(question)]
    return rows, catalog.damages(artifacts=True)


def open_reader(tmp_path: Path, url: str) -> Reader:
    return Reader(Remotes.load(DirectoryRegistry.create(tmp_path / "own")).read(url))


def direct(store: RegistryStore, text: str | None) -> list[dict[str, Any]]:
    """The answer of the index files themselves."""
    question = None if text is None else parse(text)
    found = Catalog(store.registry_id)
    found.update(store, artifacts=True)
    return answers(found, question)[0]


def publish(store: RegistryStore, copy: Path | None = None) -> CatalogPublication:
    return catalogs.publish(store, copy)


def check_life(store: RegistryStore, models: Registry, tmp_path: Path) -> None:
    """Push, publish, query; a push is not in the snapshot until the next run, which reads only what changed."""
    for name in list(models.store.names())[:2]:
        _push(models, name, store)
    copy = tmp_path / "publisher's"
    assert publish(store, copy)[1:3] == (2, 35)
    reader = open_reader(tmp_path, store.url)
    for text in EXPRESSIONS:
        assert reader.query(text) == direct(store, text) == reader.query(text, max_age=0)
    _push(models, grow.model_name(2), store)
    assert len({row["name"] for row in reader.query()}) == 2
    assert publish(store, copy)[1:3] == (3, 49)
    reader = open_reader(tmp_path, store.url)
    assert reader.query() == direct(store, None) and reader.lines == []
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


def test_it_has_what_the_catalog_here_has(models: Registry, tmp_path: Path) -> None:
    publish(models.store)
    local = LocalCatalog(DirectoryRegistry(models.store.root))
    for text in EXPRESSIONS:
        question = None if text is None else parse(text)
        expected, _ = answers(local.refresh(artifacts=True), question)
        assert open_reader(tmp_path, str(models.store.root)).query(text) == expected
    listed = read_remote(open_reader(tmp_path, str(models.store.root)).reader, print)
    models_here = [model.to_json() for model in local.refresh().readable()]
    assert [model.to_json() for model in listed.readable("org-*")] == models_here and listed.time is not None


def test_only_changed_index_files_are_read(models: Registry, tmp_path: Path) -> None:
    _settle(models)
    publish(models.store, tmp_path / "copy")
    grow.add_model(models, 1, 8, whole=False, manifests=True)
    _settle(models)
    reads: list[str] = []
    store = Spy(models.store.root)
    store.reads = reads
    publish(store, tmp_path / "copy")
    assert set(reads) == {grow.model_name(1)}
    reads.clear()
    publish(store, tmp_path / "copy")
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
        assert requests.seen == [("GET", f"/{CATALOG}")] and requests.answers[-1] == 304
        with pytest.raises(RegError, match="does not list"):
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
        "catalog.jsonl.gz"
    ]
    s3_proxy.seen.clear()
    publish(store, tmp_path / "copy")
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
        (copy,) = state_directory().rglob(COPY)
        before = copy.stat()
        assert open_reader(tmp_path, store.url).query() == direct(store, None)
        assert copy.stat() == before
        close_session()


Change = Callable[[bytes], bytes]


def edit(old: str, new: str, count: int = 1) -> Change:
    """Replace text of the lines."""

    def change(data: bytes) -> bytes:
        lines = gzip.decompress(data)
        assert old.encode() in lines
        return gzip.compress(lines.replace(old.encode(), new.encode(), count))

    return change


DEEP = "[" * 100_000 + "]" * 100_000
NESTED = {
    "channels of a model": ('"channels":{', f'"channels":{{"deep":{DEEP},'),
    "channels of an artifact": ('"channels":["stable"]', f'"channels":{DEEP}'),
    "recall": ('"recall":{', f'"recall":{{"deep":{DEEP},'),
    "an unknown key": ('"manifest":', f'"deep":{DEEP},"manifest":'),
    "a gap": ('"artifacts":', f'"gaps":{DEEP},"artifacts":'),
}
"""Findings of an attack: nested JSON."""
BAD: dict[str, tuple[Change, str]] = {
    "cut": (lambda data: data[: len(data) // 2], "is damaged"),
    "a flipped bit": (lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:], "is damaged"),
    "a page of a portal": (lambda data: b"<html>please log in</html>", "is damaged"),
    "empty": (lambda data: b"", "is damaged"),
    "no lines": (lambda data: gzip.compress(b"not JSON"), "is damaged"),
    "a later format": (edit('"format_version":1', '"format_version":2'), "format 2, this onnxreg reads 1"),
    "another format": (edit('"onnxreg-catalog"', '"tea"'), "is not a catalog"),
    "another registry": (edit('"registry":"', '"registry":"0'), "is of another registry"),
    "no time": (edit('"time":"', '"time":"tea'), "has no time"),
    "models": (edit('"models":3', '"models":-1'), "is damaged"),
    "more models than lines": (edit('"models":3', '"models":100000'), "is damaged"),
    "a name": (edit('"name":"org-000/', '"name":"../'), "without a valid name"),
    "a version": (edit('"version":"1.1.0","man', '"version":"one","man', 99), "without a valid version"),
    "a list": (edit('"channels":["stable"]', '"channels":[1]'), "is damaged"),
    "a size": (edit('"size":', '"size":"large","sizes":', 99), "is damaged"),
    "a huge size": (edit('"size":', '"size":1e400,"sizes":', 99), "is damaged"),
    "a size beyond floats": (
        edit('"download_size":', f'"download_size":1{"0" * 400},"s":', 99),
        "is damaged",
    ),
    "a negative size": (edit('"size":', '"size":-1,"sizes":', 99), "is damaged"),
    "half a character": (edit('"path":"', '"path":"\\ud800', 99), "is damaged"),
    "a recall": (edit('"recall":{', '"recall":{"NAME":"high",'), "is damaged"),
    **{f"nested {where}": (edit(*change), "is damaged") for where, change in NESTED.items()},
}


@pytest.mark.parametrize("case", BAD)
def test_one_that_cannot_be_used_is_not(models: Registry, tmp_path: Path, case: str) -> None:
    change, problem = BAD[case]
    publish(models.store)
    file = models.store.root / CATALOG
    file.write_bytes(change(file.read_bytes()))
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query() == direct(models.store, None)
    assert reader.time is None and len(reader.lines) == 1
    assert problem in reader.lines[0]
    assert reader.lines.pop().endswith("; every index file is read instead")
    if case == "a later format":
        with pytest.raises(HostError, match="has format 2"):
            publish(models.store)
    else:
        assert publish(models.store).models == 3
        assert reader.query() == direct(models.store, None) and reader.lines == []


def read_published(store: RegistryStore) -> Catalog:
    """The published catalog itself; no index file answers in its place."""
    return catalogs._decoded(catalogs._fetch(store, None) or (b"", ""), store.registry_id)


def bomb(line: bytes, count: int) -> Change:
    """The header, then a line many times, with its number if it has a place for it."""

    def change(data: bytes) -> bytes:
        header = gzip.decompress(data).partition(b"\n")[0].replace(b'"models":3', b'"models":199999')
        packed = BytesIO()
        with gzip.GzipFile("", "wb", 1, packed) as file:
            file.write(header + b"\n")
            for number in range(count):
                file.write(line % number if b"%d" in line else line)
        return packed.getvalue()

    return change


@pytest.mark.parametrize(
    "change",
    [
        bomb(b"0" * 2**20, 64),
        bomb(b" " * 2**20 + b"\n", 64),
        bomb(b'{"name":"a/b"}\n' * 1000, 220),
        bomb(b'{"name":"a/%d","description":"' + b"x" * 4096 + b'"}\n', 34_000),
        bomb(b'{"name":"a/%d","description":"' + b"x" * 8192 + b'"}\n', 1),
    ],
    ids=["one line", "empty lines", "one model again and again", "descriptions", "a long one"],
)
def test_a_bomb_is_refused_early_and_leaves_nothing(models: Registry, tmp_path: Path, change: Change) -> None:
    """Findings of attacks: 5 MB that unpack to 4 GiB, and 983 kB that took 1 GB of memory."""
    publish(models.store)
    file = models.store.root / CATALOG
    file.write_bytes(change(file.read_bytes()))
    tracemalloc.start()
    with pytest.raises(CatalogError):
        read_published(models.store)
    assert tracemalloc.get_traced_memory()[1] < 1.5 * catalogs.MAX_CATALOG_BYTES
    tracemalloc.stop()
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query() == direct(models.store, None) and len(reader.lines) == 1


@pytest.mark.parametrize("bound", ["BYTES", "LINE_BYTES", "MODELS", "ARTIFACTS"])
def test_each_bound_is_held(
    models: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    publish(models.store)
    expected = direct(models.store, None)
    reader = open_reader(tmp_path, str(models.store.root))
    with monkeypatch.context() as patch:
        patch.setattr(catalogs if bound == "BYTES" else catalog_module, f"MAX_CATALOG_{bound}", 2)
        with pytest.raises(CatalogError):
            read_published(models.store)
    with monkeypatch.context() as patch:
        patch.setattr(catalogs, "MAX_DOCUMENT_BYTES", 100)
        with pytest.raises(CatalogError, match="is too large"):
            read_published(models.store)
    assert reader.query() == expected and reader.time is not None


@pytest.mark.more
def test_damaged_lines_are_never_a_bug(models: Registry, tmp_path: Path) -> None:
    """A file with right checksums, some bytes of which are others: an answer, or the index files, but no other error."""
    publish(models.store)
    file = models.store.root / CATALOG
    right, random = gzip.decompress(file.read_bytes()), Random(7)
    reader = open_reader(tmp_path, str(models.store.root))
    for _ in range(200):
        data = bytearray(right)
        for _ in range(random.randint(1, 20)):
            data[random.randrange(len(data))] = random.randrange(256)
        file.write_bytes(gzip.compress(data, 1))
        catalog = read_remote(reader.reader, reader.lines.append, artifacts=True)
        answers(catalog, parse("newest and size > 1"))
        read_remote(reader.reader, reader.lines.append).readable()
    assert reader.lines


def test_one_that_is_too_old_is_not_used(models: Registry, tmp_path: Path) -> None:
    time = publish(models.store).time
    file = models.store.root / CATALOG
    file.write_bytes(edit(time, "2020-01-01T00:00:00Z")(file.read_bytes()))
    reader = open_reader(tmp_path, str(models.store.root))
    assert reader.query(max_age=3600) == direct(models.store, None)
    assert "is older than allowed" in reader.lines[0]
    assert reader.query() and reader.time == "2020-01-01T00:00:00Z"


def test_damage_is_shown_and_read_again(models: Registry, tmp_path: Path) -> None:
    path = models.store.root / index_path(grow.model_name(1))
    right = path.read_bytes()
    path.write_bytes(b"{}\n")
    copy = tmp_path / "copy"
    assert [grow.model_name(1) in damage for damage in publish(models.store, copy).damages] == [True]
    reader = open_reader(tmp_path, str(models.store.root)).reader
    rows, damages = answers(read_remote(reader, print, artifacts=True))
    assert {row["name"] for row in rows} == {grow.model_name(0), grow.model_name(2)} and len(damages) == 1
    path.write_bytes(right)
    assert publish(models.store, copy).damages == []
    _, versions = grow.history(models.id, grow.model_name(0), 0, 7)
    models.store.blob_path(next(iter(versions.values())).digest).unlink()
    (models.store.root / CATALOG).unlink()
    assert publish(models.store).artifacts == 47
    catalog = read_remote(reader, print, artifacts=True)
    assert f"{grow.model_name(0)}:1.0.0" in answers(catalog)[1][0] and catalog.damages() == []


def test_two_runs_do_not_overwrite_each_other(models: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(models.store)
    update = Catalog.update

    def late(self: Catalog, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Catalog, "update", update)
        time.sleep(1.1)
        publish(models.store)
        return update(self, *arguments, **options)

    monkeypatch.setattr(Catalog, "update", late)
    with pytest.raises(LostRaceError):
        publish(models.store)


def test_a_copy_that_somebody_damaged_is_fetched_again(
    models: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(models.store)
    reader = open_reader(tmp_path, str(models.store.root))
    reader.query()
    (copy,) = state_directory().rglob(COPY)
    for data in (b"", b"x" * 20_000):
        copy.write_bytes(data)
        assert reader.query() == direct(models.store, None) and reader.lines == []
    copy.write_bytes(copy.read_bytes()[:-40])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=PermissionError))
        assert reader.query() == direct(models.store, None) and "is damaged" in reader.lines.pop()
    assert reader.query() == direct(models.store, None) and "is damaged" in reader.lines.pop()
    assert reader.query() == direct(models.store, None) and reader.lines == [] and reader.time


def test_collecting_mirroring_and_verifying_know_it(tmp_path: Path) -> None:
    source = grow.grow(tmp_path / "whole", 2, 3, whole=[0, 1])
    publish(source.store)
    collect(source.store)
    assert verify(source.store).damages == []
    target = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=source.id)
    mirror(source.store, target)
    assert verify(target).damages == []
    assert (target.root / CATALOG).read_bytes() == (source.store.root / CATALOG).read_bytes()
    with pytest.raises(InputError, match="is a mirror"):
        publish(target)


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
    rows = database.execute(sys.argv[1]).fetchall()
print(json.dumps(rows))
"""


def test_duckdb_reads_it_over_http_as_the_page_says(models: Registry) -> None:
    """The judge: the query of docs/query.md, asked of `reg serve`."""
    publish(models.store)
    page = (Path(__file__).parents[3] / "docs" / "query.md").read_text("utf-8")
    sql = page.partition("-- DuckDB, on the published catalog\n")[2].partition("```")[0]
    with served(models.store.root) as requests:
        query = sql.replace("https://models.example.com", requests.url)
        command = [sys.executable, "-c", JUDGE, query]
        rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    expected = direct(models.store, "certified and 'stable' in channels")
    assert rows and sorted(rows) == sorted(
        [row["name"], row["version"], row["path"], row["download_size"], row["recall"].get("NAME")]
        for row in expected
    )


def test_no_pull_or_resolve_reads_it(models: Registry, tmp_path: Path) -> None:
    """What decides about a version reads the index file, whatever a catalog says."""
    publish(models.store)
    file = models.store.root / CATALOG
    file.write_bytes(
        edit('"state":"unknown"', '"state":"certified","certified":true', 999)(file.read_bytes())
    )
    own = Registry(tmp_path / "own")
    with counted(models.store.root) as requests:
        remote = own.remotes.read(requests.url)
        assert own.resolve(grow.model_name(2), remote=remote).artifact.state == "unknown"
        assert not requests.requests("GET", "/search/")
