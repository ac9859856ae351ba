"""Multipart upload: several parts at a time; the object appears when all of them have arrived."""

from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, cast

from onnxreg.registry.store import streams
from onnxreg.registry.store.protocol import CHUNK_BYTES
from onnxreg.registry.store.s3.s3_client import RejectedError, S3Client
from onnxreg.registry.store.streams import CheckedStream, FileRegion, UploadBody
from onnxreg.registry.support.parallel import (
    POLL_SECONDS,
    CancelledError,
    cancel_scope,
    check_stop,
    result_of,
    submit,
)
from onnxreg.schema.core.cores import count_cores
from onnxreg.schema.core.descriptor import PIECE_BYTES, Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, RemoteError
from onnxreg.schema.core.progress import Advance

MIN_PART_BYTES = 5 * 2**20
"""Bytes of a part, of the first ones; S3 takes no smaller ones."""
PARTS_PER_SIZE = 2500
"""After so many parts they grow by `MIN_PART_BYTES`: S3 takes 10,000 of them, which together hold 122 GiB."""
MAX_PARTS_IN_MEMORY = 4
"""Parts of streams in flight at a time, of all uploads of one store together: each is in memory, which is reused."""
MAX_PARTS_OF_FILES = min(20, count_cores() + 4)
"""Parts of files in flight at a time. On 16 cores a push of 1 GiB takes 2.75 s with ten and 2.63 s with twenty; four
took 1.4 times as long as ten. On two cores, which the server shares, it takes 5 % longer with ten than with three."""


