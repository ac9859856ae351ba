"""What S3 refuses, or what is not there: a message with operation and side, the right exit status, nothing changed."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.registries import owner
from support.registries.bucket import finished
from support.servers import s3servers
from support.servers.faults import Proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import Release
from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket import BucketStore
from onnxreg.registry.store.bucket_url import BucketUrl
from onnxreg.registry.store.layout import blob_path, keys_of, new_identity
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
Reg = Callable[..., tuple[int, str]]

VERBS = ("push", "pull", "resolve")


@pytest.fixture
def reg(
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Reg:
    """Run a verb with acme/pii:0.1.0, which is here, and a remote; returns exit status and what is said on stderr."""
    registry.add(make_draft())
    monkeypatch.setattr(requests, "MAX_TRIES", 2)

    def run(verb: str, url: str) -> tuple[int, str]:
        place = ["--remote", url] if verb == "resolve" else [url]
        status = main(["--registry", str(registry.store.root), verb, "acme/pii:0.1.0", *place])
        return status, capfd.readouterr().err

    return run


def wrong(server: s3servers.Server, url: str) -> dict[str, tuple[str, dict[str, str], int, str]]:
    """URL, environment, exit status and a part of the message for each bad input."""
    closed = f"http://127.0.0.1:{s3servers.free_port()}"
    reading = "reading registry.json at {url} failed: "
    return {
        "no such bucket": ("s3://nowhere/x", {}, 6, f"{reading}NoSuchBucket"),
        "impossible bucket": ("s3://Not_A_Bucket/x", {}, 2, "no bucket can be called"),
        "no bucket": ("s3:///x", {}, 2, "no bucket can be called"),
        "impossible prefix": (f"s3://models/{'x' * 900}", {}, 2, "not a prefix of a registry"),
        "prefix that goes up": ("s3://models/a/../b", {}, 2, "not a prefix of a registry"),
        "prefix with two slashes": ("s3://models//x", {}, 2, "not a prefix of a registry"),
        "neither yes nor no": (f"{url}?anonymous=maybe", {}, 2, "no option anonymous=maybe"),
        "credentials in the URL": ("s3://KEY:SECRET@models/x", {}, 2, "the URL holds credentials"),
        "credentials in the endpoint": (
            "s3://models/x?endpoint=https://KEY:SECRET@host",
            {},
            2,
            "the URL holds credentials",
        ),
        "unknown option": (f"{url}?colour=red", {}, 2, "no option colour=red"),
        "wrong secret": (url, {"AWS_SECRET_ACCESS_KEY": "wrong"}, 6, f"{reading}SignatureDoesNotMatch"),
        "wrong key": (url, {"AWS_ACCESS_KEY_ID": "AKIAWRONG"}, 6, f"{reading}InvalidAccessKeyId"),
        "nobody listens": (url, {"AWS_ENDPOINT_URL": closed}, 6, f"{reading}Connection refused"),
        "no credentials": (
            url,
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            6,
            "no credentials for {url} were found",
        ),
        "anonymous": (f"{url}?anonymous=yes", {}, 6, f"{reading}AccessDenied"),
        "no such profile": (f"{url}?profile=nobody", {}, 2, "nobody"),
        "no endpoint": (f"{url}?endpoint=nonsense", {}, 2, "nonsense"),
    }


def sampled(names: Iterable[str]) -> list[Any]:
    """Each of these with each verb; each with one verb is no large test."""
    return [
        pytest.param(name, verb, marks=[] if (n + m) % len(VERBS) == 0 else [pytest.mark.large])
        for n, name in enumerate(names)
        for m, verb in enumerate(VERBS)
    ]


@pytest.mark.parametrize(("case", "verb"), sampled(wrong(s3servers.Server("", "", ""), "")))
def test_bad_input(
    bucket_url: str,
    ministack: s3servers.Server,
    reg: Reg,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    verb: str,
) -> None:
    url, environment, status, message = wrong(ministack, bucket_url)[case]
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value) if value else patch.delenv(name)
        found, said = reg(verb, url)
    assert (found, message.format(url=url) in said) == (status, True), said
    assert "hint: " in said
    assert not any(secret in said for secret in (ministack.secret, "SECRET"))
    assert finished(bucket_url, ministack) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_web_page_is_no_registry(bucket_url: str, s3_proxy: Proxy, reg: Reg, verb: str) -> None:
    s3_proxy.plan = lambda method, path: "page"
    status, said = reg(verb, bucket_url)
    assert (status, f"the server at {bucket_url} is not an S3 server" in said) == (6, True), said
    assert "hint: is there a proxy or a login page in between" in said


@pytest.mark.parametrize(
    ("verb", "status", "message"),
    [
        ("push", 2, "{url} is not a registry and not empty"),
        ("pull", 3, "there is no registry in {url}"),
        ("resolve", 3, "there is no registry in {url}"),
    ],
)
def test_a_prefix_that_holds_something_else_is_left_alone(
    bucket_url: str, ministack: s3servers.Server, reg: Reg, verb: str, status: int, message: str
) -> None:
    ministack.put(bucket_url, "photo.jpg", b"x")
    found, said = reg(verb, bucket_url)
    assert (found, message.format(url=bucket_url) in said) == (status, True), said
    assert finished(bucket_url, ministack) == ["photo.jpg"]


LAYOUTS = {
    "newer": (new_identity(min_reader=2), 9, "has layout 2, this onnxreg reads up to 1"),
    "another": (new_identity(layout="another"), 4, "does not describe an onnxreg registry"),
    "no document": (b"<xml/>", 4, "registry.json of {url} is damaged"),
}


@pytest.mark.parametrize(("layout", "verb"), sampled(LAYOUTS))
def test_a_layout_that_is_not_ours(
    bucket_url: str, ministack: s3servers.Server, reg: Reg, layout: str, verb: str
) -> None:
    identity, status, message = LAYOUTS[layout]
    ministack.put(bucket_url, "registry.json", identity)
    found, said = reg(verb, bucket_url)
    assert (found, message.format(url=bucket_url) in said) == (status, True), said
    assert finished(bucket_url, ministack) == ["registry.json"]


READ, WRITE, LIST, DELETE = "s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"


@pytest.mark.parametrize(
    ("verb", "actions", "message"),
    [
        ("push", (READ, LIST, DELETE), "writing gc/probe-"),
        ("push", (WRITE, LIST, DELETE), "reading registry.json at {url} failed"),
        ("push", (READ, WRITE, DELETE), "listing the registry at {url} failed"),
        ("pull", (WRITE, LIST, DELETE), "reading registry.json at {url} failed"),
        ("resolve", (WRITE, LIST, DELETE), "reading registry.json at {url} failed"),
    ],
)
def test_a_key_that_may_not(
    bucket_url: str,
    ministack: s3servers.Server,
    ministack_root: s3servers.Server,
    reg: Reg,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    actions: tuple[str, ...],
    message: str,
) -> None:
    key, secret = s3servers.user(ministack_root, f"{verb} with {' '.join(actions)}", actions)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        status, said = reg(verb, bucket_url)
    assert (status, message.format(url=bucket_url) in said) == (6, True), said
    assert "AccessDenied" in said and "hint: check that these credentials (AWS_PROFILE) may do this" in said
    assert finished(bucket_url, ministack) == []


@pytest.mark.parametrize("second_key", [False, True])
def test_a_reader_who_may_not_list_the_bucket_reads(
    bucket_url: str,
    s3_proxy: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    other: Registry,
    make_draft: MakeDraft,
    capfd: pytest.CaptureFixture[str],
    second_key: bool,
) -> None:
    """S3 then answers 403 for what is absent, such as the log of policies and the second keys of blobs."""
    made = registry.add(make_draft())
    registry.tag("acme/pii:0.1.0", "stable")
    registry.push("acme/pii:0.1.0", bucket_url, channels=["stable"])
    if second_key:
        client, digest = ministack.client(), made.manifest.artifacts[0].digest
        plain, later = (f"{s3servers.prefix(bucket_url)}/{key.path}" for key in keys_of(digest)[:2])
        client.copy_object(Bucket="models", Key=later, CopySource=f"models/{plain}")
        client.delete_object(Bucket="models", Key=plain)
    s3_proxy.plan = lambda method, path: "hidden"
    other.pull("acme/pii:stable", bucket_url)
    assert other.get("acme/pii").digest == made.digest
    assert not owner.verify(other).damages
    assert len({path for _, path in s3_proxy.seen if "absent-" in path}) == 1
    words = ["--registry", str(other.store.root), "pull"]
    assert main([*words, "acme/nobody", bucket_url]) == 3
    assert main([*words, "acme/pii", bucket_url + "-nowhere"]) == 6
    assert "may not list" in capfd.readouterr().err
    words = ["--registry", str(other.store.root), "verify", "--remote", bucket_url]
    assert (main([*words, "acme/pii"]), main(words)) == (0, 6)


def test_a_repair_deletes_nothing_that_could_not_be_read(
    bucket_url: str, s3_proxy: Proxy, ministack: s3servers.Server, reg: Reg, registry: Registry
) -> None:
    assert reg("push", bucket_url)[0] == 0
    path = blob_path(Digest.of(b"nothing refers to it"))
    ministack.put(bucket_url, path, b"nothing refers to it")
    s3_proxy.plan = lambda method, target: "403 AccessDenied" if method == "GET" and path in target else None
    words = ["--registry", str(registry.store.root), "verify", "--remote", bucket_url]
    assert main([*words, "--repair", "--from", str(registry.store.root)]) == 6
    assert path.removeprefix("blobs/") in finished(bucket_url, ministack)


@pytest.mark.parametrize("status", ["403 AccessDenied", "405 MethodNotAllowed", "501 NotImplemented"])
def test_a_server_that_refuses_head_is_asked_for_a_byte(
    pushed_model: tuple[str, Release], s3_proxy: Proxy, status: str
) -> None:
    url, _ = pushed_model
    s3_proxy.plan = lambda method, path: status if method == "HEAD" else None
    store = BucketStore(BucketUrl.parse(url))
    paths = {"registry.json", "index/acme/pii.jsonl"}
    assert store.has([*paths, "index/acme/absent.jsonl"]) == paths
