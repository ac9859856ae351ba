"""The catalog of a directory says what index files and manifests say, whatever happened to them, and reads each once."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.registries import grow, owner
from support.registries.home import Home
from support.registries.opened import opened
from support.sampling import sampled

from onnxreg.registry.log.log import find, open_log
from onnxreg.registry.search import catalog
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import MODELS as MODELS_FILE
from onnxreg.registry.search.catalogs import PIECES, LocalCatalog
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.schema.core import files
from onnxreg.schema.core.errors import HostError, RegError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import FIELDS

Row = dict[str, Any]
MODELS, VERSIONS = 4, 12
FIRST, SECOND = grow.model_name(0), grow.model_name(1)
OLD, NEW = "1.2.0", "1.11.0"
"""A version that no index file summarises, and the newest."""


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Home:
    return grow.grow(tmp_path_factory.mktemp("catalog") / "home", MODELS, VERSIONS, whole=range(MODELS))


@pytest.fixture
def home(template, tmp_path) -> Home:
    """Four models of twelve versions; a copy of its own for each test."""
    return template.copied(tmp_path / "home")


def tick() -> None:
    """Let the file system's clock, which may stand still for a hundredth of a second, go on."""
    time.sleep(0.03)


Answer = tuple[list[Row], list[Row], list[str]]
"""The models, the artifacts of all versions, and the damages."""


def answers(found: Catalog, text: str = "", pattern: str = "*") -> Answer:
    rows = [
        {name: getattr(row, name) for name in FIELDS}
        for row in found.query(parse(text) if text else None, pattern)
    ]
    damages = [damage.partition(" in ")[0] for damage in found.damages(pattern, artifacts=True)]
    return [model.to_json() for model in found.readable(pattern)], rows, damages


def ask(home: Home, text: str = "", pattern: str = "*") -> Answer:
    return answers(LocalCatalog(home.store).refresh(pattern, artifacts=True), text, pattern)


def rows(home: Home, text: str = "", pattern: str = "*") -> list[Row]:
    """The artifacts that fit; nothing is damaged."""
    _, found, damages = ask(home, text, pattern)
    assert damages == []
    return found


@cache
def decoded(data: bytes) -> Manifest:
    return Manifest.decode(data)


def truth(home: Home) -> Answer:
    """The same from the index files and manifests, one by one, without summaries."""
    models, found, damages = [], [], []
    for name in home.store.names():
        try:
            log = open_log(home.store, name)
            state, entries = log.state, log.versions
        except RegError as damage:
            damages.append(damage.message.partition(" in ")[0])
            continue
        channels = {tag: channel.version for tag, channel in sorted(state.channels.items())}
        newest = max((v for v, entry in entries.items() if entry.usable and not v.pre), default=None)
        models.append(
            {
                "name": name,
                "versions": len(entries),
                "newest": newest and str(newest),
                "channels": {tag: str(version) for tag, version in channels.items()},
            }
        )
        for version, entry in sorted(entries.items()):
            if entry.gone is None:
                manifest = decoded((home.store.root / blob_path(entry.manifest)).read_bytes())
                about = {
                    "name": name,
                    "version": str(version),
                    "manifest": str(entry.manifest),
                    "channels": sorted(tag for tag, held in channels.items() if held == version),
                    "newest": version == newest,
                    "prerelease": bool(version.pre),
                    "yanked": entry.yanked,
                    "pinned": entry.pinned,
                    "profile": None,
                    **{key: getattr(manifest, key) for key in ("task", "family", "license")},
                }
                artifacts = sorted(manifest.artifacts, key=lambda artifact: artifact.path)
                found += [about | _artifact(artifact, manifest.files) for artifact in artifacts]
    return models, found, damages


def _artifact(artifact: Any, shared: Any) -> Row:
    files = [artifact, *artifact.files, *shared]
    recall = {check.name[17:]: check.value for check in artifact.checks if "character_recall/" in check.name}
    return {
        **{name: getattr(artifact, name) for name in ("format", "precision", "path", "size", "ort_format")},
        "digest": str(artifact.digest),
        "download_size": sum({file.digest: file.size for file in files}.values()),
        "state": artifact.certification.state,
        "certified": artifact.certification.state == "certified",
        "opset": artifact.metadata.opset,
        "providers": list(artifact.metadata.execution_providers),
        "recall": recall,
        "min_recall": min(recall.values()) if recall else None,
        "metric": {check.name: check.value for check in artifact.checks if check.dataset is not None},
        "latency": None,
    }


