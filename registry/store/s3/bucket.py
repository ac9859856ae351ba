"""Objects in a bucket of S3, or of a server that speaks its protocol and honours conditions.

    s3://bucket/prefix
    s3://bucket/prefix?profile=lab&endpoint=https://minio.lab:9000&region=eu-central-1&path_style=yes
    s3://bucket/prefix?anonymous=yes            read a public bucket, unsigned

Credentials, endpoint, region and profile are found as every AWS client finds them (`AWS_PROFILE`, `AWS_ENDPOINT_URL`,
`~/.aws/config`, roles, ...); an option of the URL comes before them. A URL with credentials in it is refused.

Every object is written under a condition: blobs only if the key is free, index files only over the bytes that were read.
Checksums go along, so that the server refuses bytes that were changed on their way.
"""

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BytesIO
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from onnxreg.registry.store import streams
from onnxreg.registry.store.layout import BlobKey, blob_path
from onnxreg.registry.store.net import requests
from onnxreg.registry.store.net.waits import FileBudget
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.protocol import CHUNK_BYTES, MAX_DOCUMENT_BYTES, StoredObject, UnlistedError
from onnxreg.registry.store.range_stream import (
    Block,
    ByteRange,
    OpenAnswer,
    RangedReader,
    RangeRequest,
    ReadAhead,
)
from onnxreg.registry.store.require_cas import CasGuardedStore
from onnxreg.registry.store.s3.multipart import MultipartUpload
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.registry.store.streams import CheckedStream, UploadBody, hand_over
from onnxreg.schema.core.errors import InputError, RemoteError

MAX_SINGLE_UPLOAD_BYTES = 16 * 2**20
"""Objects of up to so many bytes go up in one request, whose checksum is that of the whole object."""
SPOOL_BYTES = 2**19
"""An object on its way up is kept in memory up to this many bytes, in a file above."""
MAX_WORKERS = 16
"""So many small requests are made at a time."""
MAX_KEYS_PER_DELETE = 1000
"""So many keys S3 deletes in one request."""


