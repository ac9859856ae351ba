"""Bad days between a client and S3, also for objects in parts: all of it is there or nothing, and a second try finishes."""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from io import BytesIO
from typing import Any

import obstore
import pytest
from conformance.contract import put
from support.registries import owner
from support.registries.bucket import Bucket, versions
from support.sampling import sampled
from support.servers import s3servers
from support.servers.faults import FAULTS, Proxy, at

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Release
from onnxreg.registry.log.log import read_blob
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import bucket as bucket_store
from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket import BucketStore
from onnxreg.registry.store.protocol import RegistryStore, blob_path
from onnxreg.registry.system import run_parallel
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, RegError, RemoteError

REQUESTS, PULL_REQUESTS = 46, 11
"""A push and a pull of the tests' draft make at most so many."""
PII = "acme/pii:0.1.0"


@pytest.fixture
def filled(registry) -> Registry:
    registry.make()
    return registry


def table(requests: range, *faults: str, sample: int) -> list[Any]:
    """Each fault meets one request, or twenty, from each of these on; see the marks `large` and `more`."""
    scenarios = [(fault, number, burst) for fault in faults for number in requests for burst in (1, 20)]
    marks = [(), *[pytest.mark.large] * (sample - 1), pytest.mark.more, *[pytest.mark.large] * (sample - 1)]
    return [pytest.param(*each, marks=marks[n % (2 * sample)]) for n, each in enumerate(scenarios)]


SCENARIO = ("fault", "number", "burst")


def is_done(act: Any) -> bool:
    """Try; an error is one of the remote, or of wrong bytes."""
    try:
        act()
    except RegError as error:
        assert error.family in ("remote", "integrity")
        return False
    return True


def check_second_push(bucket: Bucket, before: list[str], push: Any) -> None:
    """In good weather a second push sends what was not there before, and everything is there then."""
    bucket.proxy.heal()
    push()
    assert bucket.sent_again(before) == []
    assert bucket.has("0.1.0")


def test_the_tables_cover_a_whole_push_and_pull(bucket, filled, other):
    filled.push("acme/pii", bucket.url)
    assert len(bucket.proxy.seen) <= REQUESTS
    bucket.proxy.heal()
    other.pull("acme/pii", bucket.url)
    assert len(bucket.proxy.seen) <= PULL_REQUESTS


@pytest.mark.parametrize(SCENARIO, table(range(0, REQUESTS, 2), *FAULTS, "expired", sample=82))
def test_a_push_is_whole_or_invisible(bucket, filled, fault, number, burst):
    bucket.proxy.plan = at(number, fault, burst)
    whole = is_done(lambda: filled.push(PII, bucket.url))
    sent = bucket.keys
    assert "registry.json" not in sent or bucket.has("0.1.0") or (not whole and bucket.has())
    check_second_push(bucket, sent, lambda: filled.push(PII, bucket.url))


@pytest.mark.parametrize(
    ("fault", "code"),
    [("astray", "NotFound"), ("409 ConditionalRequestConflict", "ConditionalRequestConflict")],
)
def test_a_blob_that_no_server_took_is_not_held_to_be_there(bucket, filled, fault, code):
    filled.push(PII, bucket.url)
    filled.make(seed="b")
    bucket.proxy.plan = lambda method, path: fault if method == "PUT" and "/blobs/" in path else None
    with pytest.raises(RemoteError, match=rf"writing blobs/.* {code}"):
        filled.push("acme/pii:0.1.1", bucket.url)
    assert bucket.has("0.1.0")


def check_pull(reader: Registry, pushed_model: tuple[str, Release], s3_proxy: Proxy) -> None:
    """Pull in bad weather, then in good weather."""
    url, made = pushed_model
    whole = is_done(lambda: reader.pull("acme/pii", url))
    assert versions(reader.store) == ({"0.1.0"} if whole else set())
    assert not owner.verify(reader).damages
    s3_proxy.heal()
    reader.pull("acme/pii", url)
    assert reader.get("acme/pii").digest == made.digest
    assert not owner.verify(reader).damages


@pytest.mark.parametrize(
    SCENARIO,
    [
        *table(range(PULL_REQUESTS), *FAULTS, "expired", sample=46),
        *table(range(0, PULL_REQUESTS, 2), "stalled", sample=12),
    ],
)
def test_a_pull_is_whole_or_invisible(pushed_model, s3_proxy, registry, monkeypatch, fault, number, burst):
    if fault == "stalled":
        monkeypatch.setenv("REG_READ_TIMEOUT", "0.5")
        monkeypatch.setattr(requests, "MAX_TRIES", 3)
    s3_proxy.plan = at(number, fault, burst)
    check_pull(registry, pushed_model, s3_proxy)