def test_every_version_is_seen_in_order(home):
    assert ask(home) == truth(home) == ask(home)
    found = rows(home)
    assert len({(row["name"], row["version"]) for row in found}) == MODELS * VERSIONS
    assert [list(row) for row in found] == [list(FIELDS)] * len(found)
    order = [(row["name"], Version.parse(row["version"]).precedence, row["path"]) for row in found]
    assert order == sorted(order)


@pytest.mark.parametrize(
    "text",
    [
        "certified",
        "format in (onnx-int8, ort-android) and version < 1.10.0 and version >= 1.9.0",
        "recall.NAME >= 0.9 and not yanked",
        "'stable' in channels or newest",
        "name ~ '*-02' and opset = 17",
        "not min_recall > 0.1",
    ],
)
def test_an_expression_chooses(home, text):
    every = truth(home)[1]
    expected = [row for row in every if parse(text).matches(row)]
    assert 0 < len(expected) < len(every)
    assert rows(home, text) == expected


def test_a_pattern_chooses_models_and_others_are_not_read(home):
    expected = [row for row in truth(home)[1] if row["name"] == SECOND]
    with opened(home.store.root) as found:
        assert rows(home, "", "*/model-01") == expected
    first = {blob_path(entry.manifest) for entry in open_log(home.store, FIRST).versions.values()}
    assert first.isdisjoint(found)
    assert [model["name"] for model in ask(home, pattern="*/model-0[13]")[0]] == [SECOND, grow.model_name(3)]
    assert ask(home) == truth(home)


def read(paths: list[str]) -> list[str]:
    """The index files and blobs among the paths that were opened."""
    return [path for path in paths if path.startswith(("index/", "blobs/")) and "." in path]


@pytest.mark.usefixtures("settled")
def test_each_file_is_read_once_and_then_only_what_changed(home):
    tick()
    with opened(home.store.root) as cold:
        before = ask(home)
    manifests = {blob_path(entry.manifest) for entry in open_log(home.store, FIRST).versions.values()}
    assert 0 < len(manifests & set(cold)) <= VERSIONS
    with opened(home.store.root) as warm:
        assert ask(home) == before
    assert read(warm) == []
    tick()
    home.yank(f"{FIRST}:{OLD}")
    with opened(home.store.root) as changed:
        after = ask(home)
    assert after == truth(home) != before
    assert read(changed) == [index_path(FIRST)]
    assert not [path for path in changed if path.startswith("blobs")]


def _replace_by(home: Home, name: str, other: str) -> None:
    """Another model's history under this name, as a stranger might put it there."""
    (home.store.root / "next").write_bytes(home.tree.index(other).read_bytes())
    (home.store.root / "next").replace(home.tree.index(name))


