"""Tables of bad days between a client and S3: afterwards all of it is there or nothing, and a second try finishes."""

import itertools
import socket
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import put
from support.registries import owner
from support.registries.bucket import damages, direct, finished, sent_again, versions
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
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]

REQUESTS, PULL_REQUESTS = 46, 11
"""A push and a pull of the tests' draft make at most so many."""


def table(requests: range, *faults: str, sample: int) -> list[Any]:
    """Each fault meets one request, or twenty, from each of these on.

    One scenario of `sample` is no large one; every second of them is `more`.
    """
    scenarios = [(fault, number, burst) for fault in faults for number in requests for burst in (1, 20)]
    marks = [(), *[pytest.mark.large] * (sample - 1), pytest.mark.more, *[pytest.mark.large] * (sample - 1)]
    return [pytest.param(*each, marks=marks[n % (2 * sample)]) for n, each in enumerate(scenarios)]


def test_the_tables_cover_a_whole_push_and_pull(
    bucket_url: str, s3_proxy: Proxy, registry: Registry, other: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft())
    registry.push("acme/pii", bucket_url)
    assert len(s3_proxy.seen) <= REQUESTS
    s3_proxy.seen.clear()
    other.pull("acme/pii", bucket_url)
    assert len(s3_proxy.seen) <= PULL_REQUESTS


@pytest.mark.parametrize(
    ("fault", "number", "burst"), table(range(0, REQUESTS, 2), *FAULTS, "expired", sample=41)
)
def test_a_push_is_whole_or_invisible(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    fault: str,
    number: int,
    burst: int,
) -> None:
    registry.add(make_draft())
    s3_proxy.plan = at(number, fault, burst)
    try:
        registry.push("acme/pii:0.1.0", bucket_url)
        whole = True
    except RegError as error:
        whole = False
        assert error.family in ("remote", "integrity")
    s3_proxy.plan = lambda method, path: None
    sent = finished(bucket_url, ministack)
    if "registry.json" in sent:
        remote = direct(bucket_url, ministack)
        assert damages(remote) == []
        assert versions(remote) == {"0.1.0"} or not whole
    s3_proxy.seen.clear()
    registry.push("acme/pii:0.1.0", bucket_url)
    assert sent_again(s3_proxy.seen, sent) == []
    remote = direct(bucket_url, ministack)
    assert versions(remote) == {"0.1.0"}
    assert damages(remote) == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [("astray", "NotFound"), ("409 ConditionalRequestConflict", "ConditionalRequestConflict")],
)
def test_a_blob_that_no_server_took_is_not_held_to_be_there(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    fault: str,
    code: str,
) -> None:
    registry.add(make_draft())
    registry.push("acme/pii:0.1.0", bucket_url)
    registry.add(make_draft(seed="b"))
    s3_proxy.plan = lambda method, path: fault if method == "PUT" and "/blobs/" in path else None
    with pytest.raises(RemoteError, match=rf"writing blobs/.* {code}"):
        registry.push("acme/pii:0.1.1", bucket_url)
    remote = direct(bucket_url, ministack)
    assert versions(remote) == {"0.1.0"}
    assert damages(remote) == []


@pytest.mark.parametrize(
    ("fault", "number", "burst"), table(range(PULL_REQUESTS), *FAULTS, "expired", sample=23)
)
def test_a_pull_is_whole_or_invisible(
    pushed_model: tuple[str, Release],
    s3_proxy: Proxy,
    registry: Registry,
    fault: str,
    number: int,
    burst: int,
) -> None:
    s3_proxy.plan = at(number, fault, burst)
    check_pull(registry, pushed_model, s3_proxy)


@pytest.mark.parametrize(
    ("fault", "number", "burst"), table(range(0, PULL_REQUESTS, 2), "stalled", sample=12)
)
def test_a_pull_that_stalls_is_whole_or_invisible(
    pushed_model: tuple[str, Release],
    s3_proxy: Proxy,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    number: int,
    burst: int,
) -> None:
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.5")
    monkeypatch.setattr(requests, "MAX_TRIES", 3)
    s3_proxy.plan = at(number, fault, burst)
    check_pull(registry, pushed_model, s3_proxy)


