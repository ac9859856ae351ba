"""A witness log at every kind of place, the requests of a reader there, and copies of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import close_session
from support.servers import regserve
from support.servers.faults import Proxy, proxy
from support.servers.hub import running
from support.servers.static import serve
from support.witness.logs import WitnessedRegistry

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.hub.hub import open_hub
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.store.s3.bucket import s3_remote
from onnxreg.registry.transfer.archive import create_archive
from onnxreg.registry.transfer.mirror_registry import mirror
from onnxreg.registry.witness.inspection import inspect, verify_log
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.witness.merkle_map import MapEntry, MerkleMap

Grow = Callable[[str], None]


def require(own_user: Path, witnessed: WitnessedRegistry, max_age: str = "1h", **more: str) -> None:
    """Demand both witnesses."""
    own_user.mkdir(parents=True, exist_ok=True)
    keys = json.dumps([witnessed.vkey(name) for name in ("w1", "w2")])
    extra = "".join(f', {key} = "{value}"' for key, value in more.items())
    text = f'[[require]]\nwitnesses = {{any = 2, of = {keys}, max_age = "{max_age}"{extra}}}\n'
    (own_user / "trust").write_text(text)


def resolve(tmp_path: Path, url: str, name: str = "acme/pii") -> int:
    return main(["--registry", str(tmp_path / "own"), "resolve", name, "--remote", url])


def check_life(remote: RegistryStore, registry: Registry, grow: Grow, own_user: Path, tmp_path: Path) -> None:
    """Publish, cosign, resolve; a push is refused until it is witnessed, and so is a log that went back."""
    witnessed = WitnessedRegistry(remote)
    require(own_user, witnessed)
    registry.push("acme/pii", to=remote.url)
    witnessed.witness()
    assert resolve(tmp_path, remote.url) == 0
    grow("acme/pii")
    grow("acme/ner")
    registry.push("acme/ner", to=remote.url)
    assert resolve(tmp_path, remote.url, "acme/ner") == 4
    witnessed.publish()
    assert resolve(tmp_path, remote.url, "acme/ner") == 4
    witnessed.cosign("w1")
    assert resolve(tmp_path, remote.url, "acme/ner") == 4
    witnessed.cosign("w2")
    assert resolve(tmp_path, remote.url, "acme/ner") == 0
    assert verify_log(remote, str(witnessed.log_key)).refused == {}
    assert inspect(remote).checkpoint.head.size == 2


def test_in_a_directory(registry: Registry, grow: Grow, own_user: Path, tmp_path: Path) -> None:
    check_life(DirectoryRegistry.create(tmp_path / "there"), registry, grow, own_user, tmp_path)


def test_in_a_bucket(bucket_url: str, registry: Registry, grow: Grow, own_user: Path, tmp_path: Path) -> None:
    check_life(s3_remote(bucket_url, create=True), registry, grow, own_user, tmp_path)


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
def test_on_the_hub(
    registry: Registry, grow: Grow, own_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        check_life(open_hub("hf://acme/models", create=True), registry, grow, own_user, tmp_path)
        close_session()


def large(witnessed: WitnessedRegistry, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish the registry's heads among so many names more, which have no models."""
    from onnxreg.registry.witness import signers

    survey = signers.survey

    def more(*arguments: object) -> object:
        result = survey(*arguments)  # type: ignore[arg-type]
        names = (f"org/m{number}" for number in range(count))
        result.changed |= {name: MapEntry(name, 1, Digest.of(name.encode())) for name in names}
        return result

    with monkeypatch.context() as patch:
        patch.setattr(signers, "survey", more)
        witnessed.witness()


@contextmanager
def counted(url: str, root: Path) -> Iterator[tuple[str, Proxy]]:
    """A web server with the files of a directory, and a proxy that counts what is asked of it."""
    with serve(root) as there, proxy(there) as running_proxy:
        yield running_proxy.url, running_proxy


@pytest.mark.parametrize(
    ("count", "pages"), [(0, 1), (2_000, 2), pytest.param(70_000, 3, marks=pytest.mark.more)]
)
def test_a_reader_makes_at_most_four_requests_more_of_a_web_server(
    witnessed: WitnessedRegistry,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    pages: int,
) -> None:
    large(witnessed, count, monkeypatch)
    with counted("", Path(witnessed.store.url)) as (url, requests):
        assert resolve(tmp_path / "without", url) == 0
        plain = len(requests.seen)
        require(own_user, witnessed)
        requests.seen.clear()
        assert resolve(tmp_path / "with", url) == 0
        asked = [path for _, path in requests.seen if "/witness/" in path]
        assert len(requests.seen) - plain == len(asked) <= 1 + pages <= 4
        assert asked[0] == "/witness/proofs" and all(path.startswith("/witness/map/") for path in asked[1:])
        requests.seen.clear()
        assert resolve(tmp_path / "with", url) == 0
        assert [path for _, path in requests.seen if "/witness/" in path] == ["/witness/proofs"]
        assert requests.answers[-1] == 304 or 304 in requests.answers[-2:]


