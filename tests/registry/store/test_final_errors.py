"""Errors that no further try can fix: a certificate, a proxy, a login, a region; said at once, in words of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.servers import http, hub, s3servers, static
from support.servers.faults import proxy

from onnxreg.cli.main import main
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import NotFoundError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

Patch = pytest.MonkeyPatch
Reg = Callable[..., tuple[int, str]]

ELSEWHERE = {
    "web": ("pull", "https://models.example/x"),
    "s3": ("push", "s3://models/x?path_style=yes&endpoint=https://s3.example"),
    "hub": ("push", "hf://acme/x"),
    "oci": ("push", "oci://oci.example/acme/pii"),
}
"""A verb, and a place that is reached by https:// only."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch) -> list[float]:
    """The pauses between tries, which are not made."""
    made: list[float] = []
    monkeypatch.setattr(parallel, "sleep", made.append)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return made


@pytest.fixture
def reg(registry, make_draft, capfd) -> Reg:
    """Run a verb with acme/pii, which is here, and a place; returns exit status and what is said on stderr."""
    registry.add(make_draft())

    def run(verb: str, url: str) -> tuple[int, str]:
        status = main(["--registry", str(registry.store.root), verb, "acme/pii", url])
        return status, capfd.readouterr().err

    return run


@pytest.fixture
def final(reg, pauses) -> Callable[..., str]:
    """Run a verb, which fails at once; returns what is said."""

    def run(verb: str, url: str, status: int = 6) -> str:
        found, said = reg(verb, url)
        assert (found, pauses) == (status, []), said
        return said

    return run


Final = Callable[..., str]


@pytest.fixture
def unreached(monkeypatch, tmp_path) -> Iterator[None]:
    """Credentials for places that are not there."""
    from huggingface_hub.utils import close_session

    s3servers.Server("https://s3.example", "KEY", "SECRET").enter(monkeypatch)
    monkeypatch.delenv("NO_PROXY")
    own = {"HF_ENDPOINT": "https://hub.example", "HF_TOKEN": hub.TOKEN, "HF_HOME": str(tmp_path / "hf")}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_proxy_that_refuses_is_named(unreached, final, monkeypatch, place, version):
    with http.serving(answer=lambda handler: handler.reply(407), protocol_version=version) as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        assert "HTTPS_PROXY" in final(*ELSEWHERE[place])


TLS = {"web": "SSL_CERT_FILE", "s3": "AWS_CA_BUNDLE", "hub": "SSL_CERT_FILE"}
"""For each place: the variable that names the certificates to trust."""