@pytest.mark.parametrize("part", ["registry.json", "index/", "manifest", "weights"])
@pytest.mark.parametrize(
    "spot", [pytest.param(n / 40, marks=[pytest.mark.large] if n not in (8, 20) else []) for n in range(41)]
)
def test_a_wrong_byte_is_never_taken_for_the_right_one(
    pushed_model: tuple[str, Release], s3_proxy: Proxy, registry: Registry, part: str, spot: float
) -> None:
    """Wherever it is, and however often the same bytes come down."""
    blobs = {"manifest": pushed_model[1].digest, "weights": Digest.of(b"fp32 a " * 100)}
    name = blob_path(blobs[part]) if part in blobs else part
    s3_proxy.spot = spot
    s3_proxy.plan = lambda method, path: "garbled" if method == "GET" and name in path else None
    check_pull(registry, pushed_model, s3_proxy)


def check_pull(reader: Registry, pushed_model: tuple[str, Release], s3_proxy: Proxy) -> None:
    """Pull in bad weather, then in good weather."""
    url, made = pushed_model
    try:
        reader.pull("acme/pii", url)
        whole = True
    except RegError as error:
        whole = False
        assert error.family in ("remote", "integrity")
    assert versions(reader.store) == ({"0.1.0"} if whole else set())
    assert not owner.verify(reader).damages
    s3_proxy.plan = lambda method, path: None
    reader.pull("acme/pii", url)
    assert reader.get("acme/pii").digest == made.digest
    assert not owner.verify(reader).damages


EXPIRY = {
    "looking for blobs": ("HEAD", "/blobs/", 1),
    "sending blobs": ("PUT", "/blobs/", 3),
    "looking for what is condemned": ("GET", "condemned", 1),
    "swapping the index": ("PUT", "/index/", 1),
}
"""Method and a part of the path of a request, and the how-many-th of them: from there on the credentials have expired."""


@pytest.mark.parametrize("stage", sampled(EXPIRY.values(), 2), ids=list(EXPIRY))
def test_credentials_that_expire_in_the_middle_of_a_push(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    capfd: pytest.CaptureFixture[str],
    stage: tuple[str, str, int],
) -> None:
    registry.add(make_draft())
    push = ["--registry", str(registry.store.root), "push", "acme/pii:0.1.0", bucket_url]
    method, part, number = stage
    met = itertools.count(1)

    def plan(asked: str, path: str) -> str | None:
        """Once it has met, it meets every request."""
        if s3_proxy.met or (asked == method and part in path and next(met) == number):
            return "expired"
        return None

    s3_proxy.plan = plan
    assert main(push) == 6
    said = capfd.readouterr().err
    assert f"at {bucket_url} failed: ExpiredToken" in said
    assert "credentials (AWS_PROFILE)" in said
    sent = finished(bucket_url, ministack)
    assert versions(direct(bucket_url, ministack)) == set()
    s3_proxy.plan = lambda method, path: None
    s3_proxy.seen.clear()
    assert main(push) == 0
    assert sent_again(s3_proxy.seen, sent) == []
    assert damages(direct(bucket_url, ministack)) == []


def test_a_key_that_is_deleted_in_the_middle_of_a_push(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    ministack_root: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.add(make_draft())
    key, secret = s3servers.user(ministack_root, "leaver", ["s3:*"])
    blobs = itertools.count(1)

    def leave(method: str, path: str) -> None:
        if method == "PUT" and "/blobs/" in path and next(blobs) == 3:
            s3servers.revoke(ministack_root, "leaver", key)

    with monkeypatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        s3_proxy.plan = leave
        with pytest.raises(
            RemoteError, match=r"^uploading|writing blobs/.* failed: InvalidAccessKeyId"
        ) as error:
            registry.push("acme/pii", bucket_url)
        assert "credentials (AWS_PROFILE)" in error.value.hint
    sent = finished(bucket_url, ministack)
    assert versions(direct(bucket_url, ministack)) == set()
    s3_proxy.seen.clear()
    registry.push("acme/pii", bucket_url)
    assert sent_again(s3_proxy.seen, sent) == []
    assert damages(direct(bucket_url, ministack)) == []


def test_a_server_that_stalls_is_asked_again(
    bucket_url: str, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.5")
    remote = bucket_remote(bucket_url, create=True)
    put(remote, b"blob")
    s3_proxy.plan = at(0, "stalled")
    with remote.open_blob(Digest.of(b"blob")) as stream:
        assert stream.read() == b"blob"
    assert s3_proxy.met == ["stalled"]


def test_an_upload_to_a_silent_server_ends_with_the_work() -> None:
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


def test_a_server_that_dies_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
