"""The distribution protocol for one repository: manifests, blobs, referrers. Every byte is checked by its digest."""

import http.client
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit

from onnxreg.registry.oci.documents import INDEX, MANIFEST, OciDocument, referrers_index
from onnxreg.registry.oci.exchange import MAX_ANSWER_BYTES, Answer, exchange
from onnxreg.registry.oci.login import Login
from onnxreg.registry.oci.target import OciTarget
from onnxreg.registry.store.http import HttpStore, RefusedError, is_passing
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.requests import retrying
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RemoteError

MAX_MANIFEST_BYTES = MAX_ANSWER_BYTES
MAX_LIST_BYTES, MAX_PAGES = 16 * 2**20, 1000
"""Bytes and pages of a list of referrers."""
_NEXT_PAGE = re.compile(r"<([^<>]+)>\s*;[^,]*\brel=\"?next\"?", re.IGNORECASE)
"""The header `Link` of a page that is not the last (RFC 8288)."""
Body = Callable[[], Any]
"""Opens the bytes to send, for each try."""


class OciBlobs(HttpStore):
    """The blobs of a repository, read in ranges like files of a web server. `renew` logs in for a path."""

    def __init__(self, target: OciTarget, login: Login, renew: Callable[[str], object]) -> None:
        super().__init__(target.api)
        self._login = login
        self._renew = renew

    def _hint(self, status: int) -> str:
        return _hint(self._login.target, status)

    def authorization(self) -> dict[str, str]:
        return self._login.header

    def _send(self, method: str, key: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        try:
            return super()._send(method, key, headers)
        except RefusedError as error:
            if error.status != 401:
                raise
        self._renew(key)
        return super()._send(method, key, headers)


class OciClient:
    """One repository of an OCI registry. `url` is how people write it."""

    def __init__(self, target: OciTarget, login: Login | None = None) -> None:
        self.target = target
        self.url = f"oci://{target.host}/{target.repository}"
        self._login = login or Login(target)
        self._blobs = OciBlobs(target, self._login, lambda path: self._send("HEAD", path))

    def manifest(self, reference: str) -> bytes:
        """The manifest or index that a tag or digest names. NotFoundError if nothing has that name."""
        data = self.find_manifest(reference)
        if data is None:
            raise NotFoundError(f"{self.url} has no {reference}", "check the tag; is the version published?")
        return data

    def find_manifest(self, reference: str) -> bytes | None:
        """The manifest or index that a tag or digest names; None if nothing has that name."""
        answer = self._send("GET", f"manifests/{reference}", {"Accept": f"{INDEX}, {MANIFEST}"})
        if answer.status == 404:
            return None
        self._check(answer, 200, f"reading {reference}")
        if reference.startswith("sha256:") and str(Digest.of(answer.data)) != reference:
            raise IntegrityError(f"{self.url} sends other bytes than {reference}")
        return answer.data

    def put_manifest(self, document: OciDocument, reference: str | None = None) -> Answer:
        """Store a document whose blobs are there, under its digest or a tag. InputError if no registry would take it."""
        if len(document.data) > MAX_MANIFEST_BYTES:
            raise InputError(
                f"a document of this version has more than the {MAX_MANIFEST_BYTES >> 20} MiB of an OCI manifest",
                "a version of fewer files fits",
            )
        name = reference or str(document.digest)
        headers = {"Content-Type": document.media_type}
        answer = self._send("PUT", f"manifests/{name}", headers, lambda: document.data)
        self._check(answer, 201, f"storing the manifest {name}")
        return answer

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return {digest for digest in digests if self._blobs.has([f"blobs/{digest}"])}

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """A stream over a blob. A token that expires meanwhile is renewed."""
        stream = self._blobs.open(f"blobs/{digest}", start)
        if stream is None:
            raise MissingBlobError(digest, self.url)
        return stream

    def upload(self, digest: Digest, size: int, body: Body, mount_from: str | None = None) -> bool:
        """Send a blob that is not there. False if the server had it in `mount_from`.

        A broken upload begins again with a new one.
        """

        def attempt() -> bool:
            mount = f"?{urlencode({'mount': str(digest), 'from': mount_from})}" if mount_from else ""
            answer = self._send("POST", f"blobs/uploads/{mount}", body=lambda: b"", retries=False)
            if answer.status == 201 and mount_from:
                return False
            self._check(answer, 202, "starting an upload")
            location = answer.headers.get("Location")
            if not location:
                raise RemoteError(f"{self.url} does not say where to upload to")
            url = http_rules.target(f"{self.target.api}/blobs/uploads/", location)
            url += f"{'&' if '?' in url else '?'}{urlencode({'digest': str(digest)})}"
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            answer = self._send("PUT", url, headers, body, retries=False)
            self._check(answer, 201, f"uploading the blob {digest}")
            return True

        return retrying(attempt, is_passing, self.target.host)

    def referrers(self, digest: Digest, types: Collection[str]) -> list[Mapping[str, Any]]:
        """The descriptors of the manifests of these types whose subject is this one, by the API or by the fallback tag.

        RemoteError for a list that is longer than `MAX_LIST_BYTES`.
        """
        page, size = f"referrers/{digest}", 0
        descriptors: list[Mapping[str, Any]] = []
        for number in range(MAX_PAGES):
            answer = self._send("GET", page)
            if answer.status == 404 and not number:
                data = self.find_manifest(fallback_tag(digest))
                return [] if data is None else entries(data, "manifests", self.url, types)
            self._check(answer, 200, "reading the referrers")
            descriptors += entries(answer.data, "manifests", self.url, types)
            size += len(answer.data)
            match = _NEXT_PAGE.search(answer.headers.get("Link", ""))
            if match is None:
                return descriptors
            if size > MAX_LIST_BYTES:
                break
            page = http_rules.target(f"{self.target.api}/referrers/{digest}", match[1])
        raise RemoteError(
            f"the list of referrers of {self.url} is longer than {MAX_PAGES:,} pages or {MAX_LIST_BYTES >> 20} MiB",
            "it may not be the registry that you mean",
        )

    def put_referrer(self, document: OciDocument, subject: Digest) -> None:
        """Store a manifest with a subject; if the registry does not index it, add it to the fallback tag."""
        if self.put_manifest(document).headers.get("OCI-Subject"):
            return
        data = self.find_manifest(fallback_tag(subject))
        before = [] if data is None else entries(data, "manifests", self.url)
        entry = document.descriptor()
        if entry["digest"] not in {item.get("digest") for item in before}:
            self.put_manifest(referrers_index([*before, entry]), fallback_tag(subject))

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        retries: bool = True,
    ) -> Answer:
        """Send a request, again after a passing failure if it `retries`, once more with a new token."""
        url = path if "://" in path else f"{self.target.api}/{path}"
        is_own = urlsplit(url)[:2] == urlsplit(self.target.base)[:2]

        def attempt() -> Answer:
            authorization = self._login.header if is_own else {}
            answer = exchange(method, url, headers, authorization, body and body())
            challenges = answer.headers.get_all("WWW-Authenticate", [])
            if answer.status == 401 and is_own and self._login.renew(challenges, authorization):
                answer = exchange(method, url, headers, self._login.header, body and body())
            return answer

        with requests.reading():
            return retrying(attempt, is_passing, self.target.host) if retries else attempt()

    def _check(self, answer: Answer, status: int, action: str) -> None:
        """RemoteError, with the protocol's error code, if the server answered with another status."""
        if answer.status == status:
            return
        try:
            code = f" {str(json.loads(answer.data)['errors'][0]['code'])[:60]}"
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            code = ""
        message = f"{action} in {self.url} failed: {answer.status}{code}"
        raise RefusedError(message, answer.status, _hint(self.target, answer.status))


def _hint(target: OciTarget, status: int) -> str:
    if status in (401, 403):
        return f"log in: skopeo login {target.host}"
    if 300 <= status < 400:
        return "a redirect of an upload is not followed; name the server that it leads to"
    return "does this server take OCI artifacts?"


def fallback_tag(digest: Digest) -> str:
    """The tag of the index of a manifest's referrers, in a registry without the referrers API."""
    return f"sha256-{digest.hex}"


def entries(
    data: bytes, key: str, label: str, types: Collection[str] | None = None
) -> list[Mapping[str, Any]]:
    """The descriptors of a manifest or an index, or those of these artifact types. IntegrityError if it is malformed."""
    try:
        descriptors = json.loads(data)[key]
        if types is not None:
            descriptors = [entry for entry in descriptors if entry.get("artifactType") in types]
        for entry in descriptors:
            Digest.parse(entry["digest"])
        return list(descriptors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        raise IntegrityError(f"{label} sends a document without valid {key}") from None
