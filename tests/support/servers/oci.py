"""An OCI registry in memory, with or without the referrers API; `hook(handler)` may answer a request first."""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Hook = Callable[["Handler"], bool]


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Oci(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hook: Hook | None = None
        self.has_referrers = True
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.referrers: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def url(self, name: str) -> str:
        return f"oci://127.0.0.1:{self.server_port}/{name}"

    def put(self, data: bytes) -> str:
        self.blobs[digest_of(data)] = data
        return digest_of(data)

    def refer(self, subject: str, statement: bytes, media_type: str) -> None:
        """Add a statement about a manifest."""
        layer = {"mediaType": media_type, "digest": self.put(statement), "size": len(statement)}
        data = json.dumps({"layers": [layer]}).encode()
        self.manifests[digest_of(data)] = data, "application/vnd.oci.image.manifest.v1+json"
        entry = {"digest": digest_of(data), "size": len(data), "artifactType": media_type}
        self.referrers.setdefault(subject, []).append(entry)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Oci
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        if self.server.hook is None or not self.server.hook(self):
            self.answer()

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def answer(self) -> None:
        split, server = urlsplit(self.path), self.server
        match = re.fullmatch(r"/v2/(.+)/(blobs/uploads|blobs|manifests|referrers)/(.*)", split.path)
        repository, kind, name = match.groups() if match else ("", "", "")
        if kind == "blobs/uploads":
            if self.command == "POST":
                return self.reply(202, Location=f"/v2/{repository}/blobs/uploads/{uuid.uuid4().hex}")
            return self.reply(201 if server.put(self.body) == parse_qs(split.query)["digest"][0] else 400)
        if kind == "manifests" and self.command == "PUT":
            media_type = self.headers["Content-Type"]
            for key in (name, digest_of(self.body)):
                server.manifests[key] = self.body, media_type
            value = json.loads(self.body)
            subject = value.get("subject", {}).get("digest", "") if server.has_referrers else ""
            entry = {"digest": digest_of(self.body), "artifactType": value.get("artifactType")}
            server.referrers.setdefault(subject, []).append(entry)
            return self.reply(201, **({"OCI_Subject": subject} if subject else {}))
        if kind == "manifests" and name in server.manifests:
            return self.reply(200, server.manifests[name][0], Content_Type=server.manifests[name][1])
        if kind == "referrers" and server.has_referrers:
            return self.reply(200, json.dumps({"manifests": server.referrers.get(name, [])}).encode())
        if kind == "blobs" and name in server.blobs:
            data = server.blobs[name]
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                return self.reply(200, data)
            start, end = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1) + 1
            return self.reply(206, data[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(data)}")
        self.reply(404)


@contextmanager
def running() -> Iterator[Oci]:
    with Oci() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