class S3Store:
    """An `ObjectStore`. The server must honour conditions: see `require_cas`."""

    def __init__(self, location: S3Url) -> None:
        self._client = S3Client(location)
        self._ahead = ReadAhead()
        self._uploader = MultipartUpload(self._client)

    @property
    def url(self) -> str:
        return self._client.url

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="s3")

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        """Read a small object. The bytes are checked against their checksum, if the server kept it."""
        parameters = {"Key": self._client.path(key), "ChecksumMode": "ENABLED"}
        condition = {"IfNoneMatch": cached[1]} if cached and cached[1] else {}
        try:
            data, answer = self._client.read(f"reading {key}", MAX_DOCUMENT_BYTES, **parameters, **condition)
        except RejectedError as error:
            if error.status == 304 and cached:
                return cached
            if self._is_absence(error):
                return None
            raise
        self._refuse_page(answer, data)
        return bytes(data), self._tag(answer)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        doing, path = f"reading {key}", self._client.path(key)
        memory, budget = self._ahead.memory(), FileBudget.current()
        try:
            with requests.reading(budget):
                first = self._client.read_range(RangeRequest(doing, path, start, memory))
        except RejectedError as error:
            if self._is_absence(error):
                return None
            if error.status != 416:
                raise
            return BytesIO(b"")
        tag, answer = first.tag, OpenAnswer()
        if not tag:
            raise self._no_answer()
        self._note(first)

        def fetch(start: int, memory: memoryview, stop: int) -> None:
            with requests.reading(budget):
                request = RangeRequest(doing, path, start, memory, tag, stop, answer)
                part = self._client.read_range(request)
            if part.count != len(memory):
                raise RemoteError(f"{doing} at {self.url} gave {part.count:,} bytes of {len(memory):,}")
            self._note(part)

        block = Block(memory, first.count)
        return cast(BinaryIO, RangedReader(fetch, block, first.size, self._ahead, start, answer.close))

    def _note(self, part: ByteRange) -> None:
        if part.wait is not None:
            self._ahead.waits.note(part.wait, part.transfer)

    def has(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that exist: one request for each blob, or fewer if a listing has them all."""
        groups: dict[str, set[str]] = {}
        blobs: set[str] | None = None
        for key in keys:
            blob = BlobKey.of_path(key)
            groups.setdefault(blob_path(blob.digest) if blob else key, set()).add(key)
        if all(map(BlobKey.of_path, groups)):
            blobs = self._all_blobs(len(groups) // MAX_WORKERS)
        if blobs is not None:
            return {key for group in groups.values() for key in group if key in blobs}
        return {key for present in self._pool.map(self._present, groups.values()) for key in present}

    def _all_blobs(self, max_pages: int) -> set[str] | None:
        """Every blob that there is; None if so many pages do not list them all."""
        pages = []
        try:
            pages = list(islice(self._pages("blobs/"), max_pages))
        except (RejectedError, UnlistedError):
            return None
        if not pages or pages[-1].get("IsTruncated"):
            return None
        return {key for page in pages for key, _ in self._keys(page)}

    def _present(self, keys: set[str]) -> set[str]:
        """Return those keys of one blob that exist."""
        if len(keys) > 1:
            with suppress(UnlistedError):
                return {key for key, _ in self._listed(min(keys).partition(".")[0]) if key in keys}
        return {key for key in keys if self._is_there(key)}

    def _is_there(self, key: str) -> bool:
        """True if an object exists. If the HEAD is refused, which has no message, a GET of one byte decides."""
        doing, path = f"looking for {key}", self._client.path(key)
        try:
            self._tag(self._client.call(doing, "head_object", Key=path))
        except RejectedError as error:
            if error.is_absence:
                return False
            if error.status not in (400, 403, 405, 501):
                raise
            try:
                self._client.read(doing, MAX_DOCUMENT_BYTES, Key=path, Range="bytes=0-0")
            except RejectedError as refusal:
                if not self._is_absence(refusal) and refusal.status != 416:
                    raise
                return refusal.status == 416
        return True

    def _is_absence(self, error: RejectedError) -> bool:
        return error.is_absence or (error.status == 403 and self._hides_absence)

    @cached_property
    def _hides_absence(self) -> bool:
        """True if this place answers 403 for an object that cannot exist: these credentials may not list the bucket.

        False if not even registry.json is read here.
        """
        statuses = []
        for key in ("registry.json", f"absent-{secrets.token_hex(8)}"):
            try:
                self._client.read(f"reading {key}", MAX_DOCUMENT_BYTES, Key=self._client.path(key))
                statuses.append(200)
            except RejectedError as error:
                statuses.append(error.status)
        return statuses == [200, 403]

    def create(self, key: str, source: BinaryIO) -> bool:
        advance = hand_over(source)
        path = source.path if isinstance(source, CheckedStream) else None
        if path is not None and path.stat().st_size > MAX_SINGLE_UPLOAD_BYTES:
            return self._uploader.upload_file(key, cast(CheckedStream, source), path, advance)
        with _spooled(source) as (file, *more):
            size = file.seek(0, 2)
            file.seek(0)
            if size > MAX_SINGLE_UPLOAD_BYTES:
                pieces = source.pieces if isinstance(source, CheckedStream) else ()
                return self._uploader.upload(key, file, *more, advance=advance, pieces=pieces)
            blob = BlobKey.of_path(key)
            digest = blob.digest if blob else streams.pump(file, None)[0]
            if size > SPOOL_BYTES:
                return self._put(key, UploadBody(file, advance), digest.hex, IfNoneMatch="*")
            file.seek(0)
            is_created = self._put(key, file.read(), digest.hex, IfNoneMatch="*")
            advance(size)
            return is_created

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        """Compare and swap. Some servers (Ceph) expect the tag without quotes: it is sent so if nothing has changed."""
        sha256 = hashlib.sha256(data).hexdigest()
        if expected is None:
            conditions = [{"IfNoneMatch": "*"}]
        else:
            conditions = [{"IfMatch": tag} for tag in dict.fromkeys((expected, expected.strip('"')))]
        current: StoredObject | None = None
        for condition in conditions:
            if self._put(key, data, sha256, **condition):
                return True
            current = self.get(key)
            if current is None or current[0] == data or current[1] != expected:
                break
        return current is not None and current[0] == data

    def _put(self, key: str, body: bytes | UploadBody, sha256: str, **condition: str) -> bool:
        """Write an object in one request; False if the condition does not hold, also because of an earlier try of ours."""
        checksum = b64encode(bytes.fromhex(sha256)).decode()
        doing, target = f"writing {key}", {"Key": self._client.path(key), "ChecksumSHA256": checksum}
        try:
            answer = self._client.try_put(doing, **target, Body=body, **condition)
            self._tag(answer or self._client.call(doing, "put_object", **target, Body=body, **condition))
        except RejectedError as error:
            if error.status == 412 or (error.is_absence and "IfMatch" in condition):
                return False
            raise
        return True

    def delete(self, keys: Iterable[str]) -> None:
        key_list = list(keys)
        for start in range(0, len(key_list), MAX_KEYS_PER_DELETE):
            batch = key_list[start : start + MAX_KEYS_PER_DELETE]
            if len(batch) == 1 or not self.delete_many(batch):
                list(self._pool.map(self._delete_one, batch))

    def delete_many(self, keys: list[str]) -> bool:
        """True if one request deleted all of them; some servers know none for many."""
        objects = [{"Key": self._client.path(key)} for key in keys]
        parameters = {"Objects": objects, "Quiet": True}
        try:
            answer = self._client.call_once(
                f"deleting {len(keys)} objects", "delete_objects", Delete=parameters
            )
        except RejectedError:
            return False
        return not answer.get("Errors")

    def _delete_one(self, key: str) -> None:
        """Delete an object. An unanswered request for a blob is not retried: it might take effect at any time later."""
        ask = self._client.call_once if BlobKey.of_path(key) else self._client.call
        try:
            ask(f"deleting {key}", "delete_object", Key=self._client.path(key))
        except RejectedError as error:
            if not error.is_absence:
                raise

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._listed(prefix)))

    def tokens(self, prefix: str) -> Iterator[tuple[str, str]]:
        start = len(self._client.path(""))
        for page in self._pages(prefix):
            yield from ((item["Key"][start:], item.get("ETag", "")) for item in page.get("Contents", ()))

    def is_token_of(self, token: str, data: bytes) -> bool:
        """An ETag is the MD5 of an object that one request wrote, unless a key of the customer encrypts it."""
        return token.strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest()

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        """In the server's own order, which is not always that of the keys."""
        return (item for page in self._pages(prefix) for item in self._keys(page))

    def _keys(self, page: dict[str, Any]) -> Iterator[tuple[str, int]]:
        start = len(self._client.path(""))
        for item in page.get("Contents", ()):
            if "Key" not in item or not isinstance(item.get("Size"), int):
                raise self._no_answer()
            yield item["Key"][start:], item["Size"]

    def _pages(self, prefix: str) -> Iterator[dict[str, Any]]:
        parameters = {"Prefix": self._client.path(prefix)}
        while True:
            doing = f"listing {prefix or 'the registry'}"
            try:
                answer = self._client.call(doing, "list_objects_v2", **parameters)
            except RejectedError as error:
                if error.status != 403:
                    raise
                raise UnlistedError(error.message, error.advice) from error
            if "KeyCount" not in answer and "Name" not in answer:
                raise self._no_answer()
            yield answer
            if not answer.get("IsTruncated"):
                return
            token = answer.get("NextContinuationToken")
            if not token or token == parameters.get("ContinuationToken"):
                raise self._no_answer()
            parameters["ContinuationToken"] = token

    def _tag(self, answer: dict[str, Any]) -> str:
        """The object's ETag, which every answer of S3 about an object has."""
        if "ETag" not in answer:
            raise self._no_answer()
        return str(answer["ETag"])

    def _refuse_page(self, answer: dict[str, Any], data: bytearray) -> None:
        if answer.get("ContentType", "").startswith("text/html") and data.lstrip()[:1] == b"<":
            raise self._no_answer()

    def _no_answer(self) -> RemoteError:
        return RemoteError(
            f"the server at {self.url} is not an S3 server",
            "is there a proxy or a login page in between, or is the endpoint wrong (AWS_ENDPOINT_URL)?",
        )

    def has_foreign_objects(self) -> bool:
        """True if there are objects below the prefix, and no registry. Files of probes and trials do not count."""
        parameters = {"Prefix": self._client.path(""), "MaxKeys": 100}
        answer = self._client.call("listing the registry", "list_objects_v2", **parameters)
        scratch = self._client.path("gc/probe-"), self._client.path("gc/live-")
        foreign_keys = [
            item["Key"] for item in answer.get("Contents", ()) if not item["Key"].startswith(scratch)
        ]
        return bool(foreign_keys) and self.get("registry.json") is None


@contextmanager
def _spooled(source: BinaryIO) -> Iterator[Sequence[BinaryIO]]:
    """The source itself if it is seekable; else a file with its first bytes, and the source if it has more of
    them than go up in one request.
    """
    if source.seekable():
        yield [source]
        return
    with SpooledTemporaryFile(SPOOL_BYTES) as spool:
        size = 0
        while size <= MAX_SINGLE_UPLOAD_BYTES and (data := source.read(CHUNK_BYTES)):
            size += spool.write(data)
        file = cast(BinaryIO, spool)
        yield [file, source] if size > MAX_SINGLE_UPLOAD_BYTES else [file]


def s3_remote(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> ObjectRegistry:
    """The registry at an `s3://` URL; `create` makes one if there is nothing. For `known_id` see `ObjectRegistry`."""
    store = S3Store(S3Url.parse(url))
    if create and store.get("registry.json") is None:
        if store.has_foreign_objects():
            raise InputError(
                f"{store.url} is not a registry and not empty",
                "name a registry, or a prefix with nothing below it",
            )
        return ObjectRegistry.create(CasGuardedStore(store), mirror_of, mirror_of is not None)
    remote = ObjectRegistry(CasGuardedStore(store), known_id)
    remote.check_exists()
    return remote
