"""What a registry costs as it grows: more models, more versions. Counted in files and bytes, never in seconds."""

import pytest
from support.registries import grow, owner
from support.registries.home import Home
from support.registries.opened import opened
from support.sampling import sampled

from onnxreg.registry.log.contents import Release, files
from onnxreg.registry.log.log import Log, load, open_log
from onnxreg.registry.search.catalogs import MODELS, LocalCatalog
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.schema.log.state import SEGMENT_LINES

pytestmark = pytest.mark.more
VERSIONS = 20
NAME = grow.model_name(0)
BOUND = 64 * 1024
"""Bytes of an index file: `SEGMENT_LINES` lines, as many versions, the summaries, and 100 bytes for each sealed segment."""
Files = dict[str, tuple[int, int, int]]


def grown(factory: pytest.TempPathFactory, models: int) -> Home:
    """Some of the models are whole."""
    return grow.grow(factory.mktemp("models") / "home", models, VERSIONS, [0, 1, models // 2, models - 1])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Home:
    return grown(tmp_path_factory, 10)


@pytest.fixture(scope="module", params=[100, pytest.param(10_000, marks=pytest.mark.large)])
def large(request, tmp_path_factory) -> Home:
    return grown(tmp_path_factory, request.param)


@pytest.fixture(scope="module", params=[150, pytest.param(5_000, marks=pytest.mark.large)])
def long(request, tmp_path_factory) -> Home:
    """One model of many versions."""
    return grow.grow(tmp_path_factory.mktemp("long") / "home", 1, request.param)


def cost(registry: Home, *words: str) -> list[tuple[str, int]]:
    """The files that a command opens in its registry and that are there, with their sizes; for a directory 0."""
    root = registry.store.root
    with opened(root) as found:
        assert registry.reg(*words) == 0
    there = [path for path in found if (root / path).exists()]
    return [(path, (root / path).stat().st_size if (root / path).is_file() else 0) for path in there]


@pytest.mark.parametrize(
    "words", sampled([("ls", NAME), ("show", NAME), ("resolve", NAME), ("resolve", f"{NAME}:stable")], 3)
)
def test_one_model_costs_the_same_among_ten_and_among_thousands(small, large, words):
    expected = cost(small, *words)
    assert cost(large, *words) == expected
    assert len(expected) == (3 if words[0] == "show" else 2)  # show reads the manifest too


def test_models_are_as_the_registry_itself_would_have_written_them(large):
    models = len(large.names())
    for name in map(grow.model_name, (0, 1, models // 2, models - 1)):
        assert not owner.verify(large, name).damages
        log = load(large.store, name)
        assert (
            Log.replay(log.lines(), large.id, name, log.fetch).encode() == large.tree.index(name).read_bytes()
        )


@pytest.mark.usefixtures("settled")
def test_a_question_over_all_models_opens_no_index_file_twice(large):
    (large.store.root / "local" / MODELS).unlink(missing_ok=True)
    names = large.names()
    for expected in (names, [], [NAME]):
        if expected == [NAME]:
            large.tag(f"{NAME}:1.19.0", "beta")
        with opened(large.store.root) as found:
            models = LocalCatalog(large.store).refresh().readable()
        assert [(model.name, model.versions) for model in models] == [(name, VERSIONS) for name in names]
        assert [path for path in found if path.startswith("index/") and path.endswith(".jsonl")] == [
            index_path(name) for name in expected
        ]
    assert models[0].channels["beta"] == "1.19.0"
    owner.untag(large, NAME, "beta")


@pytest.mark.parametrize("tag", ["", ":stable", ":newest"])
def test_resolving_among_many_versions_reads_an_index_file_and_a_checkpoint(long, tag, capfdbinary):
    """Of the newest version, by its number too, and of what a channel holds, however long ago it was published."""
    state = long.state(NAME)
    newest = state.newest_release()
    files = cost(long, "resolve", NAME + tag.replace("newest", str(newest)))
    assert state.checkpoint is not None
    assert [path for path, _ in files] == [blob_path(state.checkpoint), index_path(NAME), "registry.json"]
    assert files[1][1] < BOUND
    expected = state.channels["stable"].version if tag == ":stable" else newest
    assert capfdbinary.readouterr().out.startswith(f"{NAME}:{expected} ".encode())


def tree(registry: Home) -> Files:
    """Every file that others see, with what changes when it is written."""
    found = {}
    for path in registry.store.root.rglob("*"):
        place = path.relative_to(registry.store.root)
        if place.parts[0] != "local" and path.is_file():
            status = path.stat()
            found[str(place)] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def check_written(registry: Home, published: Release, before: Files, sealed: int) -> Files:
    """Only a version's blobs and the history sealed since are new; the index is bounded. Return all files."""
    after, state = tree(registry), registry.state(NAME)
    log = open_log(registry.store, NAME)
    needed = files(log, published.version, log.versions[published.version])
    blobs = {published.digest, *(item.digest for item in needed), *state.segments[sealed:]}
    if len(state.segments) > sealed and state.checkpoint is not None:
        blobs.add(state.checkpoint)
    paths = set(map(blob_path, blobs))
    assert before.keys() <= after.keys() and after.keys() - before.keys() == paths - before.keys()
    assert {path for path, seen in before.items() if after[path] != seen} - paths == {index_path(NAME)}
    assert after[index_path(NAME)][2] < BOUND
    return after


def test_a_new_version_among_many_rewrites_the_bounded_index_file_alone(long):
    """Long enough to come past a sealing: then a segment and a catalog are written too."""
    begun, there = len(long.state(NAME).segments), tree(long)
    for number in range(SEGMENT_LINES + 1):
        sealed = len(long.state(NAME).segments)
        there = check_written(long, long.make(name=NAME, seed=f"{number:03d}"), there, sealed)
    assert len(long.state(NAME).segments) > begun


def test_a_push_among_many_versions_rewrites_the_bounded_index_file_alone(long, tmp_path):
    """To another registry with a model of the same name and as many versions, in a history of its own."""
    twin = grow.grow(tmp_path / "twin", 1, len(open_log(long.store, NAME).versions))
    published = long.make("3.0.0", name=NAME, seed="pushed")
    before, sealed = tree(twin), len(twin.state(NAME).segments)
    long.push(published.ref, twin.place)
    after = check_written(twin, published, before, sealed)
    assert twin.resolve(NAME).located.entry.manifest == published.digest
    long.push(published.ref, twin.place)
    assert tree(twin) == after
