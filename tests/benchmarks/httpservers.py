"""Servers of models and files on this machine, for as long as a `with` block runs: ours, MLflow's registry, nginx."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.clients import REG
from benchmarks.load import Server, free_port, serving
from benchmarks.peers import installed
from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.search.catalog import versions_json

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
    command = [REG, "--registry", root, "serve", "--port", str(port), "--workers", str(workers)]
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
    held = {flat(name): _versions(registry, name) for name in names}
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


def _versions(registry: Registry, name: str) -> list[dict[str, Any]]:
    """All versions, oldest first."""
    versions = versions_json(lookup.open_log(registry.store, name))["versions"]
    return [{key: str(value) for key, value in version.items()} for version in reversed(versions)]
