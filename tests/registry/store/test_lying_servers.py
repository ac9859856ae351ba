"""A server that lies: the right file or a clear error, never another file, nothing half-written, and no wait for ever."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.drafts import write_draft
from support.sampling import sampled
from support.servers import hub, static
from support.servers.faults import LIES, Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import Release
from onnxreg.registry.store import requests
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.requests import http_remote
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError, RemoteError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]

FAULTS = (*LIES, "garbled", "truncated", "page", "drip", "endless", "stalled", "astray", "reset")
PARTS = {"index": "/index/", "identity": "registry.json", "blob": "/blobs/"}
CLEAR = {"remote", "integrity", "not-found"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("REG_READ_TIMEOUT", "0.3")
    monkeypatch.setenv("REG_READ_DEADLINE", "1")
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.01)


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """An honest server may be slow on a busy machine."""
    patch.setenv("REG_READ_TIMEOUT", "20")
    patch.setenv("REG_READ_DEADLINE", "60")


@pytest.fixture
def site(tmp_path: Path, make_draft: MakeDraft) -> Iterator[Proxy]:
    source = Registry(tmp_path / "home")
    source.add(make_draft())
    with static.serve(tmp_path / "home") as url, proxy(url) as running:
        yield running


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
        digest = BlobKey.of_path(str(path.relative_to(reader.store.root)))
        assert digest is not None
        assert Digest.of(path.read_bytes()) == digest.digest
    return family


@pytest.mark.parametrize("part", ["index", "blob", pytest.param("identity", marks=pytest.mark.more)])
@pytest.mark.parametrize("fault", sampled(FAULTS, 2))
def test_a_lying_web_server(
    site: Proxy, tmp_path: Path, fault: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, spoilt = Registry(tmp_path / "reader"), PARTS[part]
    site.plan = lambda method, path: fault if spoilt in path or path == "/again" else None
    family = pulled(reader, site.url)
    assert family in CLEAR | {""}
    if family:
        assert not list(reader.store.root.glob("index/acme/*"))
    site.plan = lambda method, path: None
    be_patient(monkeypatch)
    if (fault, part) != ("garbled", "index"):  # there the known heads hold what was said first
        assert pulled(reader, site.url) == ""


REMOTE_FAULTS = [
    *(
        "short",
        "long",
        "empty",
        "other bytes",
        "lying range",
        "malformed range",
        "no range",
        "negative length",
    ),
    *("huge length", "absurd length", "packed", "odd tag", "wrong tag", "no tag", "chunks of nonsense"),
    *("redirect without end", "redirect to a broken URL", "redirect to plain http"),
    *("truncated", "page", "drip", "stalled"),
]


@pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning"
)  # urllib3 leaves it on a broken redirect
@pytest.mark.parametrize("part", ("index", pytest.param("blob", marks=pytest.mark.more)))
@pytest.mark.parametrize("fault", sampled(REMOTE_FAULTS, 2))
def test_a_lying_s3_server(
    pushed_model: tuple[str, Release],
    s3_proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    part: str,
) -> None:
    url, _ = pushed_model
    reader, spoilt = Registry(tmp_path / "reader"), PARTS[part]
    s3_proxy.plan = lambda method, path: fault if spoilt in path or path == "/again" else None
    assert pulled(reader, url) in CLEAR | {""}
    s3_proxy.plan = lambda method, path: None
    be_patient(monkeypatch)
    assert pulled(reader, url) == ""
    gc.collect(1)  # its sockets, not those of the next test


ON_HUB = "hf://acme/models"


def push_to_hub(server: hub.Hub, root: Path) -> Registry:
    """Push a version to the Hub; returns the registry that has it."""
    with pytest.MonkeyPatch.context() as patch:
        server.enter(patch, root / "hf")
        patch.setenv("REG_STATE", str(root / "state"))  # the next Hub at this URL is another registry
        source = Registry(root / "home")
        source.add(write_draft(root / "workspace", "acme/pii", "a", 100))
        source.push("acme/pii", ON_HUB)
    return source


@pytest.fixture(scope="module")
def stocked_hub(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hub.Hub]:
    """A Hub with a version of acme/pii, for reading only."""
    root = tmp_path_factory.mktemp("hub")
    with hub.running(root / "hub") as server:
        push_to_hub(server, root)
        yield server


@contextmanager
def hub_proxy(server: hub.Hub, patch: pytest.MonkeyPatch, home: Path) -> Iterator[Proxy]:
    """A proxy before the Hub, through which this process goes; it waits a third of a second for an answer."""
    from huggingface_hub.utils import close_session

    server.enter(patch, home)
    with proxy(server.endpoint) as running:
        patch.setenv("HF_ENDPOINT", running.url)
        patch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
        yield running
    close_session()


def check_old_and_swapped_answers(
    running: Proxy, url: str, tmp_path: Path, publish: Callable[[], object]
) -> None:
    """A blob under the name of another is refused; so is last week's index, by a reader who saw this week's."""
    reader, newcomer = Registry(tmp_path / "reader"), Registry(tmp_path / "newcomer")
    assert pulled(reader, url) == ""
    running.plan = lambda method, path: "swapped" if method == "GET" and "/blobs/" in path else None
    assert pulled(newcomer, url) in CLEAR
    running.plan = lambda method, path: None
    publish()
    assert pulled(reader, url) == ""
    running.plan = lambda method, path: "stale"
    assert pulled(reader, url) == "integrity"
    running.plan = lambda method, path: None
    assert pulled(reader, url) == ""


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
@pytest.mark.parametrize("part", ("index", pytest.param("blob", marks=pytest.mark.more)))
@pytest.mark.parametrize("fault", sampled(REMOTE_FAULTS, 2))
def test_a_lying_hub(
    stocked_hub: hub.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, part: str
) -> None:
    reader, spoilt = Registry(tmp_path / "reader"), PARTS[part]
    with hub_proxy(stocked_hub, monkeypatch, tmp_path / "hf") as running:
        running.plan = lambda method, path: fault if spoilt in path or path == "/again" else None
        # the bytes of a blob come from where its answer leads, and nobody reads that answer to its end
        assert pulled(reader, ON_HUB) in ({"remote"} if (fault, part) == ("drip", "index") else CLEAR | {""})
        running.plan = lambda method, path: None
        assert pulled(reader, ON_HUB) == ""


@pytest.fixture
def slow(tmp_path: Path, make_draft: MakeDraft) -> Iterator[Proxy]:
    """A web server with a version of 5 MB, which sends blobs in pieces."""
    Registry(tmp_path / "home").add(make_draft(size=600_000))
    with static.serve(tmp_path / "home") as url, proxy(url) as running:
        running.plan = lambda method, path: "slow" if "/blobs/" in path else None
        yield running


def test_the_deadline_is_that_of_the_whole_file_and_the_next_pull_goes_on(
    slow: Proxy, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in pieces of 16 kB, fifty a second."""
    slow.piece = 2**14
    monkeypatch.setenv("REG_READ_DEADLINE", "2")
    words = ["--registry", str(tmp_path / "reader"), "pull", "acme/pii", slow.url]
    assert main(words) == 6
    assert "REG_READ_DEADLINE" in capfd.readouterr().err
    data = b"fp32 a " * 600_000
    digest = Digest.of(data).hex
    assert 0 < (tmp_path / "reader/local/partial" / digest).stat().st_size < len(data)
    slow.plan = lambda method, path: None
    monkeypatch.delenv("REG_READ_DEADLINE")
    assert main(words) == 0
    assert slow.requests("GET", digest) == 2, "the rest was requested"
    assert not owner.verify(Registry(tmp_path / "reader")).damages


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_limit_is_a_number(site: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("REG_READ_DEADLINE", text)
    with pytest.raises(InputError, match="REG_READ_DEADLINE is"):
        http_remote(site.url)


def test_a_claimed_length_takes_no_memory(site: Proxy, tmp_path: Path) -> None:
    import tracemalloc

    remote = http_remote(site.url)
    site.plan = lambda method, path: "huge length"
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError, match="bytes arrived"):
            remote.read_index("acme/pii")
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fault", ["drip", *(name for name in LIES if name.startswith("redirect"))])
def test_a_redirect_is_held_to_the_rules_and_a_slow_answer_to_its_time(
    site: Proxy, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    site.plan = lambda method, path: fault
    assert main(["--registry", str(tmp_path / "reader"), "pull", "acme/pii", site.url]) == 6
    said = capfd.readouterr().err
    assert ("REG_READ_DEADLINE" if fault == "drip" else "redirects") in said
    assert "Traceback" not in said and "hunter2" not in said
    assert not (tmp_path / "reader/index").exists()


PUBLIC = "https://1.1.1.1/a"
REDIRECTS = {
    True: [
        *((PUBLIC, "/b"), (PUBLIC, "https://8.8.8.8/b"), ("https://10.0.0.1/a", "https://10.0.0.2/b")),
        ("http://127.0.0.1:1/a", "http://127.0.0.1:2/b"),
    ],
    False: [
        *(
            (PUBLIC, f"https://{host}/b")
            for host in ("127.0.0.1", "127.1", "2130706433", "localhost", "10.0.0.1")
        ),
        *(
            (PUBLIC, f"https://{host}/b")
            for host in ("169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[fd00::1]")
        ),
        *((PUBLIC, f"https://{host}/b") for host in ("x@8.8.8.8", "8.8.8.8:99999")),
        *((PUBLIC, "ftp://8.8.8.8/b"), (PUBLIC, "http://1.1.1.1/b")),
        ("http://127.0.0.1:1/a", "http://10.0.0.2/b"),
    ],
}


@pytest.mark.parametrize(
    ("url", "location", "allowed"), [(*pair, allowed) for allowed in REDIRECTS for pair in REDIRECTS[allowed]]
)
def test_allowed_targets_of_a_redirect(url: str, location: str, allowed: bool) -> None:
    if allowed:
        assert requests.target(url, location).startswith("http")
    else:
        with pytest.raises(RemoteError, match="redirects"):
            requests.target(url, location)


def test_a_web_server_with_old_and_swapped_answers(
    site: Proxy, tmp_path: Path, make_draft: MakeDraft
) -> None:
    source = Registry(tmp_path / "home")
    check_old_and_swapped_answers(site, site.url, tmp_path, lambda: source.add(make_draft(seed="b")))


def test_an_s3_server_with_old_and_swapped_answers(
    bucket_url: str,
    s3_proxy: Proxy,
    registry: Registry,
    make_draft: MakeDraft,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_patient(monkeypatch)
    registry.add(make_draft())
    registry.push("acme/pii", bucket_url)

    def publish() -> None:
        registry.add(make_draft(seed="b"))
        registry.push("acme/pii", bucket_url)

    check_old_and_swapped_answers(s3_proxy, bucket_url, tmp_path, publish)


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
def test_a_hub_with_old_and_swapped_answers(
    tmp_path: Path, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub.running(tmp_path / "hub") as server:
        source = push_to_hub(server, tmp_path)

        def publish() -> None:
            source.add(make_draft(seed="b"))
            source.push("acme/pii", ON_HUB)

        with hub_proxy(server, monkeypatch, tmp_path / "hf") as running:
            be_patient(monkeypatch)
            check_old_and_swapped_answers(running, ON_HUB, tmp_path, publish)
