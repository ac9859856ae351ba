"""Servers that say when to come back: every place waits so long, and gives up at once if it is too long."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.utils import formatdate

import pytest
from support.servers import static

from onnxreg.registry.oci.client import OciClient, OciTarget
from onnxreg.registry.store import requests
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.requests import http_remote
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import RemoteError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

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
def place(request, registry, tmp_path, make_draft) -> Iterator[Place]:
    registry.add(make_draft())
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
        web = http_remote(url)
        yield (
            lambda: oci.manifest("1.0.0") if request.param == "oci" else web.read_index("acme/pii"),
            lambda status, headers: manners.once.append((status, headers)),
            lambda: len(manners.seen),
        )


@pytest.fixture(autouse=True)
def pauses(monkeypatch) -> list[float]:
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
