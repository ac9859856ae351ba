"""A search over a remote of ten thousand models: from its catalog, and from its index files; requests are counted.

The remotes are `reg serve` and a bucket (SeaweedFS), each behind a proxy that counts. The bucket has the index files
and the catalog, which is all that a search for newest releases reads. DuckDB reads the catalog of the server too.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from shutil import rmtree

from support.registries import grow
from support.servers import s3servers
from support.servers.faults import Proxy, proxy

from benchmarks.clients import REG
from benchmarks.httpservers import reg
from benchmarks.measure import Row, Run, row, run
from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import publish
from onnxreg.registry.store.bucket import BucketStore
from onnxreg.registry.store.bucket_url import BucketUrl
from onnxreg.registry.store.directory import TICK_NANOSECONDS
from onnxreg.registry.store.layout import CATALOG

MODELS, VERSIONS = 10_000, 2
EXPRESSION = "newest and certified"

DUCKDB = """
import sys
from datetime import UTC, datetime
import duckdb
from fsspec.implementations.http import HTTPFileSystem

class Web(HTTPFileSystem):
    def modified(self, path):
        return datetime.now(UTC)

with duckdb.connect() as database:
    database.register_filesystem(Web())
    fields = "version VARCHAR, path VARCHAR, newest BOOLEAN, certified BOOLEAN"
    columns = f"{{name: 'VARCHAR', artifacts: 'STRUCT({fields})[]'}}"
    lines = f"read_json('{sys.argv[1]}', format = 'newline_delimited', columns = {columns})"
    sql = f"SELECT name, a.version, a.path FROM (SELECT name, unnest(artifacts) AS a FROM {lines}) "
    sql += "WHERE a.newest AND a.certified ORDER BY ALL LIMIT 20"
    print(len(database.execute(sql).fetchall()))
"""


def benchmark(count: int = 3) -> list[Row]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        registry = grow.grow(Path(directory) / "models", MODELS, VERSIONS, manifests=True)
        copy = Path(directory) / "copy"
        return [
            *_published(registry, copy, count),
            *_served(registry, Path(directory), count),
            *_in_a_bucket(registry, Path(directory)),
        ]


def _published(registry: Registry, copy: Path, count: int) -> Iterator[Row]:
    """The job: the first catalog, and later runs if nothing changed."""
    time.sleep(TICK_NANOSECONDS / 1e9)  # younger index files would be read again
    command = [REG, "--registry", registry.store.root, "index", "publish"]
    first = run(command)
    later = [run(command) for _ in range(count)]
    what = f"reg index publish, {MODELS:,} models, nothing changed"
    yield row(what, "the first run", [(again.wall, first.wall) for again in later], "s", "")
    publish(registry.store, copy)


def _query(own: Path, remote: str, env: Mapping[str, str] | None = None, *more: str) -> Run:
    command = [REG, "--registry", own, "query", EXPRESSION, "--remote", remote, "--limit", "20", *more]
    return run(command, env)


def _served(registry: Registry, directory: Path, count: int) -> Iterator[Row]:
    """A server lists nothing, so without a catalog there is no answer: the peer is DuckDB on it."""
    own = directory / "own"
    Registry(own)
    with reg(registry.store.root) as server, proxy(server.url) as between:
        first, _ = _counted(between, lambda: _query(own, between.url))
        pairs, requests = [], 0
        for _ in range(count):
            again, requests = _counted(between, lambda: _query(own, between.url))
            command = [sys.executable, "-c", DUCKDB, f"{between.url}/{CATALOG}"]
            pairs.append((again, run(command)))
    what = f"reg query --remote, reg serve, {MODELS:,} models"
    yield row(f"{what}, snapshot unchanged", "DuckDB, HTTP", [(a.wall, b.wall) for a, b in pairs], "s", "")
    yield row(
        f"{what}, snapshot unchanged, peak memory",
        "DuckDB, HTTP",
        [(a.peak, b.peak) for a, b in pairs],
        "MiB",
        "",
    )
    yield row(f"{what}, first snapshot", "snapshot unchanged", [(first.wall, pairs[0][0].wall)], "s", "")
    yield row(f"{what}, requests", "one", [(float(requests), 1.0)], "requests", "1 request")


def _counted(between: Proxy, work: Callable[[], Run]) -> tuple[Run, int]:
    before = len(between.seen)
    done = work()
    return done, len(between.seen) - before


def _in_a_bucket(registry: Registry, directory: Path) -> Iterator[Row]:
    (directory / "s3").mkdir()
    with s3servers.seaweedfs(directory / "s3") as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        os.environ.update(server.environment)
        place = server.fresh()
        _fill(BucketStore(BucketUrl.parse(place)), registry)
        own = directory / "own-s3"
        Registry(own)
        with proxy(server.endpoint) as between:
            env |= server.environment | {"AWS_ENDPOINT_URL": between.url}
            _query(own, place, env)
            with_catalog, few = _counted(between, lambda: _query(own, place, env))
            rmtree(own)
            Registry(own)
            without, many = _counted(between, lambda: _query(own, place, env, "--max-age", "0s"))
    what = f"reg query --remote, S3, {MODELS:,} models"
    yield row(what, "the same, --max-age 0s", [(with_catalog.wall, without.wall)], "s", "")
    yield row(f"{what}, requests", "the same, --max-age 0s", [(float(few), float(many))], "requests", "")


def _fill(store: BucketStore, registry: Registry) -> None:
    """The files that a search reads."""
    root = registry.store.root
    paths = [root / "registry.json", root / CATALOG, *(root / "index").rglob("*.jsonl")]
    with ThreadPoolExecutor(16) as pool:
        list(
            pool.map(
                lambda path: store.create(str(path.relative_to(root)), BytesIO(path.read_bytes())), paths
            )
        )
