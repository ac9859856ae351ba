"""Multipart upload: several parts at a time; the object appears when all of them have arrived."""

import hashlib
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from onnxreg.registry.store.protocol import CHUNK_BYTES
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client
from onnxreg.registry.store.streams import UploadBody
from onnxreg.registry.support.cancellation import (
    POLL_SECONDS,
    CancelledError,
    cancel_scope,
    check_stop,
    result_of,
    submit,
)
from onnxreg.schema.core.descriptor import PIECE_BYTES, Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RemoteError
from onnxreg.schema.core.progress import Advance

MIN_PART_BYTES = 5 * 2**20
"""Bytes of a part, of the first ones; S3 takes no smaller ones."""
PARTS_PER_SIZE = 2500
"""After so many parts they grow by `MIN_PART_BYTES`: S3 takes 10,000 of them, which together hold 122 GiB."""
MAX_PARTS_IN_FLIGHT = 4
"""Parts in flight at a time, of all uploads of one store together; each is in memory, which is reused."""


class MultipartUpload:
    """Uploads in parts. May be used from several threads."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self._buffers: SimpleQueue[BytesIO] = SimpleQueue()
        for _ in range(MAX_PARTS_IN_FLIGHT):
            self._buffers.put(BytesIO())

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(MAX_PARTS_IN_FLIGHT, thread_name_prefix="upload")

    def upload(self, key: str, *streams: BinaryIO, advance: Advance, pieces: Sequence[Piece] = ()) -> bool:
        """Create an object from streams, one after the other; False if it exists by now. `advance` receives the bytes sent.

        Nothing is visible before the end. If anything fails, also reading, the upload is aborted.
        If digests of its pieces are stated, the pieces are the parts: then only the server hashes them.
        """
        path = self._client.path(key)
        doing = f"uploading {key}"
        begun = self._client.call(doing, "create_multipart_upload", Key=path, ChecksumAlgorithm="SHA256")
        upload = {"Key": path, "UploadId": begun["UploadId"]}
        is_created = False
        try:
            fitting = pieces if pieces and pieces[0].stop == PIECE_BYTES else ()
            parts = self._send_parts(doing, upload, deque(streams), advance, deque(fitting))
            is_created = self._complete(doing, upload, parts)
        finally:
            if not is_created:
                with suppress(RemoteError), cancel_scope(None):
                    self._client.call(doing, "abort_multipart_upload", **upload)
        return is_created

    def _send_parts(
        self,
        doing: str,
        upload: dict[str, Any],
        streams: deque[BinaryIO],
        advance: Advance,
        pieces: deque[Piece],
    ) -> list[dict[str, Any]]:
        parts: list[Future[dict[str, Any]]] = []
        try:
            while streams:
                piece = pieces.popleft() if pieces else None
                size = (
                    piece.stop - piece.start if piece else MIN_PART_BYTES * (1 + len(parts) // PARTS_PER_SIZE)
                )
                part = self._buffer()
                filled = 0
                try:
                    filled = _fill(part, streams, size)
                finally:
                    if not filled:
                        self._buffers.put(part)
                if not filled:
                    break
                number, stated_digest = len(parts) + 1, piece.digest if piece else None
                parts.append(
                    submit(self._pool, self._send, doing, upload, number, part, advance, stated_digest)
                )
                for earlier in parts:
                    if earlier.done():
                        earlier.result()
            return [result_of(future) for future in parts]
        except CancelledError:
            raise
        except BaseException:
            wait(parts)
            raise

    def _buffer(self) -> BytesIO:
        """Memory for a part, as soon as there is some."""
        while True:
            check_stop()
            with suppress(Empty):
                return self._buffers.get(timeout=POLL_SECONDS)

    def _send(
        self,
        doing: str,
        upload: dict[str, Any],
        number: int,
        data: BytesIO,
        advance: Advance,
        stated_digest: Digest | None,
    ) -> dict[str, Any]:
        """Send a part and give its memory back.

        If the try with a `stated_digest` fails, the part is hashed and sent again; that result counts.
        """
        body = UploadBody(data, advance)
        part = _part(
            number,
            bytes.fromhex(stated_digest.hex) if stated_digest else hashlib.sha256(data.getbuffer()).digest(),
        )
        try:
            answer = self._client.try_put(doing, **upload, **part, Body=body)
            if answer is None:
                part = _part(number, hashlib.sha256(data.getbuffer()).digest())
                answer = self._client.call(doing, "upload_part", **upload, **part, Body=body)
            return part | _tag(answer)
        finally:
            self._buffers.put(data)

    def _complete(self, doing: str, upload: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
        """Join the parts to the object, if it does not exist."""
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
            if answer.s3_code == "NoSuchUpload" and self._is_there(doing, upload["Key"]):
                return True
            raise
        return True

    def _is_there(self, doing: str, path: str) -> bool:
        """True if a finished upload has become the object: the answer to an earlier request was lost."""
        try:
            self._client.call(doing, "head_object", Key=path)
        except RejectedError as answer:
            if answer.is_absence:
                return False
            raise
        return True


def _part(number: int, sha256: bytes) -> dict[str, Any]:
    return {"PartNumber": number, "ChecksumSHA256": b64encode(sha256).decode()}


def _tag(answer: dict[str, Any]) -> dict[str, Any]:
    return {"ETag": answer["ETag"]}


def _fill(part: BytesIO, streams: deque[BinaryIO], size: int) -> int:
    """Let a part be the next `size` bytes of the streams, fewer at their end; those that ended are dropped.

    Returns the bytes of the part.
    """
    part.seek(0)
    while streams and (missing := size - part.tell()):
        if not part.write(streams[0].read(min(CHUNK_BYTES, missing))):
            streams.popleft()
    filled = part.tell()
    part.truncate()
    part.seek(0)
    return filled
