"""Objects in a bucket of S3, or of a server that speaks its protocol and honours conditions.

    s3://bucket/prefix
    s3://bucket/prefix?profile=lab&endpoint=https://minio.lab:9000&region=eu-central-1&path_style=yes
    s3://bucket/prefix?anonymous=yes            read a public bucket, unsigned

Credentials, endpoint, region and profile are found as every AWS client finds them (`AWS_PROFILE`, `AWS_ENDPOINT_URL`,
`~/.aws/config`, roles, ...); an option of the URL comes before them. A URL with credentials in it is refused.

Every object is written under a condition: blobs where nothing is yet, index files over the bytes that were read.
Checksums go along, so that the server refuses bytes that were changed on their way.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from io import BytesIO
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from onnxreg.registry.store import hash_stream
from onnxreg.registry.store.layout import BlobKey, blob_path
from onnxreg.registry.store.net import pace
from onnxreg.registry.store.net.limits import FileBudget
from onnxreg.registry.store.object_store import Known, ObjectRegistry
from onnxreg.registry.store.protocol import CHUNK, MAX_DOCUMENT
from onnxreg.registry.store.range_stream import Block, RangedReader, ReadAhead
from onnxreg.registry.store.require_cas import CasGuardedStore
from onnxreg.registry.store.s3.multipart import MultipartUpload
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client, S3Url
from onnxreg.registry.store.upload_body import Sent, UploadBody, hand_over
from onnxreg.schema.core.errors import InputError, RemoteError

SINGLE = 16 * 2**20
"""Objects of up to so many bytes go up in one request, whose checksum is that of the whole object."""
SPOOL = 2**19
"""An object on its way up is kept in memory up to this many bytes, in a file above."""
WORKERS = 16
"""So many small requests are made at a time."""
BATCH = 1000
"""So many keys S3 deletes in one request."""


class S3Store:
    """An `ObjectStore`. The server must honour conditions: see `proven`."""

    def __init__(self, place: S3Url) -> None:
        self._client = S3Client(place)
        self._ahead = ReadAhead()
        self._uploader = MultipartUpload(self._client)

    @property
    def url(self) -> str:
        return self._client.url

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(WORKERS, thread_name_prefix="s3")

    def get(self, key: str, known: Known | None = None) -> Known | None:
        """The bytes are checked against the checksum that they were written with, where the server kept it."""
        wanted = {"Key": self._client.path(key), "ChecksumMode": "ENABLED"}
        condition = {"IfNoneMatch": known[1]} if known and known[1] else {}
        try:
            data, answer = self._client.read(f"reading {key}", MAX_DOCUMENT, **wanted, **condition)
        except RejectedError as error:
            if error.status == 304 and known:
                return known
            if error.is_absence:
                return None
            raise
        self._refuse_page(answer, data)
        return bytes(data), self._tag(answer)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        doing, path = f"reading {key}", self._client.path(key)
        memory, budget = self._ahead.memory(), FileBudget.current()
        try:
            with pace.reading(budget):
                first = self._client.read_range(doing, path, start, memory)
        except RejectedError as error:
            if error.is_absence:
                return None
            if error.status != 416:
                raise
            return BytesIO(b"")
        tag = first.tag
        if not tag:
            raise self._no_answer()

        def fetch(start: int, memory: memoryview) -> None:
            with pace.reading(budget):
                count = self._client.read_range(doing, path, start, memory, tag).count
            if count != len(memory):
                raise RemoteError(f"{doing} at {self.url} gave {count:,} bytes of {len(memory):,}")

        block = Block(memory, first.count)
        return cast(BinaryIO, RangedReader(fetch, block, first.size, self._ahead, start))

    def has(self, keys: Iterable[str]) -> set[str]:
        """One request for each blob, whether one of its keys is asked for or all; fewer where a list has them all."""
        groups: dict[str, set[str]] = {}
        blobs: set[str] | None = None
        for key in keys:
            blob = BlobKey.of_path(key)
            groups.setdefault(blob_path(blob.digest) if blob else key, set()).add(key)
        if all(map(BlobKey.of_path, groups)):
            blobs = self._all_blobs(len(groups) // WORKERS)
        if blobs is not None:
            return {key for group in groups.values() for key in group if key in blobs}
        return {key for found in self._pool.map(self._present, groups.values()) for key in found}

    def _all_blobs(self, requests: int) -> set[str] | None:
        """Every blob that there is; None where so many requests do not list them all."""
        pages = []
        try:
            pages = list(islice(self._pages("blobs/"), requests))
        except RejectedError:
            return None
        if not pages or pages[-1].get("IsTruncated"):
            return None
        return {key for page in pages for key, _ in self._keys(page)}

    def _present(self, keys: set[str]) -> set[str]:
        """Which of the keys of one blob are there."""
        if len(keys) == 1:
            return {key for key in keys if self._is_there(key)}
        return {key for key, _ in self._listed(min(keys).partition(".")[0]) if key in keys}

    def _is_there(self, key: str) -> bool:
        """Where a HEAD is refused, whose answer has no words, the object's first byte is asked for: that says why."""
        doing, path = f"looking for {key}", self._client.path(key)
        try:
            self._tag(self._client.call(doing, "head_object", Key=path))
        except RejectedError as error:
            if error.is_absence:
                return False
            if error.status in (400, 403):
                self._client.read(doing, MAX_DOCUMENT, Key=path, Range="bytes=0-0")
            raise
        return True

    def create(self, key: str, source: BinaryIO) -> bool:
        sent = hand_over(source)
        if source.seekable():
            return self._create(key, source, sent)
        with SpooledTemporaryFile(SPOOL) as spool:
            size = 0
            while size <= SINGLE and (data := source.read(CHUNK)):
                size += spool.write(data)
            if size <= SINGLE:
                return self._create(key, cast(BinaryIO, spool), sent)
            spool.seek(0)
            pieces = getattr(source, "pieces", ())
            return self._uploader.upload(key, cast(BinaryIO, spool), source, sent=sent, pieces=pieces)

    def _create(self, key: str, source: BinaryIO, sent: Sent) -> bool:
        """Create an object from a file whose bytes are known to be right."""
        size = source.seek(0, 2)
        source.seek(0)
        if size > SINGLE:
            return self._uploader.upload(key, source, sent=sent)
        blob = BlobKey.of_path(key)
        digest = blob.digest if blob else hash_stream.pump(source, None)[0]
        if size > SPOOL:
            return self._put(key, UploadBody(source, sent), digest.hex, IfNoneMatch="*")
        source.seek(0)
        done = self._put(key, source.read(), digest.hex, IfNoneMatch="*")
        sent(size)
        return done

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        """Some servers (Ceph) want the tag that they gave without its quotes: so it is sent where nothing has changed."""
        sha256 = hashlib.sha256(data).hexdigest()
        if expected is None:
            conditions = [{"IfNoneMatch": "*"}]
        else:
            conditions = [{"IfMatch": tag} for tag in dict.fromkeys((expected, expected.strip('"')))]
        found: Known | None = None
        for condition in conditions:
            if self._put(key, data, sha256, **condition):
                return True
            found = self.get(key)
            if found is None or found[0] == data or found[1] != expected:
                break
        return found is not None and found[0] == data

    def _put(self, key: str, body: bytes | UploadBody, sha256: str, **condition: str) -> bool:
        """Write an object in one request; False where the condition does not hold, be it by an earlier try of ours."""
        checksum = b64encode(bytes.fromhex(sha256)).decode()
        target = {"Key": self._client.path(key), "ChecksumSHA256": checksum}
        try:
            self._tag(self._client.put(f"writing {key}", "put_object", **target, Body=body, **condition))
        except RejectedError as error:
            if error.status == 412 or (error.is_absence and "IfMatch" in condition):
                return False
            raise
        return True

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            if len(batch) == 1 or not self._delete_many(batch):
                list(self._pool.map(self._delete_one, batch))

    def _delete_many(self, keys: list[str]) -> bool:
        """Whether one request deleted all of them; some servers know none for many."""
        objects = [{"Key": self._client.path(key)} for key in keys]
        wanted = {"Objects": objects, "Quiet": True}
        try:
            answer = self._client.call_once(f"deleting {len(keys)} objects", "delete_objects", Delete=wanted)
        except RejectedError:
            return False
        return not answer.get("Errors")

    def _delete_one(self, key: str) -> None:
        """A request for a blob that was not answered is not made again: it might be done at any time later."""
        ask = self._client.call_once if BlobKey.of_path(key) else self._client.call
        try:
            ask(f"deleting {key}", "delete_object", Key=self._client.path(key))
        except RejectedError as error:
            if not error.is_absence:
                raise

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return iter(sorted(self._listed(prefix)))

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        """In the server's own order, which is not always that of the keys."""
        return (found for page in self._pages(prefix) for found in self._keys(page))

    def _keys(self, page: dict[str, Any]) -> Iterator[tuple[str, int]]:
        start = len(self._client.path(""))
        for found in page.get("Contents", ()):
            if "Key" not in found or not isinstance(found.get("Size"), int):
                raise self._no_answer()
            yield found["Key"][start:], found["Size"]

    def _pages(self, prefix: str) -> Iterator[dict[str, Any]]:
        wanted = {"Prefix": self._client.path(prefix)}
        while True:
            answer = self._client.call(f"listing {prefix or 'the registry'}", "list_objects_v2", **wanted)
            if "KeyCount" not in answer and "Name" not in answer:
                raise self._no_answer()
            yield answer
            if not answer.get("IsTruncated"):
                return
            token = answer.get("NextContinuationToken")
            if not token or token == wanted.get("ContinuationToken"):
                raise self._no_answer()
            wanted["ContinuationToken"] = token

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
            f"what answers at {self.url} is no S3 server",
            "is there a proxy or a login page in between, or is the endpoint wrong (AWS_ENDPOINT_URL)?",
        )

    def holds_something_else(self) -> bool:
        """Whether there are objects below the prefix, and no registry. What probes and trials left does not count."""
        wanted = {"Prefix": self._client.path(""), "MaxKeys": 100}
        answer = self._client.call("listing the registry", "list_objects_v2", **wanted)
        scratch = self._client.path("gc/probe-"), self._client.path("gc/live-")
        others = [
            found["Key"] for found in answer.get("Contents", ()) if not found["Key"].startswith(scratch)
        ]
        return bool(others) and self.get("registry.json") is None


def s3_remote(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> ObjectRegistry:
    """The registry at an `s3://` URL; `create` makes one where there is nothing. For `known_id` see `ObjectRegistry`."""
    store = S3Store(S3Url.parse(url))
    if create and store.get("registry.json") is None:
        if store.holds_something_else():
            raise InputError(
                f"{store.url} is not a registry and not empty",
                "name a registry, or a prefix with nothing below it",
            )
        return ObjectRegistry.create(CasGuardedStore(store), mirror_of, mirror_of is not None)
    remote = ObjectRegistry(CasGuardedStore(store), known_id)
    _ = remote.registry_id
    return remote
