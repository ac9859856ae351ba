"""An index that processes read in shares says what one process reads."""

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from support.registries import grow

from onnxreg.registry.search import scan, shards
from onnxreg.registry.search.db import ModelRows
from onnxreg.registry.search.listing import ModelListing
from onnxreg.registry.search.search_index import ArtifactKind, SearchIndex
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path

MODELS = 9
Answer = tuple[list[ModelListing], list[str], list[object]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grow.grow(tmp_path_factory.mktemp("shards") / "home", MODELS, 3, whole=[0]).store.root


@pytest.fixture
def home(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryRegistry:
    """A registry whose files have been there for long, on a machine with three cores."""
    monkeypatch.setattr(scan, "TICK_NANOSECONDS", 0)
    monkeypatch.setattr(shards, "MIN_MODELS", 4)
    monkeypatch.setattr(shards, "count_cores", lambda: 3)
    return DirectoryRegistry.open(Path(shutil.copytree(template, tmp_path / "home")))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that were copied into an index."""
    names: list[str] = []
    copy = shards._copy

    def counted(shard: Path, database: sqlite3.Connection) -> None:
        copy(shard, database)
        names.append(shard.name)

    monkeypatch.setattr(shards, "_copy", counted)
    return names


def answer(remote: DirectoryRegistry) -> Answer:
    with SearchIndex(remote) as index:
        kinds = (
            ArtifactKind(certified=True),
            ArtifactKind(precision="int8"),
            ArtifactKind(("onnx-android",)),
        )
        return list(index.models()), index.damages(), [index.matches(kind) for kind in kinds]


def alone(remote: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """The answer of an index that one process read."""
    with monkeypatch.context() as patch:
        patch.setattr(shards, "count_cores", lambda: 1)
        (remote.root / "local" / "search.sqlite").unlink()
        return answer(remote)


def test_shards_hold_what_one_process_reads(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sharded = answer(home)
    assert copies == ["0.sqlite", "1.sqlite"]
    assert len(sharded[0]) == MODELS
    assert sharded == alone(home, monkeypatch)


def test_the_shards_of_a_server_follow_no_links(
    home: DirectoryRegistry, copies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = (home.root / index_path(grow.model_name(0))).parent
    names = {f"{directory.name}/{file.stem}" for file in directory.iterdir()}
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    served = ServedRegistry.open(home.root)
    sharded = answer(served)
    assert len(copies) == 2
    listed = {model.name for model in sharded[0]}
    assert names and not listed & names and len(listed) == MODELS - len(names)
    assert sharded == alone(served, monkeypatch)


def test_a_damaged_index_file_is_reported_once(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.root / index_path(grow.model_name(4))).write_bytes(b"{}\n")
    sharded = answer(home)
    assert len(copies) == 2 and len(sharded[0]) == MODELS - 1
    (damage,) = sharded[1]
    assert damage.startswith(f"the index of {grow.model_name(4)} in ")
    assert sharded == alone(home, monkeypatch)


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_processes_that_fail_cost_time_but_no_model(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert len(answer(home)[0]) == MODELS
    assert copies == []


def test_a_shard_that_cannot_be_copied_leaves_the_others(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shards._copy

    def damaging(shard: Path, database: sqlite3.Connection) -> None:
        if shard.name == "0.sqlite":
            shard.write_bytes(b"not a database" * 100)
        copy(shard, database)

    monkeypatch.setattr(shards, "_copy", damaging)
    assert len(answer(home)[0]) == MODELS
    assert copies == ["1.sqlite"]


def test_models_that_the_tables_refuse_are_left_to_the_update(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = shards.read_rows

    def beyond(remote: DirectoryRegistry, *model: str) -> ModelRows:
        return read(remote, *model)._replace(versions=2**70)

    monkeypatch.setattr(shards, "read_rows", beyond)
    assert len(answer(home)[0]) == MODELS
    assert copies == []


def test_a_file_that_changes_meanwhile_is_read_again(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shards._copy
    name = grow.model_name(2)

    def removing(shard: Path, database: sqlite3.Connection) -> None:
        copy(shard, database)
        (home.root / index_path(name)).unlink(missing_ok=True)

    monkeypatch.setattr(shards, "_copy", removing)
    assert name not in {model.name for model in answer(home)[0]}  # type: ignore[attr-defined]


def test_few_models_start_no_process(
    home: DirectoryRegistry, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MIN_MODELS", MODELS)
    assert len(answer(home)[0]) == MODELS
    assert copies == []
