"""The referrers API of distribution-spec 1.1 in front of a `docker-registry`, which has none.

No package of PyPI, Debian or npm has a registry with this API. Everything else passes through to the real registry.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from onnxreg.schema.core.digest import Digest
from support.servers.docker_registry import OciServer

PAGE = 2
"""Referrers of a page: few, so that a list has many pages."""
INDEX = "application/vnd.oci.image.index.v1+json"
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


@contextmanager
def with_referrers(registry: OciServer) -> Iterator[OciServer]:
    """The same registry at another address, with the API."""
    with _Server(registry.host) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield replace(registry, host=f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.referrers: dict[tuple[str, str], list[dict[str, Any]]] = {}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        repository, _, rest = urlsplit(self.path).path.removeprefix("/v2/").rpartition("/referrers/")
        if not repository:
            return self._pass_on()
        start = int(parse_qs(urlsplit(self.path).query).get("start", ["0"])[0])
        every = self.server.referrers.get((repository, rest), [])
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": every[start : start + PAGE]}
        headers = {"Content-Type": INDEX}
        if start + PAGE < len(every):
            headers["Link"] = f'</v2/{repository}/referrers/{rest}?start={start + PAGE}>; rel="next"'
        self._send(200, headers, json.dumps(document).encode())

    def do_PUT(self) -> None:
        repository, _, rest = self.path.removeprefix("/v2/").rpartition("/manifests/")
        data = self.rfile.read(int(self.headers["Content-Length"]))
        subject = json.loads(data).get("subject") if repository else None
        if subject is None:
            return self._pass_on(data)
        described = {"mediaType": self.headers["Content-Type"], "digest": rest, "size": len(data)}
        assert rest == str(Digest.of(data))
        manifest = json.loads(data)
        described |= {key: manifest[key] for key in ("artifactType", "annotations") if key in manifest}
        self.server.referrers.setdefault((repository, subject["digest"]), []).append(described)
        self._pass_on(data, {"OCI-Subject": subject["digest"]})

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_HEAD(self) -> None:
        self._pass_on()

    def _pass_on(self, data: bytes = b"", more: dict[str, str] | None = None) -> None:
        """The answer of the registry, whose own address in it is this one."""
        connection = http.client.HTTPConnection(self.server.upstream, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        headers["Host"] = f"127.0.0.1:{self.server.server_port}"
        connection.request(self.command, self.path, data, headers)
        answer = connection.getresponse()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP}
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        self._send(answer.status, kept | (more or {}), answer.read(), length)
        connection.close()

    def _send(self, status: int, headers: dict[str, str], data: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": length or str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *words: Any) -> None:
        """Say nothing."""