class MultipartUpload:
    """Uploads in parts. May be used from several threads."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self._in_memory, self._of_files = _slots(MAX_PARTS_IN_MEMORY), _slots(MAX_PARTS_OF_FILES)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(MAX_PARTS_IN_MEMORY + MAX_PARTS_OF_FILES, thread_name_prefix="upload")

    def upload(self, key: str, *sources: BinaryIO, advance: Advance, pieces: Sequence[Piece] = ()) -> bool:
        """Create an object from sources, one after the other; False if it exists by now. `advance` receives the bytes sent.

        Nothing is visible before the end. If anything fails, also reading, the upload is aborted.
        If digests of its pieces are stated, the pieces are the parts: then only the server hashes them.
        """
        fitting = pieces if pieces and pieces[0].stop == PIECE_BYTES else ()
        return self._upload(key, self._memory_parts(deque(sources), deque(fitting)), advance)

    def upload_file(self, key: str, stream: CheckedStream, path: Path, advance: Advance) -> bool:
        """Create an object from a stream whose bytes are also in a file: its parts are the pieces, sent from the file.

        See `upload`. IntegrityError if a piece of the file does not have the stated digest.
        """
        return self._upload(key, self._file_parts(stream, path), advance)

    def _upload(self, key: str, parts: Iterator["Part"], advance: Advance) -> bool:
        path = self._client.path(key)
        doing = f"uploading {key}"
        begun = self._client.call(doing, "create_multipart_upload", Key=path, ChecksumAlgorithm="SHA256")
        upload = {"Key": path, "UploadId": begun["UploadId"]}
        is_created = False
        try:
            is_created = self._complete(doing, upload, self._send_parts(doing, upload, parts, advance))
        finally:
            if not is_created:
                with suppress(RemoteError), cancel_scope(None):
                    self._client.call(doing, "abort_multipart_upload", **upload)
        return is_created

    def _send_parts(
        self, doing: str, upload: dict[str, Any], parts: Iterator["Part"], advance: Advance
    ) -> list[dict[str, Any]]:
        futures: list[Future[dict[str, Any]]] = []
        running: set[Future[dict[str, Any]]] = set()
        try:
            for part in parts:
                futures.append(submit(self._pool, self._send, doing, upload, len(futures) + 1, part, advance))
                ended, running = wait({*running, futures[-1]}, timeout=0)
                for future in ended:
                    future.result()
            return [result_of(future) for future in futures]
        except CancelledError:
            raise
        except BaseException:
            wait(futures)
            raise

    def _memory_parts(self, sources: deque[BinaryIO], pieces: deque[Piece]) -> Iterator["Part"]:
        """Read the sources into memory, part by part."""
        number = 0
        while sources:
            piece = pieces.popleft() if pieces else None
            size = piece.stop - piece.start if piece else MIN_PART_BYTES * (1 + number // PARTS_PER_SIZE)
            with _slot(self._in_memory) as slot:
                filled = _fill(slot.memory, sources, size)
            if not filled:
                slot.free()
                return
            yield Part(slot, slot.memory, piece.digest if piece else None)
            number += 1

    def _file_parts(self, stream: CheckedStream, path: Path) -> Iterator["Part"]:
        """Hash the bytes of each piece before it is sent, and so the whole before the upload is complete."""
        for piece in stream.pieces:
            size = piece.stop - piece.start
            with _slot(self._of_files) as slot:
                region = FileRegion(path, piece.start, piece.stop)
                if stream.pass_over(size) != size:
                    raise IntegrityError(f"{path.name} is shorter than its pieces")
            yield Part(slot, region, piece.digest)
        if stream.pass_over(1):
            raise IntegrityError(f"{path.name} is longer than its pieces")

    def _send(
        self, doing: str, upload: dict[str, Any], number: int, part: "Part", advance: Advance
    ) -> dict[str, Any]:
        """Send a part and give its memory back.

        If the try with a stated digest fails, the part is hashed and sent again; that result counts for a part in
        memory. IntegrityError if a part in a file does not have the stated digest, or if the file changed since it was
        hashed: not every server compares the digest.
        """
        body = UploadBody(cast(BinaryIO, part.stream), advance)
        try:
            target = _target(number, part.digest or part.hash())
            answer = self._client.try_put(doing, **upload, **target, Body=body)
            if answer is None:
                actual = part.hash()
                if part.is_in_file and part.digest:
                    streams.check(actual, part.digest, f"part {number} while {doing}")
                target = _target(number, actual)
                answer = self._client.call(doing, "upload_part", **upload, **target, Body=body)
            if isinstance(part.stream, FileRegion):
                part.stream.check_unchanged()
            return target | {"ETag": answer["ETag"]}
        finally:
            if part.is_in_file:
                part.stream.close()
            part.slot.free()

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


@dataclass(frozen=True)
class Slot:
    """Leave to send one part, with memory for a part that is in no file. `queue` holds the slots that are free."""

    queue: "SimpleQueue[Slot]"
    memory: BytesIO

    def free(self) -> None:
        self.queue.put(self)


def _slots(count: int) -> SimpleQueue[Slot]:
    queue: SimpleQueue[Slot] = SimpleQueue()
    for _ in range(count):
        Slot(queue, BytesIO()).free()
    return queue


@contextmanager
def _slot(free: SimpleQueue[Slot]) -> Iterator[Slot]:
    """Take a slot as soon as one is free; an error within gives it back."""
    slot = None
    while slot is None:
        check_stop()
        with suppress(Empty):
            slot = free.get(timeout=POLL_SECONDS)
    try:
        yield slot
    except BaseException:
        slot.free()
        raise


@dataclass(frozen=True)
class Part:
    """A part to send: the slot that it holds, a stream over its bytes, and their digest if it is stated."""

    slot: Slot
    stream: BytesIO | FileRegion
    digest: Digest | None

    def hash(self) -> Digest:
        self.stream.seek(0)
        return streams.pump(cast(BinaryIO, self.stream), None)[0]

    @property
    def is_in_file(self) -> bool:
        return self.stream is not self.slot.memory


def _target(number: int, sha256: Digest) -> dict[str, Any]:
    return {"PartNumber": number, "ChecksumSHA256": b64encode(bytes.fromhex(sha256.hex)).decode()}


def _fill(part: BytesIO, sources: deque[BinaryIO], size: int) -> int:
    """Let a part be the next `size` bytes of the sources, fewer at their end; those that ended are dropped.

    Returns the bytes of the part.
    """
    part.seek(0)
    while sources and (missing := size - part.tell()):
        if not part.write(sources[0].read(min(CHUNK_BYTES, missing))):
            sources.popleft()
    filled = part.tell()
    part.truncate()
    part.seek(0)
    return filled
