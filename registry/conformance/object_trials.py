"""Trials of stores of objects, in a place of their own: S3 below a prefix, an fsspec file system in a directory."""

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

from onnxreg.registry.conformance.trial import InapplicableError, PromiseTrial, object_trials, push_and_pull
from onnxreg.registry.store.fsspec_store import file_remote
from onnxreg.registry.store.net.requests import retrying
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.promises import DELETED_OBJECTS
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.store.require_cas import CasGuardedStore, unguarded
from onnxreg.registry.store.s3.bucket import S3Store
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.schema.core.errors import Advice, RemoteError, why

PART_BYTES = 5 * 2**20
"""Size of a part; S3 refuses smaller ones, except the last."""


class S3Scratch:
    """A fresh prefix below that of the registry, which may not exist yet."""

    def __init__(self, url: S3Url) -> None:
        above = f"{url.prefix}/" if url.prefix else ""
        self._url = replace(url, prefix=f"{above}gc/live-{secrets.token_hex(8)}")
        self._store = S3Store(self._url)
        self._client = S3Client(self._url)

    @property
    def description(self) -> str:
        return f"objects below {self._url.url}"

    @property
    def remedy(self) -> Advice:
        options = {
            name: value for name, value in self._url.options if name in ("endpoint", "profile", "region")
        }
        return Advice("delete-objects", target=f"s3://{self._url.bucket}/{self._url.prefix}/", **options)

    def make(self) -> None:
        """Check that the store answers; a prefix needs no creation."""
        next(self._store.list(""), None)

    def trials(self) -> list[PromiseTrial]:
        return [
            *object_trials(self._store),
            PromiseTrial("batch delete", "one request deletes many objects", self._batch),
            PromiseTrial(
                "ranges",
                "a range has exactly the bytes asked for, of the object that was meant",
                self._ranges,
            ),
            PromiseTrial(
                "conditional read", "what did not change is not sent again (304)", self._conditional
            ),
            PromiseTrial("checksum", "bytes with another SHA-256 than announced are refused", self._checksum),
            PromiseTrial("multipart", "parts become one object at once, and create-only", self._multipart),
            PromiseTrial(
                "lost answer", "an own write whose answer was lost is not a lost race", self._lost_answer
            ),
            PromiseTrial(
                "two writers", "both pushes arrive, and come back whole", lambda: push_and_pull(self._open)
            ),
        ]

    def clear(self) -> Iterator[str]:
        self._store.delete([key for key, _ in self._store.list("")])
        with suppress(RejectedError):
            for upload in self._request("list_multipart_uploads", Prefix=self._client.path("")).get(
                "Uploads", ()
            ):
                self._request("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])
        remaining = len(list(self._store.list("")))
        if remaining:
            yield f"{remaining} objects are still there"

    def _request(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Send a request, and again only if the server is busy: most trials expect a refusal."""
        return retrying(lambda: self._client.request(f"trying {operation}", operation, parameters), _is_busy)

    def _is_refused(self, status: int, operation: str, **parameters: Any) -> bool:
        """Check that a request is refused with this status; another refusal is raised."""
        try:
            self._request(operation, **parameters)
        except RejectedError as error:
            if error.status != status:
                raise
            return True
        return False

    def _open(self) -> RegistryStore:
        """Open the registry in the scratch, a new object for each caller."""
        return ObjectRegistry.create(S3Store(replace(self._url, prefix=f"{self._url.prefix}/registry")))

    def _batch(self) -> Iterator[str]:
        keys = [f"batch/{number}" for number in range(DELETED_OBJECTS)]
        for key in keys:
            self._store.create(key, BytesIO(b"deleted"))
        if not self._store.delete_many(keys):
            raise InapplicableError("this server deletes one object at a time, which is only slower")
        if self._store.has(keys):
            yield "some of them are still there"

    def _ranges(self) -> Iterator[str]:
        key, data = self._client.path("ranges"), bytes(range(256))
        self._store.create("ranges", BytesIO(data))
        content, answer = self._client.read("trying a range", 1000, Key=key, Range="bytes=10-19")
        if content != data[10:20] or not str(answer.get("ContentRange", "")).endswith("/256"):
            yield f"bytes 10 to 19 were asked for, and {len(content)} bytes came"
        if not self._is_refused(416, "get_object", Key=key, Range="bytes=256-300"):
            yield "a range behind the end is answered"
        self._store.swap("ranges", data[::-1], answer["ETag"])
        if not self._is_refused(412, "get_object", Key=key, Range="bytes=10-19", IfMatch=answer["ETag"]):
            yield "a range of an object that changed meanwhile is answered"

    def _conditional(self) -> Iterator[str]:
        key = self._client.path("conditional")
        self._store.create("conditional", BytesIO(b"first"))
        _, tag = self._store.get("conditional") or (b"", "")
        if not self._is_refused(304, "get_object", Key=key, IfNoneMatch=tag):
            yield "what did not change is sent again"
        self._store.swap("conditional", b"second", tag)
        if self._is_refused(304, "get_object", Key=key, IfNoneMatch=tag):
            yield "what changed is called unchanged"

    def _checksum(self) -> Iterator[str]:
        wrong = b64encode(hashlib.sha256(b"other bytes").digest()).decode()
        if not self._is_refused(
            400, "put_object", Key=self._client.path("checksum"), Body=BytesIO(b"bytes"), ChecksumSHA256=wrong
        ):
            yield "they are accepted; what comes back is checked, but only by the reader"
        elif self._store.get("checksum") is not None:
            yield "they are refused, and there all the same"

    def _multipart(self) -> Iterator[str]:
        data = secrets.token_bytes(PART_BYTES + 1)
        if not self._can_complete("multipart", data):
            yield "an object that is not there cannot be made of parts"
        if self._can_complete("multipart", data[::-1]):
            yield "an object that is there is made again of parts"
        current = self._store.get("multipart")
        if current is None or current[0] != data:
            yield "other bytes are there than were sent first"

    def _can_complete(self, key: str, data: bytes) -> bool:
        """Create an object of two parts; if it exists already, abort the upload and return False."""
        path = {"Key": self._client.path(key)}
        upload = {
            **path,
            "UploadId": self._request("create_multipart_upload", **path, ChecksumAlgorithm="SHA256")[
                "UploadId"
            ],
        }
        parts = []
        for number, part in enumerate((data[:PART_BYTES], data[PART_BYTES:]), 1):
            checksum = {"ChecksumSHA256": b64encode(hashlib.sha256(part).digest()).decode()}
            response = self._request(
                "upload_part", **upload, PartNumber=number, Body=BytesIO(part), **checksum
            )
            parts.append({"PartNumber": number, "ETag": response["ETag"], **checksum})
        if not self._is_refused(
            412, "complete_multipart_upload", **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
        ):
            return True
        with suppress(RejectedError):
            self._request("abort_multipart_upload", **upload)
        return False

    def _lost_answer(self) -> Iterator[str]:
        """The same swap twice: the second simulates a repetition after a lost answer."""
        self._store.create("lost", BytesIO(b"first"))
        _, tag = self._store.get("lost") or (b"", "")
        self._store.swap("lost", b"ours", tag)
        if not self._store.swap("lost", b"ours", tag):
            yield "it looks like one"
        if self._store.swap("lost", b"others", tag):
            yield "a lost race looks like an own write"


def _is_busy(error: Exception) -> bool:
    return isinstance(error, RejectedError) and (error.status == 429 or error.status >= 500)


class FileScratch:
    """A fresh directory below that of the registry, with one writer."""

    def __init__(self, url: str) -> None:
        base = url.partition("?")[0].rstrip("/")
        self._registry, self._path = url, f"gc/live-{secrets.token_hex(8)}/"
        self._url = f"{base}/{self._path}"

    @property
    def description(self) -> str:
        return f"files below {self._url}"

    @property
    def remedy(self) -> Advice:
        return Advice("clear-leftovers", registry=self._registry, paths=[self._path])

    def make(self) -> None:
        self._open()

    def trials(self) -> list[PromiseTrial]:
        store = self._open().store
        shared = isinstance(store, CasGuardedStore)
        return [
            *object_trials(unguarded(store), shared),
            PromiseTrial(
                "writers", "a push comes back whole", lambda: push_and_pull(self._open, 2 if shared else 1)
            ),
        ]

    def clear(self) -> Iterator[str]:
        files, root = _file_system(self._url)
        try:
            if files.exists(root):
                files.rm(root, recursive=True)
            if files.exists(root):
                yield "it is still there"
        except Exception as error:
            raise RemoteError(f"removing {self._url} failed: {why(error)}", "remove it by hand") from error

    def _open(self) -> ObjectRegistry:
        return file_remote(f"{self._url}registry?single_writer=yes", create=True)


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    files, root = url_to_fs(url, use_listings_cache=False)
    return files, str(root)
