"""Tables of bad days between a client and S3: afterwards all of it is there or nothing, and a second try finishes."""

import itertools
import socket
import time
from io import BytesIO
from typing import Any

import pytest
from conformance.contract import put
from support.registries import owner
from support.registries.bucket import Bucket, versions
from support.sampling import sampled
from support.servers import s3servers
from support.servers.faults import FAULTS, Proxy, at

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import Release
from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket import BucketStore, bucket_remote
from onnxreg.registry.store.bucket_url import BucketUrl
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError, RemoteError

REQUESTS, PULL_REQUESTS = 46, 11
"""A push and a pull of the tests' draft make at most so many."""
PII = "acme/pii:0.1.0"


@pytest.fixture
def filled(registry, make_draft) -> Registry:
    registry.add(make_draft())
    return registry


def table(requests: range, *faults: str, sample: int) -> list[Any]:
    """Each fault meets one request, or twenty, from each of these on.

    One scenario of `sample` is no large one; every second of them is `more`.
    """
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


@pytest.mark.parametrize(SCENARIO, table(range(0, REQUESTS, 2), *FAULTS, "expired", sample=41))
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
def test_a_blob_that_no_server_took_is_not_held_to_be_there(bucket, filled, make_draft, fault, code):
    filled.push(PII, bucket.url)
    filled.add(make_draft(seed="b"))
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
        *table(range(PULL_REQUESTS), *FAULTS, "expired", sample=23),
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
    "spot", [pytest.param(n / 40, marks=[pytest.mark.large] if n not in (8, 20) else []) for n in range(41)]
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
    push = ["--registry", str(filled.store.root), "push", PII, bucket.url]
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


def test_a_key_that_is_deleted_in_the_middle_of_a_push(bucket, filled, ministack_root, monkeypatch):
    key, secret = s3servers.user(ministack_root, "leaver", ["s3:*"])
    blobs = itertools.count(1)

    def leave(method: str, path: str) -> None:
        if method == "PUT" and "/blobs/" in path and next(blobs) == 3:
            s3servers.revoke(ministack_root, "leaver", key)

    with monkeypatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        bucket.proxy.plan = leave
        words = r"^uploading|writing blobs/.* failed: InvalidAccessKeyId"
        with pytest.raises(RemoteError, match=words) as error:
            filled.push("acme/pii", bucket.url)
        assert "credentials (AWS_PROFILE)" in error.value.hint
    assert bucket.has()
    check_second_push(bucket, bucket.keys, lambda: filled.push("acme/pii", bucket.url))


def test_a_server_that_stalls_is_asked_again(bucket, monkeypatch):
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.5")
    remote = bucket_remote(bucket.url, create=True)
    put(remote, b"blob")
    bucket.proxy.plan = at(0, "stalled")
    with remote.open_blob(Digest.of(b"blob")) as stream:
        assert stream.read() == b"blob"
    assert bucket.proxy.met == ["stalled"]


def test_an_upload_to_a_silent_server_ends_with_the_work():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = BucketStore(BucketUrl.parse(f"s3://bucket/p?endpoint={address}&path_style=yes&anonymous=yes"))

        def work(number: int) -> None:
            if number:
                store._upload("key", iter([bytes(2**24)]), 2**24)
            time.sleep(0.5)
            raise KeyError(number)

        began = time.monotonic()
        with pytest.raises(KeyError, match="0"):
            run_parallel(work, [0, 1])
        assert time.monotonic() - began < 20


def test_a_server_that_dies_and_comes_back(tmp_path, monkeypatch):
    port = s3servers.free_port()
    with s3servers.ministack(tmp_path, port) as server:
        server.enter(monkeypatch)
        remote = bucket_remote(url := server.fresh(), create=True)
        with remote.push() as push:
            push.put(BytesIO(b"blob"))
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    with pytest.raises(RemoteError, match=r"writing index/m\.jsonl"), remote.push() as push:
        push.publish("m", b"1\n", None)
    with s3servers.ministack(tmp_path, port):
        with remote.push() as push:
            push.publish("m", b"1\n", None)
        assert bucket_remote(url).has([Digest.of(b"blob")])