def test_a_reader_makes_at_most_four_requests_more_of_a_bucket(
    s3_proxy: Proxy, bucket_url: str, registry: Registry, own_user: Path, tmp_path: Path
) -> None:
    remote = s3_remote(bucket_url, create=True)
    witnessed = WitnessedRegistry(remote)
    registry.push("acme/pii", to=bucket_url)
    witnessed.witness()
    require(own_user, witnessed)
    for asked in (2, 1):
        s3_proxy.seen.clear()
        assert resolve(tmp_path, bucket_url) == 0
        assert len([path for _, path in s3_proxy.seen if "/witness/" in path]) == asked


def test_a_served_registry_shows_its_log(
    witnessed: WitnessedRegistry, own_user: Path, tmp_path: Path, registry: Registry
) -> None:
    witnessed.witness()
    require(own_user, witnessed)
    (registry.store.root / "witness" / "secret").write_bytes(b"not a file of the log")
    with regserve.running(registry.store.root) as server:
        assert resolve(tmp_path, server.url) == 0
        from onnxreg.registry.store.http import HttpStore

        assert HttpStore(server.url).get("witness/checkpoint") is not None
        assert HttpStore(server.url).get("witness/secret") is None


def test_a_mirror_carries_the_log(
    witnessed: WitnessedRegistry, registry: Registry, grow: Grow, own_user: Path, tmp_path: Path
) -> None:
    """Its readers need nobody but the witnesses; a mirror that lacks the newest lines is behind, and is refused."""
    copy = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=registry.id)
    witnessed.witness()
    mirror(registry.store, copy)
    require(own_user, witnessed)
    assert resolve(tmp_path, str(copy.root)) == 0
    grow("acme/pii")
    witnessed.witness()
    mirror(registry.store, copy)
    mirror(registry.store, copy)
    assert resolve(tmp_path, str(copy.root)) == 0
    assert verify_log(copy, str(witnessed.log_key)).changed == {}
    paths = {path.relative_to(copy.root) for path in copy.root.glob("witness/**/*") if path.is_file()}
    assert paths == {
        path.relative_to(registry.store.root)
        for path in registry.store.root.glob("witness/**/*")
        if path.is_file() and path.name != "next"
    }
    assert main(["--registry", str(copy.root), "verify"]) == 0


def test_an_archive_carries_the_proofs_of_its_models(
    witnessed: WitnessedRegistry,
    registry: Registry,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large(witnessed, 500, monkeypatch)
    require(own_user, witnessed)
    archive = tmp_path / "pii.onnxreg"
    chosen = {"acme/pii": [Version.parse("1.0.0")]}
    create_archive(registry.store, chosen, tmp_path / "plain.onnxreg")
    create_archive(registry.store, chosen, archive, witnessed=True)
    assert resolve(tmp_path, str(archive)) == 0
    assert resolve(tmp_path, str(archive), "acme/ner") == 3
    assert resolve(tmp_path / "2", str(tmp_path / "plain.onnxreg")) == 4
    assert main(["archive", "verify", str(archive)]) == 0
    assert main(["--registry", str(tmp_path / "own"), "verify", "--remote", str(archive)]) == 0


def test_collecting_leaves_the_log(witnessed: WitnessedRegistry, registry: Registry) -> None:
    witnessed.witness()
    before = sorted(registry.store.root.glob("witness/**/*"))
    registry.gc()
    assert sorted(registry.store.root.glob("witness/**/*")) == before
    assert not registry.verify().damages
    assert main(["--registry", str(registry.store.root), "doctor"]) in (0, 9)


def test_a_stale_cache_of_the_proofs_is_passed(
    witnessed: WitnessedRegistry, registry: Registry, grow: Grow, own_user: Path, tmp_path: Path
) -> None:
    """A refusal is repeated with what is there now, past caches in between."""
    witnessed.witness()
    require(own_user, witnessed)
    with counted("", registry.store.root) as (url, requests):
        assert resolve(tmp_path, url) == 0
        grow("acme/pii")
        witnessed.witness()
        requests.plan = lambda method, path: (
            "stale" if path == "/witness/proofs" and len(requests.met) < 1 else None
        )
        assert resolve(tmp_path, url) == 0
        assert requests.met == ["stale"]


def test_the_map_of_a_mirror_has_all_its_pages(witnessed: WitnessedRegistry, tmp_path: Path) -> None:
    witnessed.witness()
    shutil.copytree(witnessed.store.url, tmp_path / "copy")
    heads = inspect(DirectoryRegistry(tmp_path / "copy")).heads
    assert isinstance(heads, MerkleMap) and len(list(heads)) == 3
