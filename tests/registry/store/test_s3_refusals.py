"""What S3 refuses, or what is not there: a message with operation and side, the right exit status, nothing changed."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.servers import http, s3servers

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store import requests
from onnxreg.registry.store.bucket import BucketStore
from onnxreg.registry.store.bucket_url import BucketUrl, aws_settings
from onnxreg.registry.store.protocol import blob_path, keys_of, new_identity
from onnxreg.schema.core.canonical import Digest

VERBS = ("push", "pull", "resolve")
Said = Callable[..., str]


@pytest.fixture
def filled(registry) -> Registry:
    registry.make()
    return registry


@pytest.fixture
def said(filled, monkeypatch, capfd) -> Said:
    """Run a verb with acme/pii:0.1.0, which is here, and a remote; what stderr says when it ends with this status."""
    monkeypatch.setattr(requests, "MAX_TRIES", 2)

    def run(status: int, verb: str, url: str, **environment: str) -> str:
        place = ["--remote", url] if verb == "resolve" else [url]
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value) if value else patch.delenv(name)
            found = filled.reg(verb, "acme/pii:0.1.0", *place)
        text = capfd.readouterr().err
        assert found == status, text
        return text

    return run


READING = "reading registry.json at {url} failed: "
CREDENTIALS = "the URL holds credentials"
WRONG: dict[str, tuple[str, int, str, dict[str, str]]] = {
    "no such bucket": ("s3://nowhere/x", 6, f"{READING}NoSuchBucket", {}),
    "impossible bucket": ("s3://Not_A_Bucket/x", 2, "no bucket can be called", {}),
    "no bucket": ("s3:///x", 2, "no bucket can be called", {}),
    "impossible prefix": (f"s3://models/{'x' * 900}", 2, "not a prefix of a registry", {}),
    "prefix that goes up": ("s3://models/a/../b", 2, "not a prefix of a registry", {}),
    "prefix with two slashes": ("s3://models//x", 2, "not a prefix of a registry", {}),
    "neither yes nor no": ("?anonymous=maybe", 2, "no option anonymous=maybe", {}),
    "credentials in the URL": ("s3://KEY:SECRET@models/x", 2, CREDENTIALS, {}),
    "credentials in the endpoint": ("s3://models/x?endpoint=https://KEY:SECRET@host", 2, CREDENTIALS, {}),
    "unknown option": ("?colour=red", 2, "no option colour=red", {}),
    "wrong secret": ("", 6, f"{READING}SignatureDoesNotMatch", {"AWS_SECRET_ACCESS_KEY": "wrong"}),
    "wrong key": ("", 6, f"{READING}InvalidAccessKeyId", {"AWS_ACCESS_KEY_ID": "AKIAWRONG"}),
    "nobody listens": (
        "",
        6,
        f"{READING}Connection refused",
        {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3servers.free_port()}"},
    ),
    "no credentials": (
        "",
        6,
        "no credentials for {url} were found",
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    ),
    "anonymous": ("?anonymous=yes", 6, f"{READING}AccessDenied", {}),
    "no such profile": ("?profile=nobody", 2, "nobody", {}),
    "no endpoint": ("?endpoint=nonsense", 2, "nonsense", {}),
}
"""A URL, or what follows that of the bucket; the exit status, a part of the message, the environment."""


def sampled(names: Iterable[str]) -> list[Any]:
    """Each of these with each verb; each with one verb is no large test."""
    return [
        pytest.param(name, verb, marks=[] if (n + m) % len(VERBS) == 0 else [pytest.mark.large])
        for n, name in enumerate(names)
        for m, verb in enumerate(VERBS)
    ]


@pytest.mark.parametrize(("case", "verb"), sampled(WRONG))
def test_bad_input(bucket, said, case, verb):
    url, status, message, environment = WRONG[case]
    url = url if url.startswith("s3:") else f"{bucket.url}{url}"
    environment = {"AWS_ENDPOINT_URL": bucket.server.endpoint, **environment}
    text = said(status, verb, url, **environment)
    assert message.format(url=url) in text and "hint: " in text
    assert not any(secret in text for secret in (bucket.server.secret, "SECRET"))
    assert bucket.keys == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_web_page_is_no_registry(bucket, said, verb):
    bucket.proxy.plan = lambda method, path: "page"
    text = said(6, verb, bucket.url)
    assert f"the server at {bucket.url} is not an S3 server" in text
    assert "hint: is there a proxy or a login page in between" in text


def test_a_prefix_that_holds_something_else_is_left_alone(bucket, said):
    bucket.put("photo.jpg", b"x")
    assert f"{bucket.url} is not a registry and not empty" in said(2, "push", bucket.url)
    for verb in ("pull", "resolve"):
        assert f"there is no registry in {bucket.url}" in said(3, verb, bucket.url)
    assert bucket.keys == ["photo.jpg"]


LAYOUTS = {
    "newer": (new_identity().replace(b'"min_reader": 1', b'"min_reader": 2'), 9, "has layout 2"),
    "another": (new_identity().replace(b'"onnxreg"', b'"another"'), 4, "registry.json of {url} is damaged"),
    "no document": (b"<xml/>", 4, "registry.json of {url} is damaged"),
}


@pytest.mark.parametrize(("layout", "verb"), sampled(LAYOUTS))
def test_a_layout_that_is_not_ours(bucket, said, layout, verb):
    identity, status, message = LAYOUTS[layout]
    bucket.put("registry.json", identity)
    assert message.format(url=bucket.url) in said(status, verb, bucket.url)
    assert bucket.keys == ["registry.json"]


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
def test_a_key_that_may_not(bucket, ministack_root, said, verb, actions, message):
    key, secret = s3servers.user(ministack_root, f"{verb} with {' '.join(actions)}", actions)
    text = said(6, verb, bucket.url, AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret)
    assert message.format(url=bucket.url) in text
    assert "AccessDenied" in text and "hint: check that these credentials (AWS_PROFILE) may do this" in text
    assert bucket.keys == []


@pytest.mark.parametrize("second_key", [False, True])
def test_a_reader_who_may_not_list_the_bucket_reads(bucket, filled, other, capfd, second_key):
    """S3 then answers 403 for what is absent, such as the log of policies and the second keys of blobs."""
    filled.tag("acme/pii:0.1.0", "stable")
    filled.push("acme/pii:0.1.0", bucket.url, channels=["stable"])
    made = filled.get("acme/pii")
    if second_key:
        client, keys = bucket.server.client(), keys_of(made.manifest.artifacts[0].digest)[:2]
        plain, later = (f"{s3servers.prefix(bucket.url)}/{key.path}" for key in keys)
        client.copy_object(Bucket="models", Key=later, CopySource=f"models/{plain}")
        client.delete_object(Bucket="models", Key=plain)
    bucket.proxy.plan = lambda method, path: "hidden"
    other.pull("acme/pii:stable", bucket.url)
    assert other.get("acme/pii").digest == made.digest
    other.check()
    assert len({path for _, path in bucket.proxy.seen if "absent-" in path}) == 1
    home = ["--registry", other.place]
    assert main([*home, "pull", "acme/nobody", bucket.url]) == 3
    assert main([*home, "pull", "acme/pii", bucket.url + "-nowhere"]) == 6
    assert "may not list" in capfd.readouterr().err
    verify = [*home, "verify", "--remote", bucket.url]
    assert (main([*verify, "acme/pii"]), main(verify)) == (0, 6)


def test_a_repair_deletes_nothing_that_could_not_be_read(bucket, filled):
    filled.push("acme/pii", bucket.url)
    path = blob_path(Digest.of(b"nothing refers to it"))
    bucket.put(path, b"nothing refers to it")
    bucket.proxy.plan = lambda method, key: "403 AccessDenied" if method == "GET" and path in key else None
    home = filled.place
    assert main(["--registry", home, "verify", "--remote", bucket.url, "--repair", "--from", home]) == 6
    assert path.removeprefix("blobs/") in bucket.keys


@pytest.mark.parametrize("status", ["403 AccessDenied", "405 MethodNotAllowed", "501 NotImplemented"])
def test_a_server_that_refuses_head_is_asked_for_a_byte(pushed_model, s3_proxy, status):
    s3_proxy.plan = lambda method, path: status if method == "HEAD" else None
    store = BucketStore(pushed_model[0])
    paths = {"registry.json", "index/acme/pii.jsonl"}
    assert store.has([*paths, "index/acme/absent.jsonl"]) == paths


SOON = datetime.now(UTC) + timedelta(hours=1)
EXPIRY = SOON.strftime("%Y-%m-%dT%H:%M:%SZ")
ROLE = {"AccessKeyId": "ROLEKEY", "SecretAccessKey": "ROLESECRET", "Token": "TOKEN", "Code": "Success"}
LOGIN = {"accessKeyId": "ROLEKEY", "secretAccessKey": "ROLESECRET", "sessionToken": "TOKEN"}
ANSWERS = {
    "federation/credentials": {"roleCredentials": {**LOGIN, "expiration": int(SOON.timestamp() * 1000)}},
    "/container": {**ROLE, "Expiration": EXPIRY},
}
"""Of the service of logins, and of the one beside a container."""


@pytest.fixture
def services() -> Iterator[str]:
    def answer(handler: http.Handler) -> None:
        value = next(value for part, value in ANSWERS.items() if part in handler.path)
        handler.reply(200, json.dumps(value).encode())

    with http.serving(answer=answer) as url:
        yield url


"""Of the metadata service of an instance and of the login service; all else is asked of the service of roles."""


CONFIG = """
[profile lab]
region = eu-west-1
endpoint_url = https://s3.lab.example
aws_access_key_id = LABKEY
aws_secret_access_key = LABSECRET
[profile login]
sso_session = lab
sso_account_id = 123456789012
sso_role_name = reader
region = eu-west-1
[sso-session lab]
sso_start_url = https://lab.example/start
sso_region = eu-west-1
sso_registration_scopes = sso:account:access
"""
PAIR = {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": "SECRET"}


@pytest.fixture
def bare(monkeypatch, tmp_path) -> pytest.MonkeyPatch:
    """A machine of which AWS knows nothing but a configuration file."""
    s3servers.Server("", "", "").enter(monkeypatch)
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_EC2_METADATA_DISABLED", *PAIR):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def settings(options: str = "", bucket: str = "models") -> dict[str, Any]:
    parsed = BucketUrl.parse(f"s3://{bucket}/x{options}")
    return aws_settings(parsed.url, parsed.bucket, dict(parsed.options))


def key(options: str = "") -> str:
    return str(settings(options)["credential_provider"]()["access_key_id"])


def test_of_the_environment_and_of_a_profile(bare):
    assert key("?profile=lab") == "LABKEY"
    assert settings("?profile=lab")["endpoint"] == "https://models.s3.lab.example"
    assert settings("?profile=lab")["region"] == "eu-west-1"
    bare.setenv("AWS_PROFILE", "lab")
    assert key() == "LABKEY"
    for name, value in PAIR.items():
        bare.setenv(name, value)
    assert (key(), key("?profile=lab")) == ("KEY", "LABKEY")


def test_of_a_login_in_a_browser(bare, services, tmp_path):
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "x", "expiresAt": EXPIRY, "region": "eu-west-1"}
    (cache / f"{hashlib.sha1(b'lab').hexdigest()}.json").write_text(json.dumps(token))
    bare.setenv("AWS_ENDPOINT_URL_SSO", services)
    code = """
from onnxreg.registry.store.bucket_url import aws_settings
print(aws_settings("s3://m", "m", {"profile": "login"})["credential_provider"]()["access_key_id"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "ROLEKEY\n", "botocore finds the home directory when it is imported"


def test_of_a_role(bare, services):
    """Of a container; botocore asks for that of an instance or of a web identity in the same way."""
    bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{services}/container")
    assert key() == "ROLEKEY"


@pytest.mark.parametrize(
    ("variables", "bucket", "options", "endpoint"),
    [
        ({}, "models", "", "https://models.s3.us-east-1.amazonaws.com"),
        ({}, "models.lab", "?region=eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
        ({"AWS_REGION": "cn-north-1"}, "models", "", "https://models.s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "models", "", "http://127.0.0.1:9"),
        ({"AWS_ENDPOINT_URL_S3": "https://lab:9"}, "models", "", "https://models.lab:9"),
    ],
)
def test_the_server_of_a_bucket(bare, variables, bucket, options, endpoint):
    for name, value in {**PAIR, **variables}.items():
        bare.setenv(name, value)
    assert settings(options, bucket)["endpoint"] == endpoint
