"""What goes up to S3 in parts and comes down in ranges."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from support.registries.bucket import damages, direct, versions
from support.sampling import sampled
from support.servers import s3servers
from support.servers.faults import Proxy, at

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Reference
from onnxreg.registry.store import range_stream
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.s3 import bucket, multipart
from onnxreg.registry.store.s3.bucket import s3_remote
from onnxreg.registry.store.streams import (
    SEND_BLOCK_BYTES,
    CheckedStream,
    FileBlock,
    UploadBody,
    metered,
)
from onnxreg.registry.transfer.copy import BlobTransfer
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


UNIT = 2**18
PIECE = 8 * UNIT


def shrink(patch: pytest.MonkeyPatch, unit: int) -> None:
    """Let an upload of more than six units have parts, of five units each, and a download ranges of one."""
    patch.setattr(bucket, "MAX_SINGLE_UPLOAD_BYTES", 6 * unit)
    patch.setattr(multipart, "MIN_PART_BYTES", 5 * unit)
    patch.setattr(multipart, "PIECE_BYTES", PIECE)
    patch.setattr(range_stream, "RANGE_BYTES", unit)


def pieces_of(data: bytes) -> list[Piece]:
    spans = ((start, min(start + PIECE, len(data))) for start in range(0, len(data), PIECE))
    return [Piece(start, stop, Digest.of(data[start:stop])) for start, stop in spans]


def at_first_tries(fault: str) -> Callable[[str, str], str | None]:
    """A plan of a proxy: this fault at the first try of each part; `none` for no fault."""
    met: set[str] = set()

    def once(method: str, path: str) -> str | None:
        number = path.partition("partNumber=")[2][:1]
        if fault == "none" or not number or number in met:
            return None
        met.add(number)
        return fault

    return once


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    """Else the server would wait for the missing bytes."""
    file = tmp_path / "blob"
    file.write_bytes(bytes(2**20))
    with multipart.FileRegion(file, 4, 2**20) as region:
        assert len(region.read()) == 2**20 - 4
        region.seek(0)
        os.truncate(file, 2**19)
        with pytest.raises(IntegrityError, match="blob became shorter"):
            region.read()


class EncryptedSocket(socket.socket):
    """A socket to which the kernel must not send a file by itself, such as one with TLS."""

    def sendfile(self, *_: object) -> int:
        raise AssertionError("bytes of the file would go out as they are")


@pytest.mark.parametrize("kind", [socket.socket, EncryptedSocket])
def test_a_region_of_a_file_is_sent_in_blocks(
    tmp_path: Path, kind: type[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain socket gets them from the kernel: this process does not read them."""
    if kind is socket.socket and hasattr(os, "sendfile"):
        monkeypatch.setattr(
            multipart.FileRegion, "readinto", lambda region, block: pytest.fail("bytes are read")
        )
    data = random.Random(7).randbytes(3 * SEND_BLOCK_BYTES)
    (tmp_path / "blob").write_bytes(data)
    near, far = socket.socketpair()
    reports: list[int] = []
    with (
        ThreadPoolExecutor(1) as pool,
        kind(fileno=near.detach()) as sender,
        far,
        multipart.FileRegion(tmp_path / "blob", 5, len(data) - 7) as region,
    ):
        received = pool.submit(far.makefile("rb").read, len(data) - 12)
        body = UploadBody(cast(BinaryIO, region), reports.append)
        assert body.rewind() == len(data) - 12
        for block in body.blocks():
            assert isinstance(block, FileBlock)
            block.send(sender)
        assert received.result() == data[5:-7]
    assert reports == [SEND_BLOCK_BYTES, SEND_BLOCK_BYTES, SEND_BLOCK_BYTES - 12]


