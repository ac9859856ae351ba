"""Servers that say when to come back: every place waits so long, and gives up at once if it is too long."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path

import pytest
from support.servers import hub, static

from onnxreg.registry import Registry
from onnxreg.registry.oci.client import OciClient, OciTarget
from onnxreg.registry.store import requests
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.requests import http_remote
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import RemoteError
from onnxreg.schema.manifest.draft import Draft

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

MakeDraft = Callable[..., Draft]
Refuse = Callable[[int, Mapping[str, str]], None]
Place = tuple[Callable[[], object], Refuse, Callable[[], int]]
"""Reads from a place; lets its next answer be this status with these headers; counts the requests so far."""

HEADERS: dict[str, Callable[[int], dict[str, str]]] = {
    "seconds": lambda seconds: {"Retry-After": str(seconds)},
    "a date": lambda seconds: {"Retry-After": formatdate(time.time() + seconds, usegmt=True)},
    "a rate limit": lambda seconds: {"RateLimit": f'"api";r=0;t={seconds}'},
    "an older rate limit": lambda seconds: {"RateLimit": f"limit=100, remaining=0, reset={seconds}"},
}


def web(stack: ExitStack, registry: Registry, tmp_path: Path) -> Place:
    manners = static.Manners()
    url = stack.enter_context(static.serve(registry.store.root, manners))
    remote = http_remote(url)
    return (
        lambda: remote.read_index("acme/pii"),
        lambda status, headers: manners.once.append((status, dict(headers))),
        lambda: len(manners.seen),
    )


def oci(stack: ExitStack, registry: Registry, tmp_path: Path) -> Place:
    path = tmp_path / "oci/v2/acme/pii/manifests/1.0.0"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    manners = static.Manners()
    url = stack.enter_context(static.serve(tmp_path / "oci", manners))
    client = OciClient(OciTarget.parse(f"oci://{url.removeprefix('http://')}/acme/pii"))
    return (
        lambda: client.manifest("1.0.0"),
        lambda status, headers: manners.once.append((status, dict(headers))),
        lambda: len(manners.seen),
    )


def huggingface(stack: ExitStack, registry: Registry, tmp_path: Path) -> Place:
    from huggingface_hub.utils import close_session

    server = stack.enter_context(hub.running(tmp_path / "hub"))
    server.enter(stack.enter_context(pytest.MonkeyPatch.context()), tmp_path / "hf")
    stack.callback(close_session)
    registry.push("acme/pii", "hf://acme/models")

    def read() -> object:
        return open_url("hf://acme/models").read_index("acme/pii")

    return (
        read,
        lambda status, headers: server.fail("/resolve/", status=status, headers=dict(headers)),
        lambda: len(server.requests),
    )


@pytest.fixture(params=["web", "oci", "hub"])
def place(
    request: pytest.FixtureRequest, registry: Registry, tmp_path: Path, make_draft: MakeDraft
) -> Iterator[Place]:
    registry.add(make_draft())
    with ExitStack() as stack:
        make = {"web": web, "oci": oci, "hub": huggingface}[request.param]
        yield make(stack, registry, tmp_path)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which are not made, without what is left to chance."""
    made: list[float] = []
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(parallel, "sleep", made.append)
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.0)
    return made


@pytest.mark.parametrize(
    ("said", "status"),
    [("seconds", 429), ("a date", 503), ("a rate limit", 429), ("an older rate limit", 429)],
)
def test_the_pause_that_a_server_asks_for_is_made(
    place: Place, pauses: list[float], monkeypatch: pytest.MonkeyPatch, said: str, status: int
) -> None:
    read, refuse, _ = place
    refuse(status, HEADERS[said](170))
    assert read()
    assert [round(pause, -1) for pause in pauses] == [170]


@pytest.mark.parametrize("said", ["a date", "a rate limit"])
def test_a_pause_that_is_too_long_ends_the_command(place: Place, pauses: list[float], said: str) -> None:
    read, refuse, count = place
    refuse(429, HEADERS[said](7200))
    before = count()
    with pytest.raises(RemoteError) as caught:
        read()
    assert (count() - before, pauses) == (1, [])
    assert "UTC" in caught.value.hint


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "-5"},
        {"Retry-After": "9" * 5000},
        {"Retry-After": "soon"},
        {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"},
        {"RateLimit": '"api";r=400;t=200'},
        {"RateLimit": "nonsense"},
    ],
)
@pytest.mark.parametrize("place", ["web"], indirect=True)
def test_a_server_that_names_no_time_is_asked_again(
    place: Place, pauses: list[float], headers: dict[str, str]
) -> None:
    read, refuse, _ = place
    refuse(503, headers)
    assert read()
    assert pauses == [0]