@pytest.mark.parametrize("part", ["registry.json", "index/", "manifest", "weights"])
@pytest.mark.parametrize(
    "spot", [pytest.param(n / 40, marks=[pytest.mark.large] if n != 8 else []) for n in range(41)]
)
def test_a_wrong_byte_is_never_taken_for_the_right_one(pushed_model, s3_proxy, registry, part, spot):
    """Wherever it is, and however often the same bytes come down."""
    blobs = {"manifest": pushed_model[1].digest, "weights": Digest.of(b"fp32 a " * 100)}
    name = blob_path(blobs[part]) if part in blobs else part
    s3_proxy.spot = spot
    s3_proxy.plan = lambda method, path: "garbled" if method == "GET" and name in path else None
    check_pull(registry, pushed_model, s3_proxy)


EXPIRY = {
    "looking for blobs": ("HEAD", "/blobs/", 1),
    "sending blobs": ("PUT", "/blobs/", 3),
    "looking for what is condemned": ("GET", "condemned", 1),
    "swapping the index": ("PUT", "/index/", 1),
}
"""Method and a part of the path of a request, and the how-many-th of them: from there on the credentials have expired."""


@pytest.mark.parametrize("stage", sampled(EXPIRY.values(), 2), ids=list(EXPIRY))
def test_credentials_that_expire_in_the_middle_of_a_push(bucket, filled, capfd, stage):
    push = ["--registry", filled.place, "push", PII, bucket.url]
    method, part, number = stage
    met = itertools.count(1)

    def plan(asked: str, path: str) -> str | None:
        """Once it has met, it meets every request."""
        if bucket.proxy.met or (asked == method and part in path and next(met) == number):
            return "expired"
        return None

    bucket.proxy.plan = plan
    assert main(push) == 6
    said = capfd.readouterr().err
    assert f"at {bucket.url} failed: ExpiredToken" in said and "credentials (AWS_PROFILE)" in said
    assert bucket.has()
    check_second_push(bucket, bucket.keys, lambda: main(push))


def test_a_server_that_stalls_is_asked_again(bucket, monkeypatch):
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.5")
    remote = open_url(bucket.url, create=True)
    put(remote, b"blob")
    bucket.proxy.plan = at(0, "stalled")
    with remote.open_blob(Digest.of(b"blob")) as stream:
        assert stream.read() == b"blob"
    assert bucket.proxy.met == ["stalled"]


def test_a_write_may_take_ten_times_as_long_as_a_server_may_be_silent(bucket, monkeypatch):
    monkeypatch.setenv("REG_READ_TIMEOUT", "2")
    send, limits = obstore.put, set[str]()

    def sent(store: Any, *arguments: Any, **options: Any) -> Any:
        limits.add(store.client_options["timeout"])
        return send(store, *arguments, **options)

    monkeypatch.setattr(obstore, "put", sent)
    put(open_url(bucket.url, create=True), b"blob")
    assert limits == {"20000ms"}


def test_an_upload_to_a_silent_server_ends_with_the_work():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = BucketStore(f"s3://bucket/p?endpoint={address}&path_style=yes&anonymous=yes")

        def work(number: int) -> None:
            if number:
                store._upload("key", iter([bytes(2**24)]), 2**24)
            time.sleep(0.5)
            raise KeyError(number)

        began = time.monotonic()
        with pytest.raises(KeyError, match="0"):
            run_parallel(work, [0, 1])
        assert time.monotonic() - began < 20


UNIT = 2**18


@pytest.fixture
def parts(bucket, monkeypatch) -> Bucket:
    """The bucket, to which large objects go up in parts."""
    monkeypatch.setattr(bucket_store, "PART_BYTES", 5 * UNIT)
    monkeypatch.setattr(bucket_store, "READ_BYTES", UNIT)
    return bucket


@pytest.mark.parametrize("size", sampled([0, 1, 5 * UNIT, 5 * UNIT + 1, 10 * UNIT, 17 * UNIT + 3], 5))
def test_large_blobs_come_back(parts, size):
    data = random.Random(size).randbytes(size)
    remote = open_url(parts.url, create=True)
    for _ in range(2):
        put_whole(remote, data)
    assert read_blob(remote, Digest.of(data)) == data


def stored(bucket: Bucket, count: int) -> tuple[RegistryStore, bytes]:
    """An empty registry in the bucket, and so many units to put there."""
    return open_url(bucket.url, create=True), random.Random(count).randbytes(count * UNIT)