def _keeping_times(home: Home) -> None:
    """A restore that gives back size and time of modification of what it replaces, as `rsync --times` does."""
    file = home.tree.index(FIRST)
    before, above = file.stat(), file.parent.stat()
    owner.untag(home, FIRST, "stable")
    file.write_bytes(file.read_bytes()[: before.st_size].ljust(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(file.parent, ns=(above.st_atime_ns, above.st_mtime_ns))


def _copied_over(home: Home) -> None:
    """An older copy of the whole tree is written over it, into the same files."""
    old = home.copied("old").store.root
    home.yank(f"{FIRST}:{NEW}")
    ask(home)
    tick()
    for path in (old / "index").rglob("*.jsonl"):
        (home.store.root / path.relative_to(old)).write_bytes(path.read_bytes())


def _new_organisation(home: Home) -> None:
    (home.store.root / "index" / "zoo").mkdir()
    _replace_by(home, "zoo/cat", FIRST)
    ask(home)
    tick()
    home.tree.index("zoo/cat").unlink()


def _cut(home: Home) -> None:
    os.truncate(home.tree.index(FIRST), 3000)
    home.tree.index(FIRST).rename(home.store.root / "moved")
    (home.store.root / "moved").rename(home.tree.index(FIRST))


def _link(home: Home) -> None:
    home.tree.index(FIRST).rename(home.tree.index(FIRST).with_name("elsewhere"))
    home.tree.index(FIRST).symlink_to("elsewhere")


CHANGES: dict[str, Callable[[Home], object]] = {
    "nothing": lambda home: None,
    "a yank": lambda home: home.yank(f"{FIRST}:{NEW}"),
    "a pin": lambda home: owner.pin(home, f"{FIRST}:{OLD}"),
    "a channel": lambda home: home.tag(f"{FIRST}:{OLD}", "beta"),
    "a channel taken away": lambda home: owner.untag(home, FIRST, "stable"),
    "a drop": lambda home: owner.drop(home, f"{FIRST}:{NEW}"),
    "a purge": lambda home: owner.purge(home, f"{FIRST}:{OLD}", "leaked"),
    "an expiry": lambda home: owner.gc(home, 3),
    "a model of a new organisation": lambda home: grow.add_model(home, 100, 3, True),
    "another model": lambda home: grow.add_model(home, 20, 7, True),
    "a model of a pre-release alone": lambda home: home.make("1.0.0-rc.1", name="acme/early"),
    "a model gone": lambda home: home.tree.index(SECOND).unlink(),
    "an organisation gone": lambda home: shutil.rmtree(home.store.root / "index" / "org-000"),
    "everything gone": lambda home: shutil.rmtree(home.store.root / "index"),
    "a model and its organisation gone": _new_organisation,
    "two models in place of each other": lambda home: _replace_by(home, FIRST, SECOND),
    "a cut": _cut,
    "a link": _link,
    "times kept": _keeping_times,
    "a copy over it": _copied_over,
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", sampled(CHANGES, 2))
def test_every_change_is_noticed(home, change):
    tick()
    ask(home)
    tick()
    CHANGES[change](home)
    assert ask(home) == truth(home) == ask(home)


@pytest.mark.parametrize("tick_length, noticed", [(2 * 10**9, True), (0, False)])
def test_a_change_within_one_tick_of_the_clock_is_noticed(home, monkeypatch, tick_length, noticed):
    """On a clock so coarse that nothing tells the file from the one before; without the wait it is missed."""
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", tick_length)
    monkeypatch.setattr(files.FileState, "__str__", lambda self: "the same")
    tick()
    ask(home)
    home.yank(f"{FIRST}:{NEW}")
    assert (ask(home) == truth(home)) == noticed


@pytest.mark.usefixtures("settled")
def test_a_change_while_manifests_are_read_is_noticed_the_next_time(home, monkeypatch):
    tick()
    read_model, before = catalog.read_model, truth(home)

    def late(reader: Any, name: str, **arguments: Any) -> Any:
        found = read_model(reader, name, **arguments)
        if name == FIRST:
            home.yank(f"{FIRST}:{OLD}")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "read_model", late)
        assert ask(home) == before
    assert ask(home) == truth(home) != before


def test_a_model_that_moves_on_while_its_manifests_are_read_is_read_again(home, monkeypatch):
    """A version is dropped and collected in between, so that its manifest is gone."""
    lost = find(home.store, Ref(FIRST, OLD)).entry.manifest
    read_blob = catalog.read_blob

    def late(source: Any, digest: Any, *more: Any) -> bytes:
        if digest == lost and OLD in map(str, open_log(home.store, FIRST).versions):
            owner.drop(home, f"{FIRST}:{OLD}")
            owner.gc(home)
        return read_blob(source, digest, *more)

    monkeypatch.setattr(catalog, "read_blob", late)
    found = Catalog(home.id)
    found.update(home.store, artifacts=True)
    assert answers(found) == truth(home)
    assert OLD not in [row.version for row in found.query(None, FIRST)]


@pytest.mark.usefixtures("settled")
def test_a_manifest_that_is_missing_is_named_and_looked_for_again(home):
    tick()
    expected = truth(home)
    lost = find(home.store, Ref(FIRST, OLD)).entry.manifest
    away = home.store.blob_path(lost).rename(home.store.root / "away")
    for _ in range(2):
        _, found, damages = ask(home)
        assert found == [row for row in expected[1] if row["manifest"] != str(lost)]
        (damage,) = damages
        assert f"{FIRST}:{OLD}: " in damage and lost.short in damage
    assert ask(home, "", SECOND)[2] == []
    away.rename(home.store.blob_path(lost))
    assert ask(home) == expected


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "deleted": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no lines": lambda data: b"not JSON" * 1000,
    "another registry": lambda data: data.replace(b'"registry":"', b'"registry":"0', 1),
    "another format": lambda data: data.replace(b'"format_version":1', b'"format_version":2'),
    "zeros at its end": lambda data: data[:-500] + bytes(500),
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("file", [MODELS_FILE, PIECES])
@pytest.mark.parametrize("damage", sampled(DAMAGES, 2))
def test_a_file_that_was_damaged_is_made_anew(home, damage, file):
    tick()
    expected = ask(home)
    path = home.store.root / "local" / file
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert ask(home) == expected
    with opened(home.store.root) as warm:
        assert ask(home) == expected
    assert read(warm) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_link_or_pipe_in_its_place_is_not_opened(home, tmp_path):
    expected = ask(home)
    path = home.store.root / "local" / MODELS_FILE
    precious = path.rename(tmp_path / "precious").read_bytes()
    path.symlink_to(tmp_path / "precious")
    assert ask(home) == expected
    assert (tmp_path / "precious").read_bytes() == precious and not path.is_symlink()
    path.unlink()
    os.mkfifo(path)
    assert ask(home) == expected


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("obstacle", ["a read-only file system", "a file in the place of its directory"])
def test_without_a_place_to_write_the_answer_comes_from_memory(home, monkeypatch, obstacle):
    def refuse(self: DirectoryRegistry, name: str, data: bytes) -> None:
        raise HostError("writing failed: Read-only file system")

    expected = truth(home)
    if obstacle == "a read-only file system":
        monkeypatch.setattr(DirectoryRegistry, "write_file", refuse)
    else:
        shutil.rmtree(home.store.root / "local")
        (home.store.root / "local").write_bytes(b"")
    tick()
    assert ask(home) == expected
    assert not (home.store.root / "local" / MODELS_FILE).exists()


def test_a_model_of_many_versions_is_in_pieces(home, monkeypatch):
    monkeypatch.setattr(catalog, "PIECE_BYTES", 2000)
    found = Catalog(home.id)
    found.update(home.store, artifacts=True)
    assert len(found.pieces[FIRST]) > 5
    again = Catalog.decode(found.model_lines(), home.id)
    again.add_pieces(found.piece_lines())
    assert answers(again) == answers(found) == truth(home)


def test_the_words_of_models_are_read_once(home):
    found = LocalCatalog(home.store).refresh()
    for is_first in (True, False):
        with opened(home.store.root) as files:
            models, total = catalog.find_models(found, home.store, "token-classification", FIRST, 2)
        assert ([model.name for model in models], total) == ([SECOND, grow.model_name(2)], MODELS)
        assert bool(read(files)) == is_first


ASKER = """
import sys
from pathlib import Path
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.search.catalogs import LocalCatalog
catalog = LocalCatalog(DirectoryRegistry.open(Path(sys.argv[1]))).refresh(artifacts=True)
print(len(catalog.readable()), len(list(catalog.query())), catalog.damages())
"""


def test_processes_that_update_at_once_all_answer(home):
    command = [sys.executable, "-c", ASKER, home.place]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    expected = f"{MODELS} {len(truth(home)[1])} []\n"
    assert [process.communicate()[0] for process in running] == [expected] * 2
    assert ask(home) == truth(home)


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "where.json").read_text())


def test_an_artifact_of_the_catalog_answers_the_vectors():
    encoded = json.dumps([VECTORS["candidate"]]).encode()
    (artifact,) = msgspec.json.decode(encoded, type=list[catalog.Artifact])
    for text in (*VECTORS["true"], *VECTORS["unknown"]):
        assert parse(text).matches(artifact) is (text in VECTORS["true"]), text
