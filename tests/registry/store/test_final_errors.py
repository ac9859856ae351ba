"""Errors that no further try can fix: a certificate, a proxy, a login, a region; said at once, in words of their own."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.servers import hub, s3servers, static
from support.servers.faults import Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.bucket import bucket_remote
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.manifest.draft import Draft

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

MakeDraft = Callable[..., Draft]
Reg = Callable[..., tuple[int, str]]

ELSEWHERE = {
    "web": ("pull", "https://models.example/x"),
    "s3": ("push", "s3://models/x?path_style=yes&endpoint=https://s3.example"),
    "hub": ("push", "hf://acme/x"),
    "oci": ("push", "oci://oci.example/acme/pii"),
}
"""A verb, and a place that is reached by https:// only."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are not made."""
    made: list[float] = []
    monkeypatch.setattr(parallel, "sleep", made.append)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return made


@pytest.fixture
def reg(registry: Registry, make_draft: MakeDraft, capfd: pytest.CaptureFixture[str]) -> Reg:
    """Run a verb with acme/pii, which is here, and a place; returns exit status and what is said on stderr."""
    registry.add(make_draft())

    def run(verb: str, url: str) -> tuple[int, str]:
        status = main(["--registry", str(registry.store.root), verb, "acme/pii", url])
        return status, capfd.readouterr().err

    return run


@pytest.fixture
def unreached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Credentials for places that are not there."""
    from huggingface_hub.utils import close_session

    s3servers.Server("https://s3.example", "KEY", "SECRET").enter(monkeypatch)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    monkeypatch.setenv("HF_TOKEN", hub.TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()


@contextmanager
def refusing_proxy() -> Iterator[str]:
    """A proxy that wants a password."""

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_error(407)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_proxy_that_refuses_is_named(
    unreached: None, reg: Reg, monkeypatch: pytest.MonkeyPatch, pauses: list[float], place: str
) -> None:
    with refusing_proxy() as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        status, said = reg(*ELSEWHERE[place])
    assert (status, pauses) == (6, []), said
    assert "HTTPS_PROXY" in said


@contextmanager
def over_tls(place: str, root: Path, patch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A place whose certificate nobody trusts; its URL."""
    certificate = s3servers.certificate(tmp_path)
    if place == "web":
        with static.serve(root) as url, proxy(url, certificate) as site:
            yield site.url
    elif place == "s3":
        with static.serve(root) as url, proxy(url, certificate) as site:
            s3servers.Server(site.url, "KEY", "SECRET").enter(patch)
            yield "s3://models/x"
    else:
        with hub.running(tmp_path / "hub") as server, proxy(server.endpoint, certificate) as site:
            server.enter(patch, tmp_path / "hf")
            patch.setenv("HF_ENDPOINT", site.url)
            yield "hf://acme/models"


@pytest.mark.parametrize(
    ("place", "variable"), [("web", "SSL_CERT_FILE"), ("s3", "AWS_CA_BUNDLE"), ("hub", "SSL_CERT_FILE")]
)
def test_a_certificate_that_is_not_trusted_is_said_at_once(
    unreached: None,
    registry: Registry,
    reg: Reg,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pauses: list[float],
    place: str,
    variable: str,
) -> None:
    from huggingface_hub.utils import close_session

    with over_tls(place, registry.store.root, monkeypatch, tmp_path) as url:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        verb = "pull" if place == "web" else "push"
        status, said = reg(verb, url)
        assert (status, pauses) == (6, []), said
        assert "certificate verify failed" in said and variable in said
        monkeypatch.setenv(variable, str(tmp_path / "server.pem"))
        close_session()
        status, said = reg(verb, url)
        assert "certificate" not in said


