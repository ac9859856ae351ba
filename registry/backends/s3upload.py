"""Large objects go up in parts, several at a time, and appear at once when all of them are there."""

import threading
from base64 import b64encode
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from onnxreg.registry import hashing
from onnxreg.registry.backends.s3client import RejectedError, S3Client
from onnxreg.registry.backends.sentfile import Sent, SentFile
from onnxreg.registry.disk import host_errors
from onnxreg.registry.stopping import ended_by, submit
from onnxreg.registry.storage import CHUNK
from onnxreg.schema.errors import RemoteError

PART = 16 * 2**20
"""Bytes of a part; S3 takes 10,000 of them."""
FLYING = 8
"""So many parts are under way at a time, of all uploads of one store together; each waits in a temporary file."""


class Uploader:
    """Uploads in parts. May be used from several threads."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self._slots = threading.Semaphore(FLYING)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(FLYING, thread_name_prefix="upload")

    def upload(self, key: str, *streams: BinaryIO, sent: Sent) -> bool:
        """Create an object from streams, one after the other; False where there is one by now. Tells what is `sent`.

        Nothing is visible before the end. Where anything fails, reading too, the parts that are there are given up.
        """
        path = self._client.path(key)
        doing = f"uploading {key}"
        begun = self._client.call(doing, "create_multipart_upload", Key=path, ChecksumAlgorithm="SHA256")
        upload = {"Key": path, "UploadId": begun["UploadId"]}
        done = False
        try:
            parts = self._send_parts(doing, upload, deque(streams), sent)
            done = self._complete(doing, upload, parts)
        finally:
            if not done:
                with suppress(RemoteError), ended_by(None):
                    self._client.call(doing, "abort_multipart_upload", **upload)
        return done

    def _send_parts(
        self, doing: str, upload: dict[str, Any], streams: deque[BinaryIO], sent: Sent
    ) -> list[dict[str, Any]]:
        parts: list[Future[dict[str, Any]]] = []
        try:
            while streams:
                self._slots.acquire()
                try:
                    part = _next_part(streams)
                except BaseException:
                    self._slots.release()
                    raise
                number = len(parts) + 1
                parts.append(submit(self._pool, self._send, doing, upload, number, part, sent))
                for earlier in parts:
                    if earlier.done():
                        earlier.result()
            return [future.result() for future in parts]
        finally:
            wait(parts)

    def _send(
        self, doing: str, upload: dict[str, Any], number: int, data: BinaryIO, sent: Sent
    ) -> dict[str, Any]:
        """Send a part and close its file."""
        try:
            with data:
                checksum = b64encode(bytes.fromhex(hashing.pump(data, None)[0].hex)).decode()
                part = {"PartNumber": number, "ChecksumSHA256": checksum}
                answer = self._client.call(doing, "upload_part", **upload, **part, Body=SentFile(data, sent))
                return {**part, "ETag": answer["ETag"]}
        finally:
            self._slots.release()

    def _complete(self, doing: str, upload: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
        """Make the object of its parts, where none is there."""
        try:
            self._client.call(
                doing,
                "complete_multipart_upload",
                **upload,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )
        except RejectedError as answer:
            if answer.status == 412:
                return False
            if answer.code == "NoSuchUpload" and self._is_there(doing, upload["Key"]):
                return True
            raise
        return True

    def _is_there(self, doing: str, path: str) -> bool:
        """Whether an upload that is no more has become an object: the answer to an earlier request was lost."""
        try:
            self._client.call(doing, "head_object", Key=path)
        except RejectedError as answer:
            if answer.is_absence:
                return False
            raise
        return True


def _next_part(streams: deque[BinaryIO]) -> BinaryIO:
    """A temporary file with the next `PART` bytes of the streams, fewer at their end; those that ended are dropped."""
    with host_errors("keeping a part in the temporary directory"):
        part = cast(BinaryIO, TemporaryFile())  # noqa: SIM115
    try:
        while streams and part.tell() < PART:
            data = streams[0].read(min(CHUNK, PART - part.tell()))
            with host_errors("keeping a part in the temporary directory"):
                part.write(data)
            if not data:
                streams.popleft()
        part.seek(0)
    except BaseException:
        part.close()
        raise
    return part
