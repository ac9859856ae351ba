"""A server that lies: the right file or a clear error, never another file, nothing half-written, and no wait for ever."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.drafts import write_draft
from support.servers import hub, s3servers, static
from support.servers.faults import LIES, Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import requests
from onnxreg.registry.store.protocol import BlobKey
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, RegError, RemoteError

# urllib3 leaves a socket on a broken redirect; the client of the Hub hands over its uploads in an outdated way.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning"),
]

BREAKS = ("truncated", "page", "drip", "stalled")
FAULTS = {
    "web": (*LIES, *BREAKS, "garbled", "endless", "astray", "reset"),
    **dict.fromkeys(
        ("s3", "hub"),
        (
            *("short", "long", "empty", "other bytes", "lying range", "malformed range", "no range"),
            *("negative length", "huge length", "absurd length", "packed", "odd tag", "wrong tag", "no tag"),
            *("chunks of nonsense", "redirect without end", "redirect to a broken URL"),
            *("redirect to plain http", *BREAKS),
        ),
    ),
}
PARTS = {"index": "/index/", "identity": "registry.json", "blob": "/blobs/"}
CLEAR = {"remote", "integrity", "not-found"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.3")
    monkeypatch.setenv("REG_READ_DEADLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.01)


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """An honest server may be slow on a busy machine."""
    patch.setenv("REG_READ_TIMEOUT", "20")
    patch.setenv("REG_READ_DEADLINE", "60")


def pulled(reader: Registry, url: str) -> str:
    """Pull; the family of the error, if there was one. What is there then is right and whole."""
    family = ""
    try:
        reader.pull("acme/pii", url)
    except RegError as error:
        family = error.family
        assert "hunter2" not in f"{error.message}{error.hint}"
    assert not owner.verify(reader).damages
    for path in reader.store.root.glob("blobs/sha256/*/*"):
        key = BlobKey.of_path(str(path.relative_to(reader.store.root)))
        assert key is not None and Digest.of(path.read_bytes()) == key.digest
    return family


# Three kinds of places, each behind a proxy


class Place:
    """Where a registry with a version of acme/pii is served; `publish` sends a version more."""

    def __init__(self, kind: str, root: Path, server: object) -> None:
        self.kind, self.root, self.server = kind, root, server
        self.registry = Registry(root / "home")
        self.url = {"web": "", "s3": "s3://", "hub": "hf://acme/models"}[kind]
        if kind == "s3":
            self.url = server.fresh()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REG_STATE", str(root / "state"))  # the next Hub at this URL is another registry
            self.enter(patch)
            self.publish("a")

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        if self.kind != "web":
            self.server.enter(patch, *([self.root / "hf"] if self.kind == "hub" else []))

    def publish(self, seed: str) -> None:
        self.registry.add(write_draft(self.root / seed, "acme/pii", seed, 100))
        if self.kind != "web":
            self.registry.push("acme/pii", self.url)

    @contextmanager
    def behind_proxy(self, patch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, str]]:
        """The proxy through which this process goes from now on, and the URL of the registry."""
        from huggingface_hub.utils import close_session

        self.enter(patch)
        with proxy(self.server if self.kind == "web" else self.server.endpoint) as running:
            patch.setenv("AWS_ENDPOINT_URL" if self.kind == "s3" else "HF_ENDPOINT", running.url)
            yield running, self.url or running.url
        close_session()
        gc.collect(1)  # its sockets, not those of the next test


@contextmanager
def placed(kind: str, root: Path, ministack: s3servers.Server) -> Iterator[Place]:
    if kind == "s3":
        yield Place(kind, root, ministack)
    else:
        serve = static.serve if kind == "web" else hub.running
        with serve(root / "home" if kind == "web" else root / "lfs") as server:
            yield Place(kind, root, server)


@pytest.fixture(scope="module")
def places(isolated_user, tmp_path_factory, ministack) -> Iterator[Callable[[str], Place]]:
    """A place of each kind, for reading only."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(placed(kind, tmp_path_factory.mktemp(kind), ministack)))


def cases() -> Iterator[object]:
    """Each fault at each part of each place; a third of those of an index, or of a blob on the web, is in `make test`."""
    for kind, faults in FAULTS.items():
        for number, fault in enumerate(faults):
            for part in PARTS if kind == "web" else ("index", "blob"):
                is_first = number % 6 == 0 and (part == "index" or (kind, part) == ("web", "blob"))
                later = pytest.mark.more if number % 2 else pytest.mark.large
                yield pytest.param(kind, fault, part, marks=[] if is_first else [later])


