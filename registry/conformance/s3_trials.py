"""What a registry relies on in S3, or a server that speaks its protocol, tried below a prefix of its own."""

import hashlib
import secrets
import shlex
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

from onnxreg.registry.conformance.object_trials import MANY, object_trials
from onnxreg.registry.conformance.trial import InapplicableError, Trial
from onnxreg.registry.conformance.writers import push_and_pull
from onnxreg.registry.store.net.retry import retrying
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.store.s3.bucket import S3Store
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client, S3Url

PART = 5 * 2**20
"""Bytes of a part; S3 takes none that are smaller, but for the last."""


class S3Scratch:
    """A fresh prefix below that of the registry, where there may be none yet."""

    def __init__(self, place: S3Url) -> None:
        above = f"{place.prefix}/" if place.prefix else ""
        self._place = replace(place, prefix=f"{above}gc/live-{secrets.token_hex(8)}")
        self._store = S3Store(self._place)
        self._client = S3Client(self._place)

    @property
    def what(self) -> str:
        return f"objects below {self._place.url}"

    @property
    def remedy(self) -> str:
        names = {"endpoint": "--endpoint-url", "profile": "--profile", "region": "--region"}
        options = [[names[name], value] for name, value in self._place.options if name in names]
        target = f"s3://{self._place.bucket}/{self._place.prefix}/"
        return shlex.join(
            ["aws", "s3", "rm", "--recursive", target, *(word for pair in options for word in pair)]
        )

    def make(self) -> None:
        """There is nothing to make; but whether the place answers is asked before anything is tried."""
        next(self._store.list(""), None)

    def trials(self) -> list[Trial]:
        return [
            *object_trials(self._store),
            Trial("batch delete", "one request deletes many objects", self._batch),
            Trial(
                "ranges",
                "a range has exactly the bytes asked for, of the object that was meant",
                self._ranges,
            ),
            Trial("conditional read", "what did not change is not sent again (304)", self._conditional),
            Trial("checksum", "bytes with another SHA-256 than announced are refused", self._checksum),
            Trial("multipart", "parts become one object at once, and create-only", self._multipart),
            Trial("lost answer", "an own write whose answer was lost is no lost race", self._lost_answer),
            Trial(
                "two writers", "both pushes arrive, and come back whole", lambda: push_and_pull(self._opened)
            ),
        ]

    def clear(self) -> Iterator[str]:
        self._store.delete([key for key, _ in self._store.list("")])
        with suppress(RejectedError):
            for upload in self._ask("list_multipart_uploads", Prefix=self._client.path("")).get(
                "Uploads", ()
            ):
                self._ask("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])
        left = len(list(self._store.list("")))
        if left:
            yield f"{left} objects are still there"

    def _ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Make a request, again only where the server is busy: a refusal is what most of these trials look for."""
        return retrying(lambda: self._client.request(f"trying {operation}", operation, parameters), _is_busy)

    def _refused(self, status: int, operation: str, **parameters: Any) -> bool:
        """Whether a request is refused with this status, the right one."""
        try:
            self._ask(operation, **parameters)
        except RejectedError as error:
            if error.status != status:
                raise
            return True
        return False

    def _opened(self) -> RegistryStore:
        """A registry in a part of the scratch, anew for each who asks."""
        return ObjectRegistry.create(S3Store(replace(self._place, prefix=f"{self._place.prefix}/registry")))

    def _batch(self) -> Iterator[str]:
        keys = [f"batch/{number}" for number in range(MANY)]
        for key in keys:
            self._store.create(key, BytesIO(b"deleted"))
        if not self._store._delete_many(keys):
            raise InapplicableError("this server deletes one object at a time, which is only slower")
        if self._store.has(keys):
            yield "some of them are still there"

    def _ranges(self) -> Iterator[str]:
        key, data = self._client.path("ranges"), bytes(range(256))
        self._store.create("ranges", BytesIO(data))
        found, answer = self._client.read("trying a range", 1000, Key=key, Range="bytes=10-19")
        if found != data[10:20] or not str(answer.get("ContentRange", "")).endswith("/256"):
            yield f"bytes 10 to 19 were asked for, and {len(found)} bytes came"
        if not self._refused(416, "get_object", Key=key, Range="bytes=256-300"):
            yield "a range behind the end is answered"
        self._store.swap("ranges", data[::-1], answer["ETag"])
        if not self._refused(412, "get_object", Key=key, Range="bytes=10-19", IfMatch=answer["ETag"]):
            yield "a range of an object that changed meanwhile is answered"

    def _conditional(self) -> Iterator[str]:
        key = self._client.path("conditional")
        self._store.create("conditional", BytesIO(b"first"))
        _, tag = self._store.get("conditional") or (b"", "")
        if not self._refused(304, "get_object", Key=key, IfNoneMatch=tag):
            yield "what did not change is sent again"
        self._store.swap("conditional", b"second", tag)
        if self._refused(304, "get_object", Key=key, IfNoneMatch=tag):
            yield "what changed is called unchanged"

    def _checksum(self) -> Iterator[str]:
        wrong = b64encode(hashlib.sha256(b"other bytes").digest()).decode()
        if not self._refused(
            400, "put_object", Key=self._client.path("checksum"), Body=BytesIO(b"bytes"), ChecksumSHA256=wrong
        ):
            yield "they are taken; what comes back is checked, but only by whoever reads it"
        elif self._store.get("checksum") is not None:
            yield "they are refused, and there all the same"

    def _multipart(self) -> Iterator[str]:
        data = secrets.token_bytes(PART + 1)
        if not self._completed("multipart", data):
            yield "an object that is not there cannot be made of parts"
        if self._completed("multipart", data[::-1]):
            yield "an object that is there is made again of parts"
        found = self._store.get("multipart")
        if found is None or found[0] != data:
            yield "other bytes are there than were sent first"

    def _completed(self, key: str, data: bytes) -> bool:
        """Make an object of two parts; False, and the parts given up, where it is refused since there is one."""
        path = {"Key": self._client.path(key)}
        upload = {
            **path,
            "UploadId": self._ask("create_multipart_upload", **path, ChecksumAlgorithm="SHA256")["UploadId"],
        }
        parts = []
        for number, part in enumerate((data[:PART], data[PART:]), 1):
            checksum = {"ChecksumSHA256": b64encode(hashlib.sha256(part).digest()).decode()}
            sent = self._ask("upload_part", **upload, PartNumber=number, Body=BytesIO(part), **checksum)
            parts.append({"PartNumber": number, "ETag": sent["ETag"], **checksum})
        if not self._refused(
            412, "complete_multipart_upload", **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
        ):
            return True
        with suppress(RejectedError):
            self._ask("abort_multipart_upload", **upload)
        return False

    def _lost_answer(self) -> Iterator[str]:
        """The same swap twice: the second one stands for one whose first answer was lost."""
        self._store.create("lost", BytesIO(b"first"))
        _, tag = self._store.get("lost") or (b"", "")
        self._store.swap("lost", b"ours", tag)
        if not self._store.swap("lost", b"ours", tag):
            yield "it looks like one"
        if self._store.swap("lost", b"others", tag):
            yield "a lost race looks like an own write"


def _is_busy(error: Exception) -> bool:
    return isinstance(error, RejectedError) and (error.status == 429 or error.status >= 500)
