"""`reg serve` against MLflow's registry and against nginx, on one machine over loopback.

MLflow holds the same models, versions, tags and aliases in its SQLite store, and has the four workers that it takes by
itself; `reg serve` is one process, configured as behind a proxy. Both answer the same question, each in its way, to 64
clients of wrk. Servers are loaded in turn, the idle one still running. Needs `wrk` and `nginx` from the distribution.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from support.registries import grow

from benchmarks.clients import REG
from benchmarks.load import CLIENTS, Ask, Load, Server, ask, download, free_port, serving
from benchmarks.measure import Row, pairs, row
from benchmarks.peers import installed
from onnxreg.registry import Registry
from onnxreg.registry.log.log import open_log
from onnxreg.registry.search.catalog import versions_json
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

FILL = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1], registry_uri=sys.argv[1])
for name, versions in json.load(sys.stdin).items():
    client.create_registered_model(name)
    for version in versions:
        made = client.create_model_version(name, "s3://models/" + version["manifest"], tags=version)
        if "stable" in version["channels"]:
            client.set_registered_model_alias(name, "stable", made.version)
"""
"""What `reg ls NAME --json` says of each version, as tags, and the channel as an alias."""

NGINX = """
daemon off; user root; worker_processes {3}; pid {0}/pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log {0}/access; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
    server {{ listen 127.0.0.1:{1}; root {2}; }}
}}
"""


@contextmanager
def reg(root: Path, workers: int = 1) -> Iterator[Server]:
    port = free_port()
    options = ["--behind-proxy", "--port", str(port), "--workers", str(workers)]
    command = [REG, "--registry", root, "serve", *options]
    with serving(command, port, "/healthz") as server:
        yield server


@contextmanager
def nginx(root: Path, workers: int = 1) -> Iterator[Server]:
    if shutil.which("nginx") is None:
        raise SystemExit("nginx is missing: apt-get install nginx-light")
    with tempfile.TemporaryDirectory() as directory:
        port, config = free_port(), Path(directory) / "nginx.conf"
        config.write_text(NGINX.format(directory, port, root, workers))
        with serving(["nginx", "-c", config], port, "/registry.json") as server:
            yield server


@contextmanager
def mlflow(cache: Path, registry: Registry, names: Sequence[str]) -> Iterator[Server]:
    """MLflow's server over a SQLite store that holds what the registry does."""
    program, env = installed(cache, "mlflow") / "mlflow", {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    held = {flat(name): _versions_of(registry, name) for name in names}
    with tempfile.TemporaryDirectory() as directory:
        store, port = f"sqlite:///{directory}/mlflow.db", free_port()
        fill = [program.with_name("python"), "-c", FILL, store]
        subprocess.run(fill, input=json.dumps(held), text=True, env=env, check=True, capture_output=True)
        command = [program, "server", "--backend-store-uri", store, "--default-artifact-root", directory]
        patient = ["--uvicorn-opts", "--timeout-worker-healthcheck 60"]  # else busy workers are killed
        with serving([*command, *patient, "--port", str(port)], port, "/health", env) as server:
            yield server


def flat(name: str) -> str:
    """A name as MLflow takes it: without a slash."""
    return name.replace("/", ".")


def _versions_of(registry: Registry, name: str) -> list[dict[str, Any]]:
    """All versions, oldest first."""
    versions = versions_json(open_log(registry.store, name))["versions"]
    return [{key: str(value) for key, value in version.items()} for version in reversed(versions)]


MODELS, VERSIONS = 200, 5
BLOB = 512 * 2**20
SECONDS, MLFLOWS_SECONDS = 2, 5
"""Of one load. MLflow answers late."""
NEWEST = "/api/2.0/mlflow/model-versions/search?filter=name%3D%27{}%27&order_by=version_number%20DESC&max_results=1"


def answers(server: Server, asked: Ask) -> bytes:
    request = Request(server.url + asked.path, asked.body.encode() or None, method=asked.method)
    with urlopen(request, timeout=600) as answer:
        return bytes(answer.read())


def against_mlflow(cache: Path, registry: Registry, names: Sequence[str], count: int) -> Iterator[Row]:
    """SystemExit if the two do not speak of the same version."""
    mine = [Ask("POST", "/v1/resolve", json.dumps({"ref": name})) for name in names]
    its = [Ask("GET", NEWEST.format(quote(flat(name)))) for name in names]
    with reg(registry.store.root) as ours, mlflow(cache, registry, names) as theirs:
        for one, other in list(zip(mine, its, strict=True))[::50]:
            if json.loads(answers(ours, one))["manifest"] not in answers(theirs, other).decode():
                raise SystemExit(f"the answers to {one.body} differ")
        load = partial(ask, seconds=MLFLOWS_SECONDS, clients=CLIENTS)
        sides = partial(load, ours, mine), partial(load, theirs, its)
        yield from loaded("resolve a model's newest", "MLflow", *sides, count, ">= 10")
        peaks = [(ours.peak(), theirs.peak())]
        yield row(f"reg serve, {MODELS} models, peak memory", "MLflow", peaks, "MiB", "")


def loaded(
    what: str, peer: str, ours: Callable[[], Load], theirs: Callable[[], Load], count: int, aim: str
) -> list[Row]:
    """Rows for the requests a second and the slowest of a hundred, each in pairs."""
    measured = pairs(ours, theirs, count, attrgetter("rate"), warm_up=False)
    return [
        row(what, peer, [(a.rate, b.rate) for a, b in measured], "/s", aim),
        row(f"{what}, median", peer, [(a.median * 1000, b.median * 1000) for a, b in measured], "ms", ""),
        row(f"{what}, p99", peer, [(a.p99 * 1000, b.p99 * 1000) for a, b in measured], "ms", "< 50 ms"),
    ]


def against_nginx(registry: Registry, count: int) -> Iterator[Row]:
    path = _add_blob(registry)
    with reg(registry.store.root) as ours, nginx(registry.store.root) as theirs:
        for clients in (1, 4):
            what = f"GET of a blob of 512 MiB, {clients} client{'s'[: clients - 1]}"
            sides = (partial(download, server, path, BLOB, clients) for server in (ours, theirs))
            rates = [(a / 1e6, b / 1e6) for a, b in pairs(*sides, 3 * count, float)]
            yield row(what, "nginx", rates, "MB/s", ">= 0.8")
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


def benchmark(cache: Path, part: str, count: int = 3) -> list[Row]:
    names = [grow.model_name(number) for number in range(MODELS)]
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        registry = grow.grow(Path(directory) / "registry", MODELS, VERSIONS, manifests=True)
        if part == "nginx":
            return list(against_nginx(registry, count))
        if part == "small":
            return list(small_files(registry, names, count))
        return list(against_mlflow(cache, registry, names, count))
