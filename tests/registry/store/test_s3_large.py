"""Large objects in S3: up in parts, down in one stream."""

import os
import random
import signal
import subprocess
import sys
from io import BytesIO

import pytest
from support.registries.bucket import Bucket
from support.sampling import sampled
from support.servers import s3servers
from support.servers.faults import at

from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.store import bucket
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, RemoteError

UNIT = 2**18


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(bucket, "PART_BYTES", 5 * UNIT)
    monkeypatch.setattr(bucket, "READ_BYTES", UNIT)


@pytest.mark.parametrize("size", sampled([0, 1, 5 * UNIT, 5 * UNIT + 1, 10 * UNIT, 17 * UNIT + 3], 5))
def test_large_blobs_come_back(bucket_url, size):
    data = random.Random(size).randbytes(size)
    remote = bucket_remote(bucket_url, create=True)
    for _ in range(2):
        put(remote, data)
    assert read_blob(remote, Digest.of(data)) == data


def stored(bucket: Bucket, count: int) -> tuple[RegistryStore, bytes]:
    """An empty registry in the bucket, and so many units to put there."""
    return bucket_remote(bucket.url, create=True), random.Random(count).randbytes(count * UNIT)


def put(remote: RegistryStore, data: bytes, digest: Digest | None = None) -> None:
    with remote.push() as push:
        assert push.put(BytesIO(data), digest or Digest.of(data)) == (Digest.of(data), len(data))


def test_wrong_bytes_are_given_up(bucket):
    remote, data = stored(bucket, 17)
    with pytest.raises(IntegrityError):
        put(remote, data, Digest.of(b"other"))
    assert not remote.has([Digest.of(b"other")])
    assert bucket.uploads == []


@pytest.mark.parametrize("fault", sampled(["reset", "lost", "slow-down"], 2))
def test_parts_are_sent_again(bucket, fault):
    remote, data = stored(bucket, 17)
    met: set[str] = set()

    def once(method: str, path: str) -> str | None:
        """The fault meets each part the first time."""
        number = path.partition("partNumber=")[2][:1]
        is_first = number and number not in met
        met.add(number)
        return fault if is_first else None

    bucket.proxy.plan = once
    put(remote, data)
    assert len(bucket.proxy.met) >= 3
    bucket.proxy.heal()
    assert read_blob(remote, Digest.of(data)) == data


def test_a_blob_with_a_garbled_part_is_sent_again(bucket, registry, make_draft):
    registry.add(make_draft(size=300_000))
    met = bucket.proxy.met
    bucket.proxy.plan = lambda method, path: "garbled" if "partNumber=1" in path and not met else None
    registry.push("acme/pii:0.1.0", bucket.url)
    assert met == ["garbled"]
    assert bucket.has("0.1.0") and bucket.uploads == []


def test_a_failed_upload_leaves_no_part(bucket):
    remote, data = stored(bucket, 17)
    bucket.proxy.plan = lambda method, path: "error" if "partNumber=2" in path else None
    with pytest.raises(RemoteError, match=r"uploading blobs/sha256/.*InternalError"):
        put(remote, data)
    assert bucket.uploads == []


def test_credentials_that_expire_between_parts(bucket):
    """Giving the parts up is refused too."""
    remote, data = stored(bucket, 17)
    met = bucket.proxy.met
    bucket.proxy.plan = lambda method, path: "expired" if met or "partNumber=2" in path else None
    with pytest.raises(RemoteError, match="ExpiredToken") as error:
        put(remote, data)
    assert "credentials (AWS_PROFILE)" in error.value.hint
    assert not bucket.remote.has([Digest.of(data)])
    assert len(bucket.uploads) == 1
    bucket.proxy.heal()
    put(remote, data)
    assert read_blob(remote, Digest.of(data)) == data


@pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "error"])
def test_a_stream_that_breaks_goes_on_where_it_broke(bucket, fault):
    remote, data = stored(bucket, 36)
    put(remote, data)
    bucket.proxy.plan = at(0, fault, burst=3)
    assert read_blob(remote, Digest.of(data)) == data
    assert bucket.proxy.met == [fault] * 3


def test_an_object_that_changes_meanwhile_is_noticed(bucket):
    remote, data = stored(bucket, 36)
    put(remote, data)
    bucket.proxy.plan = at(0, "truncated")
    with remote.open_blob(Digest.of(data)) as stream:
        assert stream.read(10) == data[:10]
        bucket.put(blob_path(Digest.of(data)), b"x" * len(data))
        with pytest.raises(RemoteError, match="PreconditionFailed"):
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
def test_memory_is_flat(name, size, count, request, monkeypatch):
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
def test_a_push_that_is_killed_between_parts(bucket, registry, make_draft):
    """Its parts stay in the bucket, unseen by every reader, until a lifecycle rule or somebody gives them up."""
    registry.add(make_draft(size=2**21))

    def kill(method: str, path: str) -> str | None:
        if "partNumber=2" not in path:
            return None
        os.kill(pusher.pid, signal.SIGKILL)
        return "reset"

    bucket.proxy.plan = kill
    pusher = subprocess.Popen([sys.executable, "-c", KILLED, str(registry.store.root), bucket.url])
    assert pusher.wait() == -signal.SIGKILL
    left = bucket.uploads
    assert len(left) == 1
    assert bucket.has()
    bucket.proxy.heal()
    registry.push("acme/pii:0.1.0", bucket.url)
    assert bucket.has("0.1.0") and bucket.uploads == left
