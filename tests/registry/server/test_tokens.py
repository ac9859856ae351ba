"""A server with a token as a remote: where the token comes from, and everywhere that it must not go."""

import json
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.registries import owner
from support.servers import web_client
from support.servers.regserve import Site, running

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.requests import SameOrigin, http_remote, variable
from onnxreg.schema.core.errors import InputError, NotFoundError

TOKEN = "correct-horse_battery.staple=="
NODE = shutil.which("node")


@pytest.fixture
def guarded(filled: Registry) -> Iterator[Site]:
    with running(filled.store.root, Settings(TOKEN)) as site:
        yield site


@pytest.fixture
def reg(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    """Run `reg --registry home ... --json`; returns what it printed, or its error, and all that it said."""

    def run(*words: str, status: int = 0) -> tuple[Any, str]:
        capfd.readouterr()
        assert main(["--registry", str(tmp_path / "home"), *words, "--json"]) == status
        out, err = capfd.readouterr()
        return json.loads(err if status else out), out + err

    return run


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://models.example/tree", "REG_TOKEN_MODELS_EXAMPLE"),
        ("https://my-models.example:8443", "REG_TOKEN_MY__MODELS_EXAMPLE_8443"),
        ("https://my.models.example", "REG_TOKEN_MY_MODELS_EXAMPLE"),
        ("http://[::1]:80", "REG_TOKEN____1__80"),
    ],
)
def test_each_host_has_a_variable(url: str, name: str) -> None:
    assert variable(url) == name


def test_reading_with_a_token(
    guarded: Site, reg: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, filled: Registry, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable(guarded.url), TOKEN)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # would see the token, and is not asked
    resolved, _ = reg("resolve", "acme/pii", "--remote", guarded.url)
    assert resolved["manifest"] == str(filled.get("acme/pii").digest)
    listed, _ = reg("ls", "acme/pii", "--remote", guarded.url)
    assert len(listed["versions"]) == 2
    _, told = reg("pull", "acme/pii", guarded.url)
    assert not owner.verify(Registry(tmp_path / "home")).damages
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    assert TOKEN not in told + "".join(guarded.lines)


def test_without_a_token_the_error_says_what_to_set(guarded: Site, reg: Callable[..., Any]) -> None:
    for words in (("resolve", "tiny", "--remote", guarded.url), ("pull", "tiny", guarded.url)):
        error, _ = reg(*words, status=6)
        assert "401" in error["error"]["message"]
        assert variable(guarded.url) in error["error"]["hint"]


@pytest.mark.parametrize("bad", ["another-secret", "two words", "a\nX-Evil: yes", "caf\u00e9", "'quoted'"])
def test_a_wrong_or_invalid_token_is_not_printed(
    guarded: Site, bad: str, reg: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable(guarded.url), bad)
    is_token = bad == "another-secret"
    error, told = reg("resolve", "tiny", "--remote", guarded.url, status=6 if is_token else 2)
    assert variable(guarded.url) in error["error"]["hint" if is_token else "message"]
    assert bad not in told


def test_plain_http_to_another_machine_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REG_TOKEN_MODELS_EXAMPLE", TOKEN)
    with pytest.raises(InputError, match="http://"):
        http_remote("http://models.example")


@contextmanager
def redirecting(target: str) -> Iterator[tuple[str, list[str | None]]]:
    """A server that sends everybody elsewhere (what begins with `/` stays there); and the tokens that it was sent."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            if self.path.startswith("/inside"):
                self.send_error(404)
                return
            self.send_response(302)
            self.send_header("Location", f"{target}{self.path}")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_no_other_origin_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another port of the same host is another origin."""
    with redirecting("/inside") as (other, got), redirecting(other) as (url, sent):
        monkeypatch.setenv(variable(url), TOKEN)
        with pytest.raises(NotFoundError):
            http_remote(url)
    assert set(sent) == {f"Bearer {TOKEN}"}
    assert got
    assert set(got) == {None}


def test_no_host_gets_the_password_of_a_proxy() -> None:
    handler, headers = SameOrigin(), Message()
    handler.parent = cast(Any, SimpleNamespace(open=lambda request, timeout: request))
    headers["Location"] = "https://8.8.8.8/there"
    request = urllib.request.Request("https://1.1.1.1/here", headers={"Range": "bytes=1-"})
    request.timeout = 1.0
    urllib.request.ProxyHandler().proxy_open(request, "http://user:secret@127.0.0.1:9", "https")
    assert request.has_header("Proxy-authorization")
    redirected = handler.http_error_302(request, BytesIO(), 302, "Found", cast(Any, headers))
    assert redirected.header_items() == [("Range", "bytes=1-")]


def test_a_redirect_within_the_server_takes_it_along(monkeypatch: pytest.MonkeyPatch) -> None:
    with redirecting("/inside") as (url, sent):
        monkeypatch.setenv(variable(url), TOKEN)
        with pytest.raises(NotFoundError):
            http_remote(url)
    assert len(sent) >= 2
    assert set(sent) == {f"Bearer {TOKEN}"}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_client_for_apps(guarded: Site, capfd: pytest.CaptureFixture[str]) -> None:
    def resolve(url: str, token: str) -> Any:
        answer = call(url, None, "resolve", "tiny", {}, token=token)
        assert not token or token not in f"{answer}{capfd.readouterr()}"
        return answer

    assert NODE is not None
    with web_client.running(NODE) as call:
        assert resolve(guarded.url, TOKEN)["version"] == "1.0.0"
        assert "the option `token`" in resolve(guarded.url, "")["message"]
        assert resolve(guarded.url, "wrong")["error"] == "remote"
        assert resolve(guarded.url, "two words")["error"] == "input"
        assert resolve("http://models.example", TOKEN)["error"] == "input"
