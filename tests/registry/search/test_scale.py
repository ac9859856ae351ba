"""What a registry costs as it grows: more models, more versions. Counted in files and bytes, never in seconds."""

import os
from pathlib import Path

import pytest
from support.registries import grow, owner
from support.registries.home import Home
from support.registries.opened import opened
from support.sampling import sampled

from onnxreg.cli.main import main
from onnxreg.registry.log import lookup
from onnxreg.registry.log.contents import files
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import Release, fetcher
from onnxreg.registry.search.catalogs import MODELS, LocalCatalog
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.schema.log.state import SEGMENT_LINES

FEW, VERSIONS = 10, 20
NAME = grow.model_name(0)
BOUND = 64 * 1024
"""Bytes of an index file: `SEGMENT_LINES` lines, as many versions, the summaries, and 100 bytes for each sealed segment."""


def whole(models: int) -> list[int]:
    return [0, 1, models // 2, models - 1]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return grow.grow(tmp_path_factory.mktemp("few") / "home", FEW, VERSIONS, whole(FEW))


@pytest.fixture(scope="module", params=[300, pytest.param(10_000, marks=pytest.mark.large)])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    models = request.param
    return grow.grow(tmp_path_factory.mktemp("many") / "home", models, VERSIONS, whole(models))


@pytest.fixture(scope="module", params=[300, pytest.param(5_000, marks=pytest.mark.large)])
def long(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One model of many versions."""
    return grow.grow(tmp_path_factory.mktemp("long") / "home", 1, request.param)


def cost(registry: Home, *words: str) -> list[tuple[str, int]]:
    """The files that a command opens in its registry and that are there, with their sizes; for a directory 0."""
    root = registry.store.root
    with opened(root) as found:
        assert main(["--registry", str(root), *words]) == 0
    there = [path for path in found if (root / path).exists()]
    return [(path, (root / path).stat().st_size if (root / path).is_file() else 0) for path in there]


@pytest.mark.parametrize(
    "words", sampled([("ls", NAME), ("show", NAME), ("resolve", NAME), ("resolve", f"{NAME}:stable")], 3)
)
def test_one_model_costs_the_same_among_ten_and_among_thousands(
    small: Home, large: Home, words: tuple[str, ...]
) -> None:
    expected = cost(small, *words)
    assert cost(large, *words) == expected
    assert len(expected) == (3 if words[0] == "show" else 2)  # show reads the manifest too


def test_models_are_as_the_registry_itself_would_have_written_them(large: Home) -> None:
    for number in whole(len(large.names())):
        name = grow.model_name(number)
        assert not owner.verify(large, name).damages
        index = large.store.read_index(name)
        assert index is not None
        fetch = fetcher(large.store)
        lines = Log.decode(index.data, large.id, name, fetch).lines()
        assert Log.replay(lines, large.id, name, fetch).encode() == index.data


def test_a_question_over_all_models_opens_no_index_file_twice(
    large: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxreg.schema.core.files.SETTLED_NANOSECONDS", 0)
    (large.store.root / "local" / MODELS).unlink(missing_ok=True)
    with opened(large.store.root) as cold:
        models = LocalCatalog(large.store).refresh().readable()
    assert [model.name for model in models] == large.names()
    assert {model.versions for model in models} == {VERSIONS}
    assert index_files(cold) == sorted(index_path(name) for name in large.names())
    with opened(large.store.root) as warm:
        assert LocalCatalog(large.store).refresh().readable() == models
    assert index_files(warm) == []
    large.tag(f"{NAME}:1.19.0", "beta")
    with opened(large.store.root) as stale:
        assert LocalCatalog(large.store).refresh().models[NAME].channels["beta"] == "1.19.0"
    assert index_files(stale) == [index_path(NAME)]
    owner.untag(large, NAME, "beta")


def index_files(opened: list[str]) -> list[str]:
    return sorted(path for path in opened if path.endswith(".jsonl") and path.startswith("index/"))


@pytest.mark.parametrize("tag", ["", ":stable", ":newest"])
def test_resolving_among_many_versions_reads_an_index_file_and_a_checkpoint(
    long: Home, tag: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Of the newest version, by its number too, and of what a channel holds, however long ago it was published."""
    state = long.state(NAME)
    newest = state.newest_release()
    files = cost(long, "resolve", NAME + tag.replace("newest", str(newest)))
    assert state.checkpoint is not None
    assert [path for path, _ in files] == [blob_path(state.checkpoint), index_path(NAME), "registry.json"]
    assert files[1][1] < BOUND
    expected = state.channels["stable"].version if tag == ":stable" else newest
    assert capfdbinary.readouterr().out.startswith(f"{NAME}:{expected} ".encode())


Files = dict[str, tuple[int, int, int]]


def tree(registry: Home) -> Files:
    """Every file that others see, with what changes when it is written."""
    files = {}
    for folder, folders, names in os.walk(registry.store.root):
        if folder == registry.place:
            folders.remove("local")
        for name in names:
            status = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118
            path = os.path.relpath(os.path.join(folder, name), registry.store.root)  # noqa: PTH118
            files[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return files


def written(before: Files, after: Files) -> tuple[list[str], list[str]]:
    """The files that are new, and those that were replaced. None may be gone."""
    assert before.keys() <= after.keys()
    new = sorted(after.keys() - before.keys())
    return new, sorted(path for path, seen in before.items() if after[path] != seen)


def blobs_of(registry: Home, published: Release, sealed: int) -> set[str]:
    """Where the blobs of a version lie, and with it those of the history that was sealed since."""
    state = registry.state(NAME)
    log = lookup.open_log(registry.store, NAME)
    needed = files(log, published.version, log.versions[published.version])
    found = {published.digest, *(item.digest for item in needed), *state.segments[sealed:]}
    if len(state.segments) > sealed and state.checkpoint is not None:
        found.add(state.checkpoint)
    return {blob_path(digest) for digest in found}


def test_a_new_version_among_many_rewrites_the_bounded_index_file_alone(long: Home) -> None:
    """Long enough to come past a sealing: then a segment and a catalog are written too."""
    sealings = 0
    for number in range(SEGMENT_LINES + 1):
        before, sealed = tree(long), len(long.state(NAME).segments)
        published = long.make(name=NAME, seed=f"{number:03d}")
        new, replaced = written(before, after := tree(long))
        blobs = blobs_of(long, published, sealed)
        assert set(new) == blobs - before.keys()
        assert set(replaced) - blobs == {index_path(NAME)}
        assert after[index_path(NAME)][2] < BOUND
        sealings += len(long.state(NAME).segments) - sealed
    assert sealings >= 1


@pytest.fixture
def twin(long: Home, tmp_path: Path) -> Home:
    """Another registry with a model of the same name and as many versions, in a history of its own."""
    versions = len(lookup.open_log(long.store, NAME).versions)
    return grow.grow(tmp_path / "twin", 1, versions)


def test_a_push_among_many_versions_rewrites_the_bounded_index_file_alone(long: Home, twin: Home) -> None:
    published = long.make("3.0.0", name=NAME, seed="pushed")
    before, sealed = tree(twin), len(twin.state(NAME).segments)
    long.push(published.ref, twin.place)
    new, replaced = written(before, after := tree(twin))
    assert set(new) == blobs_of(twin, published, sealed)
    assert replaced == [index_path(NAME)]
    assert after[index_path(NAME)][2] < BOUND
    assert twin.resolve(NAME).located.entry.manifest == published.digest
    long.push(published.ref, twin.place)
    assert written(after, tree(twin)) == ([], [])
