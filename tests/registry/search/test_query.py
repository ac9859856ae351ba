"""Questions over all versions: the catalog answers what the manifests say, and reads each of them once."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow.parquet
import pytest
from support.registries import grow, owner
from support.registries.opened import opened

from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.search import catalog, table_export
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import MODELS as MODELS_FILE
from onnxreg.registry.search.catalogs import PIECES, LocalCatalog
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.schema.core.errors import HostError, InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import FIELDS, LABELLED

Row = dict[str, Any]
MODELS, VERSIONS = 4, 12
FIRST, SECOND = grow.model_name(0), grow.model_name(1)
OLD = "1.2.0"
"""A version that no index file summarises."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("query") / "home"
    return grow.grow(root, MODELS, VERSIONS, whole=range(MODELS)).store.root


@pytest.fixture
def home(template: Path, tmp_path: Path) -> DirectoryRegistry:
    """Four models of twelve versions; a copy of its own for each test."""
    return DirectoryRegistry.open(Path(shutil.copytree(template, tmp_path / "home")))


def tick() -> None:
    """Let the file system's clock, which may stand still for a hundredth of a second, go on."""
    time.sleep(0.03)


def ask(remote: DirectoryRegistry, text: str = "", pattern: str = "*") -> list[Row]:
    """What fits; nothing is damaged."""
    found, damages = told(remote, text, pattern)
    assert damages == []
    return found


def told(remote: DirectoryRegistry, text: str = "", pattern: str = "*") -> tuple[list[Row], list[str]]:
    return answers(LocalCatalog(remote).refresh(pattern, artifacts=True), text, pattern)


def answers(catalog: Catalog, text: str = "", pattern: str = "*") -> tuple[list[Row], list[str]]:
    rows = catalog.query(parse(text) if text else None, pattern)
    found = [{name: getattr(row, name) for name in FIELDS} for row in rows]
    return found, catalog.damages(pattern, artifacts=True)


def files(opened: list[str]) -> list[str]:
    """The index files and blobs among the paths that were opened."""
    return [path for path in opened if path.startswith(("index/", "blobs/")) and "." in path]


def truth(remote: DirectoryRegistry) -> list[Row]:
    """Every artifact, from the manifests, one by one, without summaries."""
    registry = Registry(remote.root)
    found = []
    for name in registry.names():
        log = lookup.open_log(remote, name)
        state, entries = log.state, log.versions
        channels = {tag: channel.version for tag, channel in state.channels.items()}
        releases = [v for v, entry in entries.items() if entry.usable and not v.pre]
        for version, entry in sorted(entries.items()):
            if entry.gone is None:
                manifest = registry.get(Ref(name, digest=entry.manifest)).manifest
                standing = {
                    "name": name,
                    "version": str(version),
                    "manifest": str(entry.manifest),
                    "channels": sorted(tag for tag, held in channels.items() if held == version),
                    "newest": version == max(releases, default=None),
                    "prerelease": bool(version.pre),
                    "yanked": entry.yanked,
                    "pinned": entry.pinned,
                    "task": manifest.task,
                    "family": manifest.family,
                    "license": manifest.license,
                    "profile": None,
                }
                artifacts = sorted(manifest.artifacts, key=lambda artifact: artifact.path)
                found += [standing | _artifact(artifact, manifest.files) for artifact in artifacts]
    return found


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
    }


def test_every_version_is_seen_in_order(home: DirectoryRegistry) -> None:
    found = ask(home)
    assert found == truth(home) == ask(home)
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
def test_an_expression_chooses(home: DirectoryRegistry, text: str) -> None:
    expected = [row for row in truth(home) if parse(text).matches(row)]
    assert 0 < len(expected) < len(ask(home))
    assert ask(home, text) == expected


def test_a_pattern_chooses_models_and_others_are_not_read(home: DirectoryRegistry) -> None:
    expected = [row for row in truth(home) if row["name"] == SECOND]
    with opened(home.root) as found:
        assert ask(home, "", "*/model-01") == expected
    first = {blob_path(entry.manifest) for entry in lookup.open_log(home, FIRST).versions.values()}
    assert first.isdisjoint(found)
    assert ask(home) == truth(home)


@pytest.mark.usefixtures("settled")
def test_manifests_of_old_versions_are_read_once(home: DirectoryRegistry) -> None:
    tick()
    with opened(home.root) as cold:
        expected = ask(home)
    manifests = {blob_path(entry.manifest) for entry in lookup.open_log(home, FIRST).versions.values()}
    assert 0 < len(manifests & set(cold)) <= VERSIONS
    with opened(home.root) as warm:
        assert ask(home) == expected
    assert files(warm) == []
    tick()
    Registry(home.root).yank(f"{FIRST}:{OLD}")
    with opened(home.root) as changed:
        found = ask(home)
    assert found == truth(home) != expected
    assert not [path for path in changed if path.startswith("blobs")]


