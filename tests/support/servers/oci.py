"""An OCI registry in memory, with or without the referrers API; `hook(handler)` may answer a request first."""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from onnxreg.registry import Registry
from onnxreg.registry.oci import OciTarget, PublishResult, publish
from onnxreg.schema.core.ref import Ref
from support.servers import http


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def send(registry: Registry, url: str, ref: str = "acme/pii") -> PublishResult:
    """Publish a version."""
    return publish(registry.store, Ref.parse(ref), OciTarget.parse(url))


class Oci:
    def __init__(self) -> None:
        self.base = ""
        self.hook: Callable[[Handler], bool] = lambda handler: False
        self.has_referrers = True
        self.page = 100
        """Referrers of one answer."""
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.referrers: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[tuple[str, str]] = []

    @property
    def host(self) -> str:
        return self.base.removeprefix("http://")

    def url(self, name: str) -> str:
        return f"oci://{self.host}/{name}"

    def put(self, data: bytes) -> str:
        self.blobs[digest_of(data)] = data
        return digest_of(data)

    def refer(self, subject: str, media_type: str, *statements: bytes) -> None:
        """Add a manifest with these statements about another one."""
        digests = [self.put(statement) for statement in statements]
        layers = [{"mediaType": media_type, "digest": digest, "size": 1} for digest in digests]
        data = json.dumps({"layers": layers, "number": len(self.manifests)}).encode()
        self.manifests[digest_of(data)] = data, "application/vnd.oci.image.manifest.v1+json"
        entry = {"digest": digest_of(data), "size": len(data), "artifactType": media_type}
        self.referrers.setdefault(subject, []).append(entry)


class Handler(http.Handler):
    oci: Oci

    def answer(self) -> None:
        split, oci = urlsplit(self.path), self.oci
        oci.requests.append((self.command, self.path))
        if oci.hook(self):
            return
        match = re.fullmatch(r"/v2/(.+)/(blobs/uploads|blobs|manifests|referrers)/(.*)", split.path)
        repository, kind, name = match.groups() if match else ("", "", "")
        if kind == "blobs/uploads":
            if self.command == "POST":
                location = f"/v2/{repository}/blobs/uploads/{uuid.uuid4().hex}"
                return self.reply(202, headers={"Location": location})
            return self.reply(201 if oci.put(self.body) == self.query["digest"][0] else 400)
        if kind == "manifests" and self.command == "PUT":
            for key in (name, digest_of(self.body)):
                oci.manifests[key] = self.body, self.headers["Content-Type"]
            value = json.loads(self.body)
            subject = value.get("subject", {}).get("digest", "") if oci.has_referrers else ""
            entry = {"digest": digest_of(self.body), "artifactType": value.get("artifactType")}
            oci.referrers.setdefault(subject, []).append(entry)
            return self.reply(201, headers={"OCI-Subject": subject} if subject else {})
        if kind == "manifests" and name in oci.manifests:
            data, media_type = oci.manifests[name]
            return self.reply(200, data, {"Content-Type": media_type})
        if kind == "referrers" and oci.has_referrers:
            start, every = int(self.query.get("start", ["0"])[0]), oci.referrers.get(name, [])
            page = json.dumps({"manifests": every[start : start + oci.page]}).encode()
            link = {"Link": f'<{split.path}?start={start + oci.page}>; rel="next"'}
            return self.reply(200, page, link if start + oci.page < len(every) else {})
        if kind == "blobs" and name in oci.blobs:
            data = oci.blobs[name]
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                return self.reply(200, data)
            start, end = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1) + 1
            return self.reply(206, data[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})
        self.reply(404)


@contextmanager
def running() -> Iterator[Oci]:
    oci = Oci()
    with http.serving(Handler, oci=oci) as oci.base:
        yield oci
