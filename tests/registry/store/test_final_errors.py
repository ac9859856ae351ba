"""Errors that no further try can fix are said at once, in words of their own; a pause that a server asks for is made."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from support.sampling import sampled
from support.servers import http, hub, s3servers, static
from support.servers.faults import proxy

from onnxreg.registry import system
from onnxreg.registry.oci import OciClient, OciTarget
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import requests
from onnxreg.schema.core.errors import NotFoundError, RemoteError

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
    monkeypatch.setattr(system, "sleep", made.append)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return made


@pytest.fixture
def reg(registry, capfd) -> Reg:
    """Run a verb with acme/pii, which is here, and a place; returns exit status and what is said on stderr."""
    registry.make()

    def run(verb: str, url: str) -> tuple[int, str]:
        status = registry.reg(verb, "acme/pii", url)
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


@pytest.mark.parametrize("version", sampled(["HTTP/1.0", "HTTP/1.1"], 2))
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


@pytest.mark.parametrize("place", sampled(TLS, 3))
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


@pytest.mark.parametrize("content", sampled([None, "no certificate"], 2))
@pytest.mark.parametrize("place", sampled(["s3", "hub"], 2))
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
        [sys.executable, "-m", "onnxreg.cli", "--registry", registry.place, *words.split()],
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
            open_url(f"s3://models/x{option}")
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


Headers = dict[str, str]
Place = tuple[Callable[[], object], Callable[[int, Headers], None], Callable[[], int]]
"""Reads from a place; lets its next answer be this status with these headers; counts the requests so far."""

HEADERS: dict[str, Callable[[int], Headers]] = {
    "seconds": lambda seconds: {"Retry-After": str(seconds)},
    "a date": lambda seconds: {"Retry-After": formatdate(time.time() + seconds, usegmt=True)},
    "a rate limit": lambda seconds: {"RateLimit": f'"api";r=0;t={seconds}'},
    "an older rate limit": lambda seconds: {"RateLimit": f"limit=100, remaining=0, reset={seconds}"},
}


@pytest.fixture(params=["web", "oci", "hub"])
def place(request, registry, monkeypatch) -> Iterator[Place]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.0)  # nothing is left to chance
    registry.make()
    if request.param == "hub":
        hub = request.getfixturevalue("hub")
        registry.push("acme/pii", "hf://acme/models")
        yield (
            lambda: open_url("hf://acme/models").read_index("acme/pii"),
            lambda status, headers: hub.fail("/resolve/", status=status, headers=headers),
            lambda: len(hub.requests),
        )
        return
    manners, manifest = static.Manners(), registry.store.root / "v2/acme/pii/manifests/1.0.0"
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"{}")
    with ExitStack() as stack:
        url = stack.enter_context(static.serve(registry.store.root, manners))
        oci = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
        web = open_url(url)
        yield (
            lambda: oci.manifest("1.0.0") if request.param == "oci" else web.read_index("acme/pii"),
            lambda status, headers: manners.once.append((status, headers)),
            lambda: len(manners.seen),
        )


@pytest.mark.parametrize(
    ("said", "status"),
    [("seconds", 429), ("a date", 503), ("a rate limit", 429), ("an older rate limit", 429)],
)
def test_the_pause_that_a_server_asks_for_is_made(place, pauses, said, status):
    read, refuse, _ = place
    refuse(status, HEADERS[said](170))
    assert read()
    assert [round(pause, -1) for pause in pauses] == [170]


@pytest.mark.parametrize("said", ["a date", "a rate limit"])
def test_a_pause_that_is_too_long_ends_the_command(place, pauses, said):
    read, refuse, count = place
    refuse(429, HEADERS[said](7200))
    before = count()
    with pytest.raises(RemoteError) as caught:
        read()
    assert (count() - before, pauses) == (1, [])
    assert "UTC" in caught.value.hint


@pytest.mark.parametrize("place", ["web"], indirect=True)
def test_a_server_that_names_no_time_is_asked_again(place, pauses):
    read, refuse, _ = place
    times = ["-5", "9" * 5000, "soon", "Wed, 21 Oct 2015 07:28:00 GMT"]
    limits = ['"api";r=400;t=200', "nonsense"]
    for headers in [{"Retry-After": each} for each in times] + [{"RateLimit": each} for each in limits]:
        pauses.clear()
        refuse(503, headers)
        assert read()
        assert pauses == [0], headers