@pytest.mark.parametrize("content", [None, "no certificate"])
@pytest.mark.parametrize(("place", "variable"), [("s3", "AWS_CA_BUNDLE"), ("hub", "SSL_CERT_FILE")])
def test_a_file_of_certificates_that_is_none_is_named(
    unreached: None,
    registry: Registry,
    reg: Reg,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pauses: list[float],
    place: str,
    variable: str,
    content: str | None,
) -> None:
    if content is not None:
        (tmp_path / "bundle").write_text(content)
    with over_tls(place, registry.store.root, monkeypatch, tmp_path) as url:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv(variable, str(tmp_path / "bundle"))
        status, said = reg("push", url)
    assert (status, pauses) == (6, []), said
    assert variable in said


@pytest.mark.parametrize("endpoint", ["https://[::1", "https://hub.example:port"])
@pytest.mark.parametrize(
    "words",
    [
        ("pull", "acme/pii", "hf://acme/x"),
        ("import", "hf://acme/x", "--name", "acme/x"),
        ("export", "acme/x", "--profile", "android", "--name", "acme/x"),
    ],
)
@pytest.mark.more
def test_an_endpoint_that_is_no_url_is_named(
    registry: Registry, endpoint: str, words: tuple[str, ...]
) -> None:
    """The library of the Hub reads it when it is imported, so this takes a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "onnxreg.cli", "--registry", str(registry.store.root), *words],
        env={**os.environ, "HF_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "HF_ENDPOINT" in done.stderr


SSO = """
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
    unreached: None,
    reg: Reg,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pauses: list[float],
    profile: str,
    status: int,
    words: str,
) -> None:
    (tmp_path / "config").write_text(SSO)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    found, said = reg("push", "s3://models/x")
    assert (found, pauses) == (status, []), said
    assert words in said


@pytest.mark.parametrize(
    ("environment", "option", "region"),
    [
        ({"AWS_REGION": "eu-west-3"}, "", "eu-west-3"),
        ({"AWS_DEFAULT_REGION": "eu-west-3"}, "", "eu-west-3"),
        ({"AWS_REGION": "eu-west-3", "AWS_DEFAULT_REGION": "us-west-2"}, "", "eu-west-3"),
        ({"AWS_REGION": "eu-west-3"}, "?region=ap-south-1", "ap-south-1"),
    ],
)
def test_requests_are_signed_for_the_region_that_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    option: str,
    region: str,
) -> None:
    with static.serve(tmp_path) as url, proxy(url) as site:
        s3servers.Server(site.url, "KEY", "SECRET").enter(monkeypatch)
        monkeypatch.delenv("AWS_REGION")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        site.plan = lambda method, path: "404 NoSuchKey"
        with pytest.raises(NotFoundError):
            bucket_remote(f"s3://models/x{option}")
        assert all(f"/{region}/s3/" in headers["Authorization"] for headers in site.headers)


@pytest.mark.parametrize("status", ["501 NotImplemented", "400 InvalidArgument"])
def test_a_server_that_takes_no_checksums_or_conditions_hears_what_a_registry_needs(
    bucket_url: str, s3_proxy: Proxy, reg: Reg, status: str
) -> None:
    s3_proxy.plan = lambda method, path: status if method == "PUT" else None
    found, said = reg("push", bucket_url)
    assert found == 6 and "x-amz-checksum-sha256" in said and "If-None-Match" in said


@pytest.mark.parametrize("pattern", ["/objects/batch", "POST .*/commit/", "/resolve/"])
def test_the_hub_s_own_words_come_first(
    reg: Reg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[float], pattern: str
) -> None:
    from huggingface_hub.utils import close_session

    words = "Private repository storage limit reached, please upgrade your plan"
    with hub.running(tmp_path / "hub") as server:
        server.enter(monkeypatch, tmp_path / "hf")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        server.fail(pattern, status=403, times=100, headers={"X-Error-Message": words})
        status, said = reg("push", "hf://acme/models")
        close_session()
    assert (status, pauses) == (6, []), said
    assert words in said.partition("hint: ")[0]
