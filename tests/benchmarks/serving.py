"""`reg serve` against MLflow's registry and against nginx, on one machine over loopback.

MLflow holds the same models, versions, tags and aliases in its SQLite store, and has the four workers that it takes by
itself; `reg serve` is one process. Both answer the same question, each in its way, to 64 clients of wrk. Servers are
loaded in turn, the idle one still running. Needs `wrk` and `nginx` from the distribution.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from operator import attrgetter
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from support.registries import grow

from benchmarks.httpservers import flat, mlflow, nginx, reg
from benchmarks.load import CLIENTS, Ask, Load, Server, ask, download, timed
from benchmarks.measure import Row, pairs, row
from onnxreg.registry import Registry
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

MODELS, VERSIONS = 200, 5
FEW, MANY = 10, 10_000
BLOB = 512 * 2**20
SECONDS, MLFLOWS_SECONDS = 2, 5
"""Of one load. MLflow answers late."""
FEWER = 8
LISTING = f"list {MODELS} models, {FEWER} clients"
"""So few clients, or MLflow answers nobody in that time."""
MLFLOW = "/api/2.0/mlflow"

Question = tuple[str, list[Ask], list[Ask]]
"""What is asked, of us and of the peer, about one model after the other."""


def questions(names: Sequence[str]) -> list[Question]:
    def of_mlflow(path: str) -> list[Ask]:
        return [Ask("GET", MLFLOW + path.format(quote(flat(name)))) for name in names]

    newest = "/model-versions/search?filter=name%3D%27{}%27&order_by=version_number%20DESC&max_results=1"
    return [
        ("resolve a model's newest", _resolve(names), of_mlflow(newest)),
        (
            "resolve a tag",
            _resolve([f"{name}:stable" for name in names]),
            of_mlflow("/registered-models/alias?name={}&alias=stable"),
        ),
        (
            "list a model's versions",
            [Ask("GET", f"/v1/models/{name}") for name in names],
            of_mlflow("/model-versions/search?filter=name%3D%27{}%27"),
        ),
        (
            "find a model by name",
            [Ask("GET", f"/v1/models/{name}") for name in names],
            of_mlflow("/registered-models/search?filter=name%3D%27{}%27"),
        ),
        (
            LISTING,
            [Ask("GET", "/v1/models")],
            [Ask("GET", f"{MLFLOW}/registered-models/search?max_results=1000")],
        ),
    ]


def _resolve(refs: Sequence[str]) -> list[Ask]:
    return [Ask("POST", "/v1/resolve", json.dumps({"ref": ref})) for ref in refs]


def answers(server: Server, asked: Ask) -> bytes:
    request = Request(server.url + asked.path, asked.body.encode() or None, method=asked.method)
    with urlopen(request, timeout=600) as answer:
        return bytes(answer.read())


def against_mlflow(cache: Path, registry: Registry, names: Sequence[str], count: int) -> Iterator[Row]:
    with reg(registry.store.root) as ours, mlflow(cache, registry, names) as theirs:
        for what, mine, its in questions(names):
            for one, other in list(zip(mine, its, strict=True))[::50]:
                _agree(answers(ours, one), answers(theirs, other))
            load = partial(ask, seconds=MLFLOWS_SECONDS, clients=FEWER if what == LISTING else CLIENTS)
            yield from loaded(
                what, "MLflow", partial(load, ours, mine), partial(load, theirs, its), count, ">= 10"
            )
        peaks = [(ours.peak(), theirs.peak())]
        yield row(f"reg serve, {MODELS} models, peak memory", "MLflow", peaks, "MiB", "")


def _agree(ours: bytes, theirs: bytes) -> None:
    """SystemExit where the two do not speak of the same version, or of as many models."""
    told, other = json.loads(ours), json.loads(theirs)
    if "models" in told:
        same = len(told["models"]) == len(other["registered_models"])
    else:
        manifest = told["manifest"] if "manifest" in told else told["versions"][0]["manifest"]
        same = manifest in theirs.decode()
    if not same:
        raise SystemExit(f"the answers differ: {ours[:200]!r} and {theirs[:200]!r}")


def loaded(
    what: str,
    peer: str,
    ours: Callable[[], Load],
    theirs: Callable[[], Load],
    count: int,
    aim: str,
) -> list[Row]:
    """Rows for the requests a second and the slowest of a hundred, each in pairs."""
    measured = pairs(ours, theirs, count, attrgetter("rate"), warm_up=False)
    return [
        row(what, peer, [(a.rate, b.rate) for a, b in measured], "/s", aim),
        row(f"{what}, median", peer, [(a.median * 1000, b.median * 1000) for a, b in measured], "ms", ""),
        row(f"{what}, p99", peer, [(a.p99 * 1000, b.p99 * 1000) for a, b in measured], "ms", "< 50 ms"),
    ]


def against_nginx(registry: Registry, count: int) -> Iterator[Row]:
    digest = _add_blob(registry)
    with reg(registry.store.root) as ours, nginx(registry.store.root) as theirs:
        for clients in (1, 4):
            what = f"GET of a blob of 512 MiB, {clients} client{'s'[: clients - 1]}"
            rates = pairs(
                lambda clients=clients: download(ours, digest, BLOB, clients),
                lambda clients=clients: download(theirs, digest, BLOB, clients),
                3 * count,
                float,
            )
            yield row(what, "nginx", [(a / 1e6, b / 1e6) for a, b in rates], "MB/s", ">= 0.8")
        yield row("reg serve, sending blobs, peak memory", "nginx", [(ours.peak(), theirs.peak())], "MiB", "")


def small_files(registry: Registry, names: Sequence[str], count: int) -> Iterator[Row]:
    """Small files against nginx: one worker, and one for each of two cores, on both sides."""
    small = [Ask("GET", f"/{index_path(name)}") for name in names]
    for workers in (1, 2):
        root, what = registry.store.root, f"GET of an index file, {workers} worker{'s'[: workers - 1]}"
        with reg(root, workers) as ours, nginx(root, workers) as theirs:
            load = partial(ask, asked=small, seconds=SECONDS, clients=CLIENTS)
            yield from loaded(what, "nginx", partial(load, ours), partial(load, theirs), count, ">= 0.25")


def _add_blob(registry: Registry) -> str:
    """The path of a blob that does not compress."""
    with registry.workspace() as workspace:
        with (workspace / "big.onnx").open("wb") as file:
            for _ in range(BLOB // 2**20):
                file.write(os.urandom(2**20))
        registry.add(Draft("acme/big", workspace, (DraftArtifact("onnx", "float32", "big.onnx"),)))
    return f"/{blob_path(registry.resolve('acme/big').artifact.digest)}"


def size(directory: Path) -> Iterator[Row]:
    """What a server costs over ten thousand models and over ten: to start, to list them first, and once all were asked for."""
    figures: dict[int, list[tuple[float, ...]]] = {}
    for models in (FEW, MANY):
        registry = grow.grow(directory / str(models), models, VERSIONS, manifests=True)
        every = _resolve([grow.model_name(number) for number in range(models)])
        figures[models] = [_cost(registry, every)]
    what = (
        "start until it answers",
        "list of models, the first",
        "peak memory, started",
        "peak memory, all models asked for",
    )
    for place, name in enumerate(what):
        values = [(a[place], b[place]) for a, b in zip(figures[MANY], figures[FEW], strict=True)]
        unit = "MiB" if "memory" in name else "s"
        yield row(f"reg serve, {MANY:,} models: {name}", f"the same, {FEW}", values, unit, "")


def _cost(registry: Registry, every: list[Ask]) -> tuple[float, float, float, float]:
    (registry.store.root / "local" / "search.sqlite").unlink(missing_ok=True)
    started = time.perf_counter()
    with reg(registry.store.root) as server:
        start, memory = time.perf_counter() - started, server.peak()
        listed = timed(lambda: answers(server, Ask("GET", "/v1/models")))
        _ask_all(server, every)
        return start, listed, memory, server.peak()


def _ask_all(server: Server, every: list[Ask]) -> None:
    """One after the other, through one connection."""
    with closing(HTTPConnection(urlsplit(server.url).netloc, timeout=600)) as connection:
        for each in every:
            connection.request(each.method, each.path, each.body or None)
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(f"{each.path} answered {answer.status}: {answer.read()[:200]!r}")
            answer.read()


def benchmark(cache: Path, part: str, count: int = 3) -> list[Row]:
    names = [grow.model_name(number) for number in range(MODELS)]
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        if part == "size":
            return list(size(Path(directory)))
        registry = grow.grow(Path(directory) / "registry", MODELS, VERSIONS, manifests=True)
        if part == "nginx":
            return list(against_nginx(registry, count))
        if part == "small":
            return list(small_files(registry, names, count))
        return list(against_mlflow(cache, registry, names, count))
