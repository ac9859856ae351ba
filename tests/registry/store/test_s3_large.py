"""Large objects in S3: up in parts, down in one stream."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO

import pytest
from support.registries.bucket import damages, direct, versions
from support.sampling import sampled
from support.servers import s3servers
from support.servers.faults import Proxy, at

from onnxreg.registry import Registry
from onnxreg.registry.store import bucket
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


UNIT = 2**18


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "PART_BYTES", 5 * UNIT)
    monkeypatch.setattr(bucket, "READ_BYTES", UNIT)


@pytest.mark.parametrize("size", sampled([0, 1, 5 * UNIT, 5 * UNIT + 1, 10 * UNIT, 17 * UNIT + 3], 5))
def test_large_blobs_come_back(bucket_url: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    remote = bucket_remote(bucket_url, create=True)
    with remote.push() as push:
        assert push.put(BytesIO(data), Digest.of(data)) == (Digest.of(data), size)
        assert push.put(BytesIO(data), Digest.of(data)) == (Digest.of(data), size)
    with remote.open_blob(Digest.of(data)) as stream:
        assert stream.read() == data


class TestParts:
    def test_wrong_bytes_are_given_up(self, bucket_url: str, ministack: s3servers.Server) -> None:
        remote = bucket_remote(bucket_url, create=True)
        with remote.push() as push, pytest.raises(IntegrityError):
            push.put(BytesIO(bytes(17 * UNIT)), Digest.of(b"other"))
        assert not remote.has([Digest.of(b"other")])
        assert ministack.uploads(bucket_url) == []

    @pytest.mark.parametrize("fault", sampled(["reset", "lost", "slow-down"], 2))
    def test_parts_are_sent_again(self, bucket_url: str, s3_proxy: Proxy, fault: str) -> None:
        data = random.Random(1).randbytes(17 * UNIT)
        remote = bucket_remote(bucket_url, create=True)
        met: set[str] = set()

        def once(method: str, path: str) -> str | None:
            """The fault meets each part the first time."""
            number = path.partition("partNumber=")[2][:1]
            if not number or number in met:
                return None
            met.add(number)
            return fault

        s3_proxy.plan = once
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        assert len(s3_proxy.met) >= 3
        s3_proxy.plan = lambda method, path: None
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_a_blob_with_a_garbled_part_is_sent_again(
        self,
        bucket_url: str,
        s3_proxy: Proxy,
        ministack: s3servers.Server,
        registry: Registry,
        make_draft: MakeDraft,
    ) -> None:
        registry.add(make_draft(size=300_000))
        s3_proxy.plan = lambda method, path: (
            "garbled" if "partNumber=1" in path and not s3_proxy.met else None
        )
        registry.push("acme/pii:0.1.0", bucket_url)
        assert s3_proxy.met == ["garbled"]
        assert damages(direct(bucket_url, ministack)) == []
        assert ministack.uploads(bucket_url) == []

    def test_a_failed_upload_leaves_no_part(
        self, bucket_url: str, s3_proxy: Proxy, ministack: s3servers.Server
    ) -> None:
        remote = bucket_remote(bucket_url, create=True)
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
        remote = bucket_remote(bucket_url, create=True)
        expired = False

        def plan(method: str, path: str) -> str | None:
            nonlocal expired
            expired = expired or "partNumber=2" in path
            return "expired" if expired else None

        s3_proxy.plan = plan
        with remote.push() as push, pytest.raises(RemoteError, match="ExpiredToken") as error:
            push.put(BytesIO(data), Digest.of(data))
        assert "credentials (AWS_PROFILE)" in error.value.hint
        assert not direct(bucket_url, ministack).has([Digest.of(data)])
        assert len(ministack.uploads(bucket_url)) == 1
        s3_proxy.plan = lambda method, path: None
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    @pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "error"])
    def test_a_stream_that_breaks_goes_on_where_it_broke(
        self, bucket_url: str, s3_proxy: Proxy, fault: str
    ) -> None:
        data = random.Random(2).randbytes(36 * UNIT)
        remote = bucket_remote(bucket_url, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        s3_proxy.plan = at(0, fault, burst=3)
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data
        assert s3_proxy.met == [fault] * 3

    def test_an_object_that_changes_meanwhile_is_noticed(
        self, bucket_url: str, s3_proxy: Proxy, ministack: s3servers.Server
    ) -> None:
        data = bytes(36 * UNIT)
        remote = bucket_remote(bucket_url, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        s3_proxy.plan = at(0, "truncated")
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
from onnxreg.registry.store.bucket import bucket_remote
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
remote = bucket_remote(url, create=True)
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
    assert all(int(growth) < 128 for growth in done.stdout.split()), done.stdout


KILLED = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.store import bucket

bucket.PART_BYTES = 5 * 2**20
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
    registry.push("acme/pii:0.1.0", bucket_url)
    assert versions(direct(bucket_url, ministack)) == {"0.1.0"}
    assert damages(direct(bucket_url, ministack)) == []
    assert ministack.uploads(bucket_url) == left