@contextmanager
def over_tls(place: str, root: Path, patch: Patch, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A place whose certificate nobody trusts: a verb, and its URL."""
    patch.setenv("NO_PROXY", "127.0.0.1")
    serve = hub.running(tmp_path / "hub") if place == "hub" else static.serve(root)
    with serve as server, ExitStack() as stack:
        upstream = server if isinstance(server, str) else server.endpoint
        url = stack.enter_context(proxy(upstream, s3servers.certificate(tmp_path))).url
        if isinstance(server, hub.Hub):
            server.enter(patch, tmp_path / "hf")
            patch.setenv("HF_ENDPOINT", url)
        elif place == "s3":
            s3servers.Server(url, "KEY", "SECRET").enter(patch)
        yield {"web": ("pull", url), "s3": ("push", "s3://models/x"), "hub": ("push", "hf://acme/models")}[
            place
        ]


@pytest.mark.parametrize("place", TLS)
def test_a_certificate_that_is_not_trusted_is_said_at_once(
    unreached, registry, reg, final, monkeypatch, tmp_path, place
):
    from huggingface_hub.utils import close_session

    with over_tls(place, registry.store.root, monkeypatch, tmp_path) as words:
        said = final(*words)
        assert "certificate verify failed" in said and TLS[place] in said
        monkeypatch.setenv(TLS[place], str(tmp_path / "server.pem"))
        close_session()
        assert "certificate" not in reg(*words)[1]


@pytest.mark.parametrize("content", [None, "no certificate"])
@pytest.mark.parametrize("place", ["s3", "hub"])
def test_a_file_of_certificates_that_is_none_is_named(
    unreached, registry, final, monkeypatch, tmp_path, place, content
):
    if content is not None:
        (tmp_path / "bundle").write_text(content)
    with over_tls(place, registry.store.root, monkeypatch, tmp_path) as words:
        monkeypatch.setenv(TLS[place], str(tmp_path / "bundle"))
        assert TLS[place] in final(*words)


@pytest.mark.parametrize("endpoint", ["https://[::1", "https://hub.example:port"])
@pytest.mark.parametrize(
    "words",
    [
        "pull acme/pii hf://acme/x",
        "import hf://acme/x --name acme/x",
        "export acme/x --profile android --name acme/x",
    ],
)
@pytest.mark.more
def test_an_endpoint_that_is_no_url_is_named(registry, endpoint, words):
    """The library of the Hub reads it when it is imported, so this takes a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "onnxreg.cli", "--registry", str(registry.store.root), *words.split()],
        env={**os.environ, "HF_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "HF_ENDPOINT" in done.stderr


PROFILES = """
[profile lab]
sso_session = lab
sso_account_id = 123456789012
sso_role_name = reader
region = eu-west-1
[sso-session lab]
sso_start_url = https://lab.example/start
sso_region = eu-west-1
sso_registration_scopes = sso:account:access
[profile old]
sso_start_url = https://lab.example/start
sso_region = eu-west-1
sso_account_id = 123456789012
sso_role_name = reader
[profile loop]
role_arn = arn:aws:iam::123456789012:role/a
source_profile = loop2
[profile loop2]
role_arn = arn:aws:iam::123456789012:role/b
source_profile = loop
[profile failing]
credential_process = false
"""


@pytest.mark.parametrize(
    ("profile", "status", "words"),
    [
        ("lab", 6, "aws sso login --profile lab"),
        ("old", 6, "aws sso login --profile old"),
        ("loop", 2, "Infinite loop"),
        ("failing", 6, "custom-process"),
    ],
)
def test_a_login_that_is_missing_is_said_at_once(
    unreached, final, monkeypatch, tmp_path, profile, status, words
):
    (tmp_path / "config").write_text(PROFILES)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    own = {"HOME": str(tmp_path), "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": profile}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert words in final("push", "s3://models/x", status)


@pytest.mark.parametrize(
    ("variables", "option", "region"),
    [
        ({"AWS_REGION": "eu-west-3"}, "", "eu-west-3"),
        ({"AWS_DEFAULT_REGION": "eu-west-3"}, "", "eu-west-3"),
        ({"AWS_REGION": "eu-west-3", "AWS_DEFAULT_REGION": "us-west-2"}, "", "eu-west-3"),
        ({"AWS_REGION": "eu-west-3"}, "?region=ap-south-1", "ap-south-1"),
    ],
)
def test_requests_are_signed_for_the_region_that_is_named(tmp_path, monkeypatch, variables, option, region):
    with static.serve(tmp_path) as url, proxy(url) as site:
        s3servers.Server(site.url, "KEY", "SECRET").enter(monkeypatch)
        monkeypatch.delenv("AWS_REGION")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        site.plan = lambda method, path: "404 NoSuchKey"
        with pytest.raises(NotFoundError):
            bucket_remote(f"s3://models/x{option}")
        assert all(f"/{region}/s3/" in headers["Authorization"] for headers in site.headers)


@pytest.mark.parametrize("status", ["501 NotImplemented", "400 InvalidArgument"])
def test_a_server_that_takes_no_checksums_or_conditions_hears_what_a_registry_needs(bucket, reg, status):
    bucket.proxy.plan = lambda method, path: status if method == "PUT" else None
    found, said = reg("push", bucket.url)
    assert found == 6 and "x-amz-checksum-sha256" in said and "If-None-Match" in said


@pytest.mark.parametrize("pattern", ["/objects/batch", "POST .*/commit/", "/resolve/"])
def test_the_hub_s_own_words_come_first(hub, final, monkeypatch, pattern):
    words = "Private repository storage limit reached, please upgrade your plan"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub.fail(pattern, status=403, times=100, headers={"X-Error-Message": words})
    assert words in final("push", "hf://acme/models").partition("hint: ")[0]