def put_whole(remote: RegistryStore, data: bytes, digest: Digest | None = None) -> None:
    with remote.push() as push:
        assert push.put(BytesIO(data), digest or Digest.of(data)) == (Digest.of(data), len(data))


def test_wrong_bytes_are_given_up(parts):
    remote, data = stored(parts, 17)
    with pytest.raises(IntegrityError):
        put_whole(remote, data, Digest.of(b"other"))
    assert not remote.has([Digest.of(b"other")])
    assert parts.uploads == []


@pytest.mark.parametrize("fault", sampled(["reset", "lost", "slow-down"], 2))
def test_parts_are_sent_again(parts, fault):
    remote, data = stored(parts, 17)
    met: set[str] = set()

    def once(method: str, path: str) -> str | None:
        """The fault meets each part the first time."""
        number = path.partition("partNumber=")[2][:1]
        is_first = number and number not in met
        met.add(number)
        return fault if is_first else None

    parts.proxy.plan = once
    put_whole(remote, data)
    assert len(parts.proxy.met) >= 3
    parts.proxy.heal()
    assert read_blob(remote, Digest.of(data)) == data


def test_a_blob_with_a_garbled_part_is_sent_again(parts, registry):
    registry.make(size=300_000)
    met = parts.proxy.met
    parts.proxy.plan = lambda method, path: "garbled" if "partNumber=1" in path and not met else None
    registry.push("acme/pii:0.1.0", parts.url)
    assert met == ["garbled"]
    assert parts.has("0.1.0") and parts.uploads == []


def test_a_failed_upload_leaves_no_part(parts):
    remote, data = stored(parts, 17)
    parts.proxy.plan = lambda method, path: "error" if "partNumber=2" in path else None
    with pytest.raises(RemoteError, match=r"uploading blobs/sha256/.*InternalError"):
        put_whole(remote, data)
    assert parts.uploads == []


def test_credentials_that_expire_between_parts(parts):
    """Giving the parts up is refused too."""
    remote, data = stored(parts, 17)
    met = parts.proxy.met
    parts.proxy.plan = lambda method, path: "expired" if met or "partNumber=2" in path else None
    with pytest.raises(RemoteError, match="ExpiredToken") as error:
        put_whole(remote, data)
    assert "credentials (AWS_PROFILE)" in error.value.hint
    assert not parts.remote.has([Digest.of(data)])
    assert len(parts.uploads) == 1
    parts.proxy.heal()
    put_whole(remote, data)
    assert read_blob(remote, Digest.of(data)) == data


@pytest.mark.parametrize("fault", sampled(["reset", "lost", "truncated", "error"], 2))
def test_a_stream_that_breaks_goes_on_where_it_broke(parts, fault):
    remote, data = stored(parts, 36)
    put_whole(remote, data)
    parts.proxy.plan = at(0, fault, burst=3)
    assert read_blob(remote, Digest.of(data)) == data
    assert parts.proxy.met == [fault] * 3


def test_an_object_that_changes_meanwhile_is_noticed(parts):
    remote, data = stored(parts, 36)
    put_whole(remote, data)
    parts.proxy.plan = at(0, "truncated")
    with remote.open_blob(Digest.of(data)) as stream:
        assert stream.read(10) == data[:10]
        parts.put(blob_path(Digest.of(data)), b"x" * len(data))
        with pytest.raises(RemoteError, match="PreconditionFailed"):
            stream.read()


MEASURE = """
import hashlib, random, resource, sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, RawIOBase
from onnxreg.registry.store import streams
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store.streams import metered
from onnxreg.schema.core.canonical import Digest

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
remote = open_url(url, create=True)
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


PART_PUSHER = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.store import bucket

bucket.PART_BYTES = 5 * 2**20
Registry(Path(sys.argv[1])).push("acme/pii:0.1.0", sys.argv[2])
"""


@pytest.mark.more
def test_a_push_that_is_killed_between_parts(parts, registry):
    """Its parts stay in the bucket, unseen by every reader, until a lifecycle rule or somebody gives them up."""
    registry.make(size=2**21)

    def kill(method: str, path: str) -> str | None:
        if "partNumber=2" not in path:
            return None
        os.kill(pusher.pid, signal.SIGKILL)
        return "reset"

    parts.proxy.plan = kill
    pusher = subprocess.Popen([sys.executable, "-c", PART_PUSHER, registry.place, parts.url])
    assert pusher.wait() == -signal.SIGKILL
    left = parts.uploads
    assert len(left) == 1
    assert parts.has()
    parts.proxy.heal()
    registry.push("acme/pii:0.1.0", parts.url)
    assert parts.has("0.1.0") and parts.uploads == left