@pytest.mark.parametrize("kind", [socket.socket, EncryptedSocket])
def test_a_file_that_becomes_shorter_while_it_is_sent_is_an_error(
    tmp_path: Path, kind: type[socket.socket]
) -> None:
    file = tmp_path / "blob"
    file.write_bytes(bytes(2**16))
    near, far = socket.socketpair()
    with kind(fileno=near.detach()) as sender, far, multipart.FileRegion(file, 4, 2**16) as region:
        (block,) = region.blocks()
        sender.settimeout(10)
        os.truncate(file, 2**15)
        with pytest.raises(IntegrityError, match="blob became shorter"):
            block.send(sender)


@dataclass(frozen=True)
class FileBlob:
    """A blob in a file, with what is said of it."""

    path: Path
    digest: Digest
    said: Sequence[Piece]

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def open(self, start: int) -> BinaryIO:
        stream = self.path.open("rb")
        stream.seek(start)
        return stream

    def pieces(self) -> Sequence[Piece]:
        return self.said


class TestLargeObjects:
    """Blobs are sent in parts of 5 MiB and read in ranges."""

    @pytest.fixture(autouse=True)
    def small_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shrink(monkeypatch, 2**20)

    @pytest.mark.parametrize("size", sampled([0, 1, 6 * 2**20, 6 * 2**20 + 1, 10 * 2**20, 17 * 2**20 + 3], 5))
    def test_large_blobs_come_back(self, bucket_url: str, size: int) -> None:
        data = random.Random(size).randbytes(size)
        remote = s3_remote(bucket_url, create=True)
        with remote.push() as push:
            assert push.put(BytesIO(data), Digest.of(data)) == (Digest.of(data), size)
            push.put(BytesIO(data), Digest.of(data))
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    @pytest.mark.parametrize("size", [6 * 2**20, 12 * 2**20])
    def test_bytes_count_when_they_are_sent(self, bucket_url: str, s3_proxy: Proxy, size: int) -> None:
        data = random.Random(size).randbytes(size)
        remote = s3_remote(bucket_url, create=True)
        counts: list[int] = []
        before: list[int] = []

        def once(method: str, path: str) -> str | None:
            if method != "PUT" or "/blobs/" not in path or before:
                return None
            time.sleep(0.2)  # what fits a connection's buffers (4 MiB here) is sent by now
            before.append(sum(counts))
            return "slow-down"

        s3_proxy.plan = once
        with remote.push() as push:
            stream = metered(BytesIO(data), counts.append, "reading", size)
            push.put(stream, Digest.of(data))
        assert s3_proxy.met == ["slow-down"]
        assert before[0] < size
        assert min(counts) < 0, "what was sent in vain is taken back"
        assert sum(counts) == size