CHANGES: dict[str, Callable[[DirectoryRegistry], object]] = {
    "a yank of the newest": lambda home: Registry(home.root).yank(f"{FIRST}:1.11.0"),
    "a pin": lambda home: owner.pin(Registry(home.root), f"{FIRST}:{OLD}"),
    "a channel": lambda home: Registry(home.root).tag(f"{FIRST}:{OLD}", "beta"),
    "a purge": lambda home: owner.purge(Registry(home.root), f"{FIRST}:{OLD}", "leaked"),
    "an expiry": lambda home: owner.gc(Registry(home.root), 3),
    "another model": lambda home: grow.add_model(Registry(home.root), 20, 7, True),
    "a model gone": lambda home: (home.root / index_path(SECOND)).unlink(),
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(home: DirectoryRegistry, change: str) -> None:
    tick()
    before = ask(home)
    tick()
    CHANGES[change](home)
    assert ask(home) == truth(home) != before


@pytest.mark.usefixtures("settled")
def test_a_change_while_manifests_are_read_is_noticed_the_next_time(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick()
    read = catalog.read_model
    before = truth(home)

    def late(reader: Any, name: str, **arguments: Any) -> Any:
        found = read(reader, name, **arguments)
        if name == FIRST:
            Registry(home.root).yank(f"{FIRST}:{OLD}")
        return found

    monkeypatch.setattr(catalog, "read_model", late)
    assert ask(home) == before
    monkeypatch.setattr(catalog, "read_model", read)
    assert ask(home) == truth(home) != before


def test_a_model_that_moves_on_while_its_manifests_are_read_is_read_again(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is dropped and collected in between, so that its manifest is gone."""
    registry = Registry(home.root)
    lost = lookup.find(home, Ref(FIRST, OLD)).entry.manifest
    read_blob = lookup.read_blob

    def late(source: Any, digest: Any, *more: Any) -> bytes:
        if digest == lost and OLD in map(str, lookup.open_log(home, FIRST).versions):
            owner.drop(registry, f"{FIRST}:{OLD}")
            owner.gc(registry)
        return read_blob(source, digest, *more)

    monkeypatch.setattr(lookup, "read_blob", late)
    found = Catalog(home.registry_id)
    found.update(home, [FIRST], artifacts=True)
    assert answers(found) == ([row for row in truth(home) if row["name"] == FIRST], [])
    assert OLD not in [row.version for row in found.query()]


@pytest.mark.usefixtures("settled")
def test_a_manifest_that_is_missing_is_named_and_looked_for_again(home: DirectoryRegistry) -> None:
    tick()
    expected = truth(home)
    lost = lookup.find(home, Ref(FIRST, OLD)).entry.manifest
    away = (home.root / blob_path(lost)).rename(home.root / "away")
    for _ in range(2):
        found, damages = told(home)
        assert found == [row for row in expected if row["manifest"] != str(lost)]
        (damage,) = damages
        assert f"{FIRST}:{OLD}: " in damage and lost.short in damage
    assert told(home, "", SECOND)[1] == []
    away.rename(home.root / blob_path(lost))
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
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_was_damaged_is_made_anew(home: DirectoryRegistry, damage: str, file: str) -> None:
    tick()
    expected = ask(home)
    path = home.root / "local" / file
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert ask(home) == expected
    with opened(home.root) as warm:
        assert ask(home) == expected
    assert files(warm) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_link_or_pipe_in_its_place_is_not_opened(home: DirectoryRegistry, tmp_path: Path) -> None:
    expected = ask(home)
    path = home.root / "local" / MODELS_FILE
    precious = path.rename(tmp_path / "precious").read_bytes()
    path.symlink_to(tmp_path / "precious")
    assert ask(home) == expected
    assert (tmp_path / "precious").read_bytes() == precious and not path.is_symlink()
    path.unlink()
    os.mkfifo(path)
    assert ask(home) == expected


@pytest.mark.usefixtures("settled")
def test_without_a_place_to_write_the_answer_comes_from_memory(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DirectoryRegistry, name: str, data: bytes) -> None:
        raise HostError("writing failed: Read-only file system")

    monkeypatch.setattr(DirectoryRegistry, "write_local", refuse)
    tick()
    assert ask(home) == truth(home)
    assert not (home.root / "local" / MODELS_FILE).exists()


def test_a_model_of_many_versions_is_in_pieces(
    home: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "PIECE_BYTES", 2000)
    found = Catalog(home.registry_id)
    found.update(home, artifacts=True)
    assert len(found.pieces[FIRST]) > 5
    again = Catalog.decode(found.model_lines(), home.registry_id)
    again.add_pieces(found.piece_lines())
    assert answers(again) == answers(found) == (truth(home), [])


ASKER = """
import sys
from pathlib import Path
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.search.catalogs import LocalCatalog
catalog = LocalCatalog(DirectoryRegistry.open(Path(sys.argv[1]))).refresh(artifacts=True)
print(len(catalog.readable()), len(list(catalog.query())), catalog.damages())
"""


def test_processes_that_update_at_once_all_answer(home: DirectoryRegistry) -> None:
    command = [sys.executable, "-c", ASKER, home.root]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    expected = f"{MODELS} {len(truth(home))} []\n"
    assert [process.communicate()[0] for process in running] == [expected] * 3
    assert ask(home) == truth(home)


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "where.json").read_text())


@pytest.mark.parametrize("text", [*VECTORS["true"], *VECTORS["unknown"]])
def test_an_artifact_of_the_catalog_answers_the_vectors(text: str) -> None:
    encoded = json.dumps([VECTORS["candidate"]]).encode()
    (artifact,) = msgspec.json.decode(encoded, type=list[catalog.Artifact])
    assert parse(text).matches(artifact) is (text in VECTORS["true"])


# Tables.


def _row(number: int) -> Row:
    known = {
        "name": f"acme/m{number}",
        "version": "1.0.0",
        "license": 'a, "b"\n',
        "channels": ["stable", "ä"][:number],
        "providers": [],
        "size": 2**40,
        "certified": True,
        "recall": {"PHONE": 0.5, "FIRST NAME": 1.0} if number else {},
        "min_recall": 0.5 if number else None,
        "metric": {"sts/spearman": 0.83, "sts/spearman/loss": -0.25} if number else {},
    }
    return dict.fromkeys(FIELDS) | known


SOME = [_row(number) for number in range(3)]


def test_a_parquet_file_is_typed_and_engines_read_it(tmp_path: Path) -> None:
    file = tmp_path / "all.parquet"
    assert table_export.write(file, iter(SOME)) == 3
    table = pyarrow.parquet.read_table(file)
    rows = [row | {name: dict(row[name]) for name in LABELLED} for row in table.to_pylist()]
    assert rows == SOME
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types) == list(FIELDS)
    assert (types["size"], types["certified"], types["version"]) == ("int64", "bool", "string")
    question = f"SELECT name, recall['PHONE'], metric['sts/spearman'], size FROM '{file}' WHERE list_contains(channels, 'ä')"
    assert duckdb.sql(question).fetchall() == [("acme/m2", 0.5, 0.83, 2**40)]


def test_lines_and_comma_separated_values_hold_the_same(tmp_path: Path) -> None:
    assert table_export.write(tmp_path / "all.jsonl", iter(SOME)) == 3
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == SOME
    assert table_export.write(tmp_path / "all.csv", iter(SOME)) == 3
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(FIELDS)
    for row, expected in zip(rows, SOME, strict=True):
        assert (row["name"], row["license"]) == (expected["name"], expected["license"])
        assert (row["certified"], row["family"], row["size"]) == ("true", "", str(2**40))
        assert json.loads(row["recall"]) == expected["recall"]
        assert json.loads(row["metric"]) == expected["metric"]
        assert json.loads(row["channels"]) == expected["channels"]


def test_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    for suffix in table_export.WRITERS:
        assert table_export.write(tmp_path / f"all{suffix}", iter([])) == 0
    assert pyarrow.parquet.read_table(tmp_path / "all.parquet").column_names == list(FIELDS)
    assert (tmp_path / "all.csv").read_text().strip() == ",".join(FIELDS)


@pytest.mark.parametrize("suffix", table_export.WRITERS)
def test_a_table_that_fails_leaves_the_one_before(tmp_path: Path, suffix: str) -> None:
    def broken() -> Iterator[Row]:
        yield SOME[0]
        raise ValueError("no more")

    file = tmp_path / f"all{suffix}"
    table_export.write(file, iter(SOME))
    before = file.read_bytes()
    with pytest.raises(ValueError, match="no more"):
        table_export.write(file, broken())
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_is_refused_before_the_work(home: DirectoryRegistry, tmp_path: Path) -> None:
    (tmp_path / "there.csv").mkdir()
    for file in (
        tmp_path / "all.xlsx",
        tmp_path / "nowhere" / "all.csv",
        tmp_path / "there.csv",
        home.root / "index" / "all.jsonl",
    ):
        with pytest.raises(InputError):
            table_export.check_file(file)
    table_export.check_file(tmp_path / "all.parquet")


def test_the_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HostError) as raised:
        table_export.check_file(tmp_path / "all.parquet")
    assert "pyarrow" in raised.value.message
    assert "[parquet]" in raised.value.hint
    table_export.check_file(tmp_path / "all.csv")