@pytest.mark.parametrize(("kind", "fault", "part"), list(cases()))
def test_a_lying_server(places, tmp_path, monkeypatch, kind, fault, part):
    reader, spoilt, stocked = Registry(tmp_path / "reader"), PARTS[part], places(kind)
    with stocked.behind_proxy(monkeypatch) as (running, url):
        running.plan = lambda method, path: fault if spoilt in path or path == "/again" else None
        family = pulled(reader, url)
        # the bytes of a blob come from where the Hub's answer leads, and nobody reads that answer to its end
        assert family in ({"remote"} if (kind, fault, part) == ("hub", "drip", "index") else CLEAR | {""})
        if family:
            assert not list(reader.store.root.glob("index/acme/*"))
        running.heal()
        be_patient(monkeypatch)
        if (fault, part) != ("garbled", "index"):  # there the known heads hold what was said first
            assert pulled(reader, url) == ""


@pytest.mark.parametrize("kind", FAULTS)
def test_old_and_swapped_answers(kind, ministack, tmp_path, monkeypatch):
    """A blob under the name of another is refused; so is last week's index, by a reader who saw this week's."""
    reader, newcomer = Registry(tmp_path / "reader"), Registry(tmp_path / "newcomer")
    be_patient(monkeypatch)
    (tmp_path / "place").mkdir()
    with (
        placed(kind, tmp_path / "place", ministack) as place,
        place.behind_proxy(monkeypatch) as (running, url),
    ):
        assert pulled(reader, url) == ""
        running.plan = lambda method, path: "swapped" if method == "GET" and "/blobs/" in path else None
        assert pulled(newcomer, url) in CLEAR
        running.heal()
        place.publish("b")
        assert pulled(reader, url) == ""
        running.plan = lambda method, path: "stale"
        assert pulled(reader, url) == "integrity"
        running.heal()
        assert pulled(reader, url) == ""


# Limits


@pytest.fixture
def large(registry, site) -> str:
    """The URL of a web server with a version of 5 MB."""
    registry.make(size=600_000)
    return site.url


def test_the_deadline_is_that_of_the_whole_file_and_the_next_pull_goes_on(
    large, site, tmp_path, capfd, monkeypatch
):
    """It comes in pieces of 16 kB, fifty a second."""
    site.piece = 2**14
    site.plan = lambda method, path: "slow" if "/blobs/" in path else None
    monkeypatch.setenv("REG_READ_DEADLINE", "2")
    words = ["--registry", str(tmp_path / "reader"), "pull", "acme/pii", large]
    assert main(words) == 6
    assert "REG_READ_DEADLINE" in capfd.readouterr().err
    data = b"fp32 a " * 600_000
    digest = Digest.of(data).hex
    assert 0 < (tmp_path / "reader/local/partial" / digest).stat().st_size < len(data)
    site.plan = lambda method, path: None
    monkeypatch.delenv("REG_READ_DEADLINE")
    assert main(words) == 0
    assert site.requests("GET", digest) == 2, "the rest was requested"
    assert not owner.verify(Registry(tmp_path / "reader")).damages


def test_a_limit_is_a_number(large, monkeypatch):
    for text in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv("REG_READ_DEADLINE", text)
        with pytest.raises(InputError, match="REG_READ_DEADLINE is"):
            open_url(large)


def test_a_claimed_length_takes_no_memory(large, site):
    remote = open_url(site.url)
    site.plan = lambda method, path: "huge length"
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError, match="bytes arrived"):
            remote.read_index("acme/pii")
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fault", ["drip", *(name for name in LIES if name.startswith("redirect"))])
def test_a_redirect_is_held_to_the_rules_and_a_slow_answer_to_its_time(site, tmp_path, capfd, fault):
    site.plan = lambda method, path: fault
    assert main(["--registry", str(tmp_path / "reader"), "pull", "acme/pii", site.url]) == 6
    said = capfd.readouterr().err
    assert ("REG_READ_DEADLINE" if fault == "drip" else "redirects") in said
    assert "Traceback" not in said and "hunter2" not in said
    assert not (tmp_path / "reader/index").exists()


PUBLIC = "https://1.1.1.1/a"
ALLOWED = [
    *((PUBLIC, "/b"), (PUBLIC, "https://8.8.8.8/b"), ("https://10.0.0.1/a", "https://10.0.0.2/b")),
    ("http://127.0.0.1:1/a", "http://127.0.0.1:2/b"),
]
HOSTS = ["127.0.0.1", "127.1", "2130706433", "localhost", "10.0.0.1", "169.254.169.254", "[::1]"]
HOSTS += ["[::ffff:127.0.0.1]", "[fd00::1]", "x@8.8.8.8", "8.8.8.8:99999"]
REFUSED = [*((PUBLIC, f"https://{host}/b") for host in HOSTS), (PUBLIC, "ftp://8.8.8.8/b")]
REFUSED += [(PUBLIC, "http://1.1.1.1/b"), ("http://127.0.0.1:1/a", "http://10.0.0.2/b")]


def test_allowed_targets_of_a_redirect():
    for url, location in ALLOWED:
        assert requests.next_url(url, location).startswith("http")
    for url, location in REFUSED:
        with pytest.raises(RemoteError, match="redirects"):
            requests.next_url(url, location)