class TestParts:
    """The same in small: each size is a quarter."""

    @pytest.fixture(autouse=True)
    def small_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shrink(monkeypatch, UNIT)

    def test_wrong_bytes_are_given_up(self, bucket_url: str, ministack: s3servers.Server) -> None:
        remote = s3_remote(bucket_url, create=True)
        with remote.push() as push, pytest.raises(IntegrityError):
            push.put(BytesIO(bytes(12 * UNIT)), Digest.of(b"other"))
        assert not remote.has([Digest.of(b"other")])
        assert ministack.uploads(bucket_url) == []

    @pytest.mark.parametrize("said", ["nothing", "the truth", "wrong digests"])
    @pytest.mark.parametrize("fault", sampled(["reset", "lost", "slow-down", "garbled"], 2))
    def test_parts_are_sent_again(self, bucket_url: str, s3_proxy: Proxy, fault: str, said: str) -> None:
        data = random.Random(1).randbytes(17 * UNIT)
        pieces = [] if said == "nothing" else pieces_of(data if said == "the truth" else bytes(len(data)))
        remote = s3_remote(bucket_url, create=True)
        met: set[str] = set()

        def once(method: str, path: str) -> str | None:
            """The fault meets each request of the upload the first time."""
            known, new = method + path.partition("&uploadId")[0], "uploadId" in path or "uploads" in path
            if not new or known in met or (fault == "garbled" and method != "PUT"):
                return None
            met.add(known)
            return fault

        s3_proxy.plan = at_first_tries(fault)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data), pieces)
        assert len(s3_proxy.met) >= 3
        s3_proxy.plan = lambda method, path: None
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_a_part_whose_digest_is_said_is_not_hashed(
        self, bucket_url: str, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = random.Random(2).randbytes(17 * UNIT)
        remote = s3_remote(bucket_url, create=True)
        monkeypatch.setattr(multipart, "streams", None)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data), pieces_of(data))
        assert s3_proxy.requests("PUT", "partNumber") == 3
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_wrong_bytes_fail_with_any_pieces(self, bucket_url: str, ministack: s3servers.Server) -> None:
        data, other = bytes(17 * UNIT), random.Random(3).randbytes(17 * UNIT)
        remote = s3_remote(bucket_url, create=True)
        for pieces in (pieces_of(data), pieces_of(other)):
            with remote.push() as push, pytest.raises(IntegrityError):
                push.put(BytesIO(data), Digest.of(other), pieces)
            assert not remote.has([Digest.of(other)])
        assert ministack.uploads(bucket_url) == []

    @pytest.mark.parametrize("fault", sampled(["none", "reset", "garbled"], 2))
    @pytest.mark.parametrize("said", sampled(["the truth", "wrong digests", "wrong lengths"], 2))
    def test_parts_of_a_file(
        self, bucket_url: str, s3_proxy: Proxy, tmp_path: Path, fault: str, said: str
    ) -> None:
        """A file whose pieces are stated is sent from where it is; if that is wrong, the whole file decides."""
        data = random.Random(4).randbytes(17 * UNIT)
        (tmp_path / "blob").write_bytes(data)
        stated = {
            "the truth": pieces_of(data),
            "wrong digests": pieces_of(bytes(len(data))),
            "wrong lengths": pieces_of(data)[:2],
        }
        remote = s3_remote(bucket_url, create=True)
        s3_proxy.plan = at_first_tries(fault)
        before = s3_proxy.requests("PUT", "partNumber")
        with remote.push() as push:
            assert push.fetch(FileBlob(tmp_path / "blob", Digest.of(data), stated[said])) == len(data)
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data
        if (fault, said) == ("none", "the truth"):
            assert s3_proxy.requests("PUT", "partNumber") - before == 3, "no part is sent twice"

    @pytest.mark.parametrize("fault", sampled(["none", "reset", "garbled"], 2))
    @pytest.mark.parametrize(
        "said", sampled(["the truth", "a wrong digest", "wrong digests", "wrong lengths"], 2)
    )
    def test_progress_ends_at_the_size_and_never_passes_it(
        self, registry: Registry, bucket_url: str, s3_proxy: Proxy, fault: str, said: str
    ) -> None:
        """Bytes that are sent again are taken back first."""
        data = random.Random(6).randbytes(17 * UNIT)
        source = DirectoryRegistry.create(registry.store.root)
        with source.push() as push:
            push.put(BytesIO(data))
            push.flush()
        truth = pieces_of(data)
        stated = {
            "the truth": truth,
            "a wrong digest": [*truth[:2], truth[2]._replace(digest=truth[0].digest)],
            "wrong digests": pieces_of(bytes(len(data))),
            "wrong lengths": truth[:2],
        }
        reports: list[int] = []
        file = Reference(Digest.of(data), len(data), "artifact m.onnx", tuple(stated[said]))
        blob = BlobTransfer(source, file.digest, file, reports.append)
        assert blob.path is not None
        remote = s3_remote(bucket_url, create=True)
        s3_proxy.plan = at_first_tries(fault)
        with remote.push() as push:
            assert push.fetch(blob) == len(data)
        totals = list(accumulate(reports))
        assert (totals[-1], max(totals) <= len(data), min(totals) >= 0) == (len(data), True, True)

    def test_a_file_with_other_bytes_is_not_sent(
        self, bucket_url: str, ministack: s3servers.Server, tmp_path: Path
    ) -> None:
        data, other = random.Random(5).randbytes(17 * UNIT), bytes(17 * UNIT)
        (tmp_path / "blob").write_bytes(other)
        remote = s3_remote(bucket_url, create=True)
        for stated in (pieces_of(data), pieces_of(other)):
            with remote.push() as push, pytest.raises(IntegrityError):
                push.fetch(FileBlob(tmp_path / "blob", Digest.of(data), stated))
            assert not remote.has([Digest.of(data)])
        assert ministack.uploads(bucket_url) == []

    @pytest.mark.parametrize("is_compared", [True, False])
    def test_a_file_that_changes_between_its_hash_and_its_upload_is_not_taken(
        self,
        bucket_url: str,
        ministack: s3servers.Server,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        is_compared: bool,
    ) -> None:
        """Also by a server that takes any bytes: it gets the digests of the changed ones here."""
        data = random.Random(6).randbytes(17 * UNIT)
        (tmp_path / "blob").write_bytes(data)
        pass_over = CheckedStream.pass_over

        def changed(stream: CheckedStream, count: int) -> int:
            passed = pass_over(stream, count)
            with (tmp_path / "blob").open("r+b") as file:
                file.write(bytes(UNIT))
            return passed

        monkeypatch.setattr(CheckedStream, "pass_over", changed)
        if not is_compared:
            target, sent = multipart._target, pieces_of(bytes(UNIT) + data[UNIT:])
            monkeypatch.setattr(
                multipart, "_target", lambda number, sha256: target(number, sent[number - 1].digest)
            )
        remote = s3_remote(bucket_url, create=True)
        with remote.push() as push, pytest.raises(IntegrityError):
            push.fetch(FileBlob(tmp_path / "blob", Digest.of(data), pieces_of(data)))
        assert not remote.has([Digest.of(data)])
        assert ministack.uploads(bucket_url) == []

    def test_a_failed_upload_leaves_no_part(
        self, bucket_url: str, s3_proxy: Proxy, ministack: s3servers.Server
    ) -> None:
        remote = s3_remote(bucket_url, create=True)
        s3_proxy.plan = lambda method, path: "error" if "partNumber=2" in path else None
        with (
            remote.push() as push,
            pytest.raises(RemoteError, match=r"uploading blobs/sha256/.*InternalError"),
        ):
            push.put(BytesIO(bytes(17 * UNIT)), Digest.of(bytes(17 * UNIT)))
        assert ministack.uploads(bucket_url) == []

    def test_credentials_that_expire_between_parts(
        self, bucket_url: str, s3_proxy: Proxy, ministack: s3servers.Server
    ) -> None:
        """Giving the parts up is refused too."""
        data = random.Random(4).randbytes(17 * UNIT)
        remote = s3_remote(bucket_url, create=True)
        expired = False

        def plan(method: str, path: str) -> str | None:
            nonlocal expired
            expired = expired or "partNumber=2" in path
            return "expired" if expired else None

        s3_proxy.plan = plan
        with remote.push() as push, pytest.raises(RemoteError, match="ExpiredToken") as error:
            push.put(BytesIO(data), Digest.of(data))
        assert error.value.hint.startswith("the credentials have expired")
        assert not direct(bucket_url, ministack).has([Digest.of(data)])
        assert len(ministack.uploads(bucket_url)) == 1
        s3_proxy.plan = lambda method, path: None
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    @pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "error"])
    def test_ranges_are_fetched_again(self, bucket_url: str, s3_proxy: Proxy, fault: str) -> None:
        data = random.Random(2).randbytes(9 * UNIT)
        remote = s3_remote(bucket_url, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        before = s3_proxy.requests("GET", "blobs")
        s3_proxy.plan = at(2, fault, burst=3)
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data
        assert s3_proxy.requests("GET", "blobs") - before == 9 + 3

    def test_an_object_that_changes_meanwhile_is_noticed(
        self, bucket_url: str, ministack: s3servers.Server
    ) -> None:
        data = bytes(12 * UNIT)
        remote = s3_remote(bucket_url, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        with (
            remote.open_blob(Digest.of(data)) as stream,
            pytest.raises(RemoteError, match="PreconditionFailed"),
        ):
            assert stream.read(10) == bytes(10)
            ministack.put(bucket_url, blob_path(Digest.of(data)), b"x" * len(data))
            stream.read()


MEASURE = """
import hashlib, random, resource, sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, RawIOBase
from onnxreg.registry.store import streams
from onnxreg.registry.store.s3.bucket import s3_remote
from onnxreg.registry.store.streams import metered
from onnxreg.schema.core.digest import Digest

class Noise(RawIOBase):
    def __init__(self, seed, size):
        self.block, self.left = random.Random(seed).randbytes(2**20), size
    def readable(self):
        return True
    def readinto(self, buffer):
        count = min(len(buffer), self.left, len(self.block))
        buffer[:count] = self.block[:count]
        self.left -= count
        return count

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

size, count, url = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
digests = [streams.pump(Noise(seed, size), None)[0] for seed in range(count)]
remote = s3_remote(url, create=True)
with remote.push() as push:
    push.put(BytesIO(b"small"))
before = peak()
with remote.push() as push, ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda seed: push.put(Noise(seed, size), digests[seed]), range(count)))
pushed = peak()
def read(digest):
    with remote.open_blob(digest) as stream:
        assert streams.pump(stream, None)[0] == digest
with ThreadPoolExecutor(8) as pool:
    list(pool.map(read, digests))
print(pushed - before, peak() - before)
"""


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "size", "count"),
    [("ministack", 60 * 2**20, 8), ("ministack", 200 * 2**20, 8), ("seaweedfs", 2**31, 1)],
)
def test_memory_is_flat(
    name: str, size: int, count: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MiB above the baseline, several blobs at a time. MiniStack keeps in memory what it is sent, SeaweedFS does not."""
    server: s3servers.Server = request.getfixturevalue(name)
    server.enter(monkeypatch)
    command = [sys.executable, "-c", MEASURE, str(size), str(count), server.fresh()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert all(int(growth) < 64 for growth in done.stdout.split()), done.stdout


KILLED = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.store.s3 import bucket, multipart

bucket.MAX_SINGLE_UPLOAD_BYTES, multipart.MIN_PART_BYTES = 6 * 2**20, 5 * 2**20
Registry(Path(sys.argv[1])).push("acme/pii:0.1.0", sys.argv[2])
"""


@pytest.mark.more
def test_a_push_that_is_killed_between_parts(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its parts stay in the bucket, unseen by every reader, until a lifecycle rule or somebody gives them up."""
    registry.add(make_draft(size=2**21))
    command = [sys.executable, "-c", KILLED, str(registry.store.root), bucket_url]

    def kill(method: str, path: str) -> str | None:
        if "partNumber=2" not in path:
            return None
        os.kill(pusher.pid, signal.SIGKILL)
        return "reset"

    s3_proxy.plan = kill
    pusher = subprocess.Popen(command)
    assert pusher.wait() == -signal.SIGKILL
    left = ministack.uploads(bucket_url)
    assert len(left) == 1
    assert versions(direct(bucket_url, ministack)) == set()
    s3_proxy.plan = lambda method, path: None
    monkeypatch.setattr(bucket, "MAX_SINGLE_UPLOAD_BYTES", 6 * 2**20)
    monkeypatch.setattr(multipart, "MIN_PART_BYTES", 5 * 2**20)
    registry.push("acme/pii:0.1.0", bucket_url)
    assert versions(direct(bucket_url, ministack)) == {"0.1.0"}
    assert damages(direct(bucket_url, ministack)) == []
    assert ministack.uploads(bucket_url) == left
