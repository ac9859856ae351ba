"""The clients in examples/ take updates by deltas, or the whole file on any doubt."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import retrained
from support.servers import static
from support.servers.faults import Proxy, proxy
from support.servers.web_client import Call

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import publish_deltas
from onnxreg.registry.log.log import load, read_deltas
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import SILENT
from onnxreg.schema.delta.delta_format import Delta

NAME = "acme/pii"
FLOAT32 = {"query": {"formats": ["onnx"]}}
INT8 = {"query": {"formats": ["onnx-int8"]}}


def publish(registry: Registry, root: Path, *steps: int) -> None:
    for step in steps:
        registry.add(retrained.draft(root / f"draft{step}", step))
        registry.tag(f"{NAME}:0.1.0", "stable")
        make_deltas(registry, registry.store, Ref(NAME), (), SILENT)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A registry with one version, and one with three; the float32 file has two pieces."""
    root = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrained, "ELEMENTS", 2_400_000)
        registry = Registry(root / "home")
        publish(registry, root, 0)
        shutil.copytree(root / "home", root / "first")
        publish(registry, root, 1, 2)
    return root / "first", root / "home"


@pytest.fixture
def home(published: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(published[0], tmp_path / "home")


@pytest.fixture
def site(home: Path) -> Iterator[Proxy]:
    with static.serve(home) as url, proxy(url) as running:
        yield running


@pytest.fixture
def update(client: Call, site: Proxy, tmp_path: Path) -> Callable[..., Any]:
    def run(question: Any, **options: Any) -> Any:
        outcome = client(site.url, tmp_path / "store", "update", NAME, question, options)
        assert "error" not in outcome or options, outcome
        return outcome

    return run


@pytest.fixture
def release(published: tuple[Path, Path], home: Path) -> Callable[[], Registry]:
    """Let the registry have the later versions."""

    def add() -> Registry:
        shutil.copytree(published[1], home, dirs_exist_ok=True)
        return Registry(home)

    return add


def deltas(registry: Registry) -> set[str]:
    return {delta.digest.hex for delta in offered(registry)}


def offered(registry: Registry) -> list[Delta]:
    ledger = load(registry.store, NAME)
    return read_deltas(ledger.fetch, ledger.versions[Version.parse("0.1.2")].deltas)


def offer(registry: Registry, delta: Delta) -> None:
    """Offer a delta of the newest version, in place of one with the same files."""
    with registry.store.push() as push:
        publish_deltas(registry.store, push, NAME, Version.parse("0.1.2"), [delta], None)


def file_digest(registry: Registry, version: str, path: str) -> str:
    artifacts = registry.get(f"{NAME}:{version}").manifest.artifacts
    return next(item.digest.hex for item in artifacts if item.path == path)


def arrival(outcome: Any, path: str) -> Any:
    return next(item for item in outcome["arrivals"] if item["path"] == path)


def bytes_of(site: Proxy, home: Path) -> int:
    """The sizes of the blobs that were asked for."""
    names = {path.rpartition("/")[2] for _, path in site.seen if "/blobs/" in path}
    return sum((home / "blobs/sha256" / name[:2] / name).stat().st_size for name in names if len(name) == 64)


@pytest.mark.parametrize(
    ("question", "path", "share"), [(FLOAT32, "model.onnx", 0.53), (INT8, "model_int8.onnx", 0.1)]
)
def test_an_update_by_a_delta(update, release, site, home, tmp_path, question, path, share):
    update(question)
    registry = release()
    site.seen.clear()
    outcome = update(question)
    arrived = arrival(outcome, path)
    assert (outcome["version"], arrived["deltas"], arrived["reason"]) == ("0.1.2", 1, "")
    assert outcome["files"][path] == f"sha256:{file_digest(registry, '0.1.2', path)}"
    assert not any(file_digest(registry, "0.1.2", path) in asked for _, asked in site.seen)
    assert bytes_of(site, home) < share * arrival(outcome, path)["size"] + 20_000
    assert outcome["progress"][-1][0] == outcome["progress"][-1][1]
    names = {path.name for path in (tmp_path / "store").rglob("*")}
    assert not any(digest in name or "making" in name for digest in deltas(registry) for name in names)


@pytest.mark.parametrize("fault", ["garbled", "astray"])
def test_a_bad_delta_costs_the_whole_file(update, release, site, fault):
    update(INT8)
    registry = release()
    spoiled = deltas(registry)
    site.plan = lambda method, path: fault if path.rpartition("/")[2].split(".")[0] in spoiled else None
    outcome = update(INT8)
    assert arrival(outcome, "model_int8.onnx")["reason"]
    digest = file_digest(registry, "0.1.2", "model_int8.onnx")
    assert outcome["files"]["model_int8.onnx"] == f"sha256:{digest}"


def test_a_delta_for_other_bytes_is_not_believed(update, release):
    update(FLOAT32)
    registry = release()
    new, other = (Digest(file_digest(registry, "0.1.2", path)) for path in ("model.onnx", "model_int8.onnx"))
    right = next(item for item in offered(registry) if item.new == new and str(item.since) == "0.1.0")
    wrong = next(item for item in offered(registry) if item.new == other)
    offer(registry, right.replace(digest=wrong.digest, size=wrong.size))
    outcome = update(FLOAT32)
    assert "other files" in arrival(outcome, "model.onnx")["reason"]
    assert outcome["files"]["model.onnx"] == f"sha256:{file_digest(registry, '0.1.2', 'model.onnx')}"


def test_a_delta_that_is_a_file_of_the_release_in_use_takes_nothing_away(
    client, update, release, site, tmp_path
):
    """The table names the old file itself as the delta; then the update fails, and the old release still works."""
    update(INT8)
    registry = release()
    old, new = (file_digest(registry, version, "model_int8.onnx") for version in ("0.1.0", "0.1.2"))
    offer(registry, Delta(Digest(new), (Digest(old),), Digest(old), 1, Version.parse("0.1.0")))
    site.plan = lambda method, path: "astray" if new in path else None
    assert "error" in client(site.url, tmp_path / "store", "update", NAME, INT8)
    assert [path for path in (tmp_path / "store").rglob("*") if old in path.name]


def test_a_damaged_old_piece_costs_that_piece(update, release, site, tmp_path):
    """The store lost a byte of one of two old pieces: one new piece is fetched from the whole file."""
    update(FLOAT32)
    registry = release()
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[1000] ^= 255
    largest.write_bytes(data)
    site.seen.clear()
    outcome = update(FLOAT32)
    assert arrival(outcome, "model.onnx")["reason"] == "1 of 2 pieces came out wrong"
    assert outcome["files"]["model.onnx"] == f"sha256:{file_digest(registry, '0.1.2', 'model.onnx')}"


def test_a_cancelled_delta_continues(update, release, site):
    update(FLOAT32)
    registry = release()
    assert update(FLOAT32, cancel_at=5_000_000)["error"] == "cancelled"
    site.seen.clear()
    outcome = update(FLOAT32)
    assert outcome["progress"][0][0] >= 4_000_000
    whole = file_digest(registry, "0.1.2", "model.onnx")
    assert not any(whole in path for _, path in site.seen)
