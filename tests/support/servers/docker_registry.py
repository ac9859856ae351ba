"""The distribution's `docker-registry` (`apt-get install docker-registry`), a real OCI registry, and a log of requests."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.servers.regserve import listens, wait
from support.servers.s3servers import free_port

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: info, formatter: json, accesslog: {{disabled: false}}}}
{auth}
"""


@dataclass(frozen=True)
class OciServer:
    """A running registry. `host` is host and port, `data` its directory, `log` the file of its access log."""

    host: str
    data: Path
    log: Path

    def url(self, name: str) -> str:
        return f"oci://{self.host}/{name}"

    def requests(self) -> list[tuple[str, str]]:
        """The methods and paths of all requests so far."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        done = [line for line in lines if line.get("msg") == "response completed"]
        return [(line["http.request.method"], line["http.request.uri"]) for line in done]

    def blob(self, hexadecimal: str) -> Path:
        """The file that has the bytes of a blob."""
        return self.data / "docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"


@contextmanager
def docker_registry(directory: Path, auth: str = "") -> Iterator[OciServer]:
    """Run one in a directory; `auth` is the block of its configuration about authentication."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: apt-get install docker-registry")
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    config, log = directory / "config.yml", directory / "log"
    config.write_text(CONFIG.format(root=directory / "data", port=port, auth=auth))
    with log.open("wb") as file:
        # It takes each variable REGISTRY_... for a setting of its own.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REGISTRY_")}
        process = subprocess.Popen(
            [program, "serve", config], stdout=file, stderr=subprocess.STDOUT, env=environment
        )
    try:
        wait(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None, log.read_text()
        yield OciServer(f"127.0.0.1:{port}", directory / "data", log)
    finally:
        process.terminate()
        process.wait(60)
