"""Every generated cell is in the registry's files, whoever looks; and the same registry gives the same bytes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.dossier.judge import Judge
from support.registries import owner
from support.registries.gated import NAME
from support.sampling import sampled
from support.trust.attack_operations import attack

from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import Table, make_dossier, write_dossier
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.protocol import memory_remote
from onnxreg.registry.support.environment import stamp
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Purge
from onnxreg.schema.signing.dsse import MEDIA_TYPE as DSSE

from .conftest import Audited

REPOSITORY = Path(__file__).parents[3]
RULES = (REPOSITORY / "docs" / "diff.md").read_text("utf-8")
Cell = dict[str, Any]


def judged(audited: Audited, dossier: dict[str, Any]) -> tuple[int, list[str]]:
    return Judge(dossier, audited.registry.store.root, RULES).report()


def fields(dossier: dict[str, Any]) -> list[dict[str, Any]]:
    return [field for section in dossier["sections"] for field in section["fields"]]


def tables(dossier: dict[str, Any], label: str) -> list[Table]:
    """The tables of a field."""
    (found,) = [field.get("tables", []) for field in fields(dossier) if field["label"] == label]
    return list(found)


def rows(dossier: dict[str, Any], label: str) -> list[dict[str, Any]]:
    """The rows of a field's tables, as columns and values."""
    return [row for table in tables(dossier, label) for row in _rows(table)]


def _rows(table: Table) -> list[dict[str, Any]]:
    return [
        dict(zip(table["columns"], (cell["value"] for cell in row), strict=True)) for row in table["rows"]
    ]


@pytest.mark.parametrize("profile", sampled(["plain", "eu-annex-iv"], 2))
@pytest.mark.parametrize("ref", sampled(["1.2.0", "stable", "beta", "nightly", "1.0.0"], 5))
def test_every_cell_is_in_its_source(audited: Audited, profile: str, ref: str) -> None:
    made = audited.dossier(f"{NAME}:{ref}", profile)
    checked, wrong = judged(audited, json.loads(made.files["dossier.json"]))
    assert wrong == []
    assert checked > 100


def cells(dossier: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Cell]]:
    """Every cell with its row by column."""
    for section in dossier["sections"]:
        for table in (table for field in section["fields"] for table in field.get("tables", [])):
            for row in table["rows"]:
                yield from ((dict(zip(table.get("columns", []), row, strict=False)), cell) for cell in row)


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, "x"]
    return {**value, "x": 1} if isinstance(value, dict) else f"{value or ''}x"


def test_an_edited_value_is_noticed(audited: Audited) -> None:
    """Each cell in turn gets another value; of the whole document one cell is checked then."""
    original = json.loads(audited.dossier(f"{NAME}:stable").files["dossier.json"])
    judge = Judge(original, audited.registry.store.root, RULES)
    count = 0
    for row, cell in cells(original):
        words = {column: item["value"] for column, item in row.items()}
        changed = {**cell, "value": other(cell["value"])}
        column = next((column for column, item in row.items() if item is cell), None)
        judge.cell(cell, words)
        with pytest.raises(Exception):  # noqa: B017
            judge.cell(changed, {**words, **({column: changed["value"]} if column else {})})
        count += 1
    assert count > 150


def test_a_severity_that_the_rules_decide_cannot_be_edited(audited: Audited) -> None:
    original = json.loads(audited.dossier(f"{NAME}:beta").files["dossier.json"])
    judge = Judge(original, audited.registry.store.root, RULES)
    labels = [
        (row, cell)
        for row, cell in cells(original)
        if row.get("Severity") is cell and "label" in row["Kind"]["value"]
    ]
    assert labels
    for row, cell in labels:
        words = {column: item["value"] for column, item in row.items()} | {"Severity": "degrading"}
        with pytest.raises(AssertionError):
            judge.cell({**cell, "value": "degrading"}, words)


@pytest.mark.parametrize("key", ["blob", "digest", "line", "pointer", "value"])
def test_an_edited_citation_is_noticed(audited: Audited, key: str) -> None:
    original = json.loads(audited.dossier(f"{NAME}:stable").files["dossier.json"])
    judge, count = Judge(original, audited.registry.store.root, RULES), 0
    for row, cell in cells(original):
        words = {column: item["value"] for column, item in row.items()}
        for index in (i for i, cite in enumerate(cell.get("sources", [])) if key in cite):
            changed = deepcopy(cell)
            value = changed["sources"][index][key]
            changed["sources"][index][key] = (
                value[:-1] + ("0" if value[-1] != "0" else "1") if key in ("blob", "digest") else other(value)
            )
            with pytest.raises(Exception):  # noqa: B017
                judge.cell(changed, words)
            count += 1
    assert count > 50


def test_an_edited_registry_is_noticed(audited: Audited, tmp_path: Path) -> None:
    root = Path(shutil.copytree(audited.registry.store.root, tmp_path / "copy"))
    dossier = json.loads(audited.dossier(f"{NAME}:1.2.0").files["dossier.json"])
    digest = dossier["subject"]["manifest"].removeprefix("sha256:")
    blob = root / "blobs" / "sha256" / digest[:2] / digest
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes().replace(b"Apache-2.0", b"Apache-2.1"))
    _, wrong = Judge(dossier, root, RULES).report()
    assert any("Licence" in line for line in wrong)


def test_cells_come_from_sealed_segments_too(audited: Audited) -> None:
    index = audited.registry.store.root / "index" / f"{NAME}.jsonl"
    sealed = json.loads(index.read_bytes().split(b"\n")[0])["segments"]
    assert sealed
    assert len(rows(audited.dossier(f"{NAME}:nightly").dossier, "History of its channels")) == 70


def test_the_history_of_a_channel(audited: Audited) -> None:
    dossier = audited.dossier(f"{NAME}:stable").dossier
    assert dossier["subject"]["channels"] == ["stable"]
    moves, *details = tables(dossier, "History of its channels")
    history = _rows(moves)
    assert [row["Version"] for row in history] == ["1.0.0", "1.1.0", "1.2.0"]
    assert {(row["By, as claimed"], row["Reason"], row["Signed by"]) for row in history} == {
        ("ada@<lab>", "<b>monthly</b>", "release")
    }
    lines = {row["Line"]: row["Version"] for row in history}
    assert [table["caption"] for table in details] == ["Findings"]
    assert {row["Line"]: row["Version"] for row in _rows(details[0])} == lines


def test_the_changes_since_the_version_published_before(audited: Audited) -> None:
    changes = rows(audited.dossier(f"{NAME}:1.1.0").dossier, "Changes since the version published before")
    value = [row for row in changes if row["Kind"] == "check-value-changed" and "delta" in row["Place"]]
    assert [(row["Severity"], row["Before"], row["After"]) for row in value] == [("degrading", 0.002, 0.003)]
    assert "cosmetic" not in {row["Severity"] for row in changes}


def test_without_a_channel_every_one_that_pointed_there(audited: Audited) -> None:
    assert audited.dossier(f"{NAME}:1.1.0").dossier["subject"]["channels"] == ["nightly", "stable"]
    assert audited.dossier(f"{NAME}:1.3.0").dossier["subject"]["channels"] == ["beta"]


def test_evidence_of_another_move_is_refused(audited: Audited, tmp_path: Path) -> None:
    registry = Registry(shutil.copytree(audited.registry.store.root, tmp_path / "copy"))
    attack(registry, "evidence 1.2.0; move 1.3.0 policy=@policy evidence=@evidence")
    with pytest.raises(GateError, match="is that of another move"):
        make_dossier(registry.store, Ref.parse(f"{NAME}:stable"), "plain")


def test_a_channel_that_was_moved_by_hand_shows_no_findings(audited: Audited) -> None:
    moves, *details = tables(audited.dossier(f"{NAME}:nightly").dossier, "History of its channels")
    assert "Evidence" not in moves["columns"] and not details


def test_signatures_name_the_keys_that_the_reader_trusts(audited: Audited) -> None:
    dossier = audited.dossier(f"{NAME}:1.2.0").dossier
    signed = rows(dossier, "Signatures of the version")
    assert [row["Signed by"] for row in signed] == ["release", f"unknown key {audited.other.public.id[:12]}"]
    assert dossier["keys"] == [{"name": "release", "key": str(audited.key.public)}]


@pytest.mark.parametrize(
    "data", [b"{}", b"not JSON", b'{"payloadType": "x", "payload": "%", "signatures": 7}']
)
def test_an_envelope_that_is_none_is_named_by_its_line(audited: Audited, tmp_path: Path, data: bytes) -> None:
    with pytest.raises(
        IntegrityError, match=rf"^line \d+ of the log of {NAME} has a signature that is wrong: ."
    ):
        root = shutil.copytree(audited.registry.store.root, tmp_path / "home", symlinks=True)
        store = Registry(root).store
        Decisions(store).attest(Ref.parse(f"{NAME}:1.2.0"), data, DSSE)
        make_dossier(store, Ref.parse(f"{NAME}:1.2.0"), "plain")


def test_a_wrong_signature_ends_it(audited: Audited, tmp_path: Path) -> None:
    registry = Registry(shutil.copytree(audited.registry.store.root, tmp_path / "copy"))
    envelope = rows(audited.dossier(f"{NAME}:1.2.0").dossier, "Signatures of the version")[0]["Envelope"]
    hexed = envelope.removeprefix("sha256:")
    path = registry.store.root / "blobs" / "sha256" / hexed[:2] / hexed
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    with pytest.raises(IntegrityError):
        make_dossier(registry.store, Ref.parse(f"{NAME}:1.2.0"), "plain")


def test_a_version_that_was_taken_down_leaves_its_moves(audited: Audited, tmp_path: Path) -> None:
    registry = Registry(shutil.copytree(audited.registry.store.root, tmp_path / "copy"))
    gone = registry.get(f"{NAME}:1.1.0").digest
    owner.untag(registry, NAME, "nightly")
    purge = Purge(**stamp(NAME), version=Version(1, 1, 0), manifest=gone, blobs=(gone,))

    def take_down(ledger: Log) -> list[Digest]:
        ledger.append(purge)
        return []

    with registry.store.push() as push:
        commit(registry.store, push, NAME, take_down)
    (registry.store.root / blob_path(gone)).unlink()
    dossier = make_dossier(registry.store, Ref.parse(f"{NAME}:stable"), "plain").dossier
    moves, *details = tables(dossier, "History of its channels")
    assert [row["Version"] for row in _rows(moves)] == ["1.0.0", "1.1.0", "1.2.0"]
    assert {table["caption"] for table in details} == {"Findings"}
    with pytest.raises(NotFoundError):
        make_dossier(registry.store, Ref.parse(f"{NAME}:1.1.0"), "plain")


def test_nothing_of_a_version_is_made_up(audited: Audited) -> None:
    """A field without anything in the registry says so, and has no cell."""
    for field in fields(audited.dossier(f"{NAME}:1.3.0", "eu-annex-iv").dossier):
        assert (field["origin"] == "generated") == bool(field.get("tables"))
        if field["origin"] == "absent":
            assert field["text"] == (("not provided",) if "key" in field else ("not recorded",))


PROGRAM = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import make_dossier, write_dossier
from onnxreg.schema.core.ref import Ref

write_dossier(make_dossier(Registry(sys.argv[1], False).store, Ref.parse(sys.argv[2]), "eu-annex-iv"), Path(sys.argv[3]))
"""


@pytest.mark.more
def test_two_processes_write_the_same_bytes(audited: Audited, tmp_path: Path) -> None:
    """They have other hash seeds, time zones, languages and working directories."""
    written = []
    for number in range(2):
        work = tmp_path / f"work{number}"
        work.mkdir()
        zones = {
            "PYTHONHASHSEED": str(number),
            "TZ": ("UTC", "Asia/Tokyo")[number],
            "LC_ALL": ("C", "C.UTF-8")[number],
        }
        target = work / "dossier"
        words = ("-c", PROGRAM, audited.registry.store.root, f"{NAME}:stable", target)
        subprocess.run([sys.executable, *map(str, words)], check=True, cwd=work, env={**os.environ, **zones})
        written.append({path.name: path.read_bytes() for path in target.iterdir()})
    assert written[0] == written[1]
    assert written[0] == dict(audited.dossier(f"{NAME}:stable", "eu-annex-iv").files)


def test_a_mirror_gives_the_same_bytes(audited: Audited) -> None:
    copy = memory_remote(audited.registry.id, mirror=True)
    mirror(audited.registry.store, copy)
    elsewhere = make_dossier(copy, Ref.parse(f"{NAME}:stable"), "plain")
    assert dict(elsewhere.files) == dict(audited.dossier(f"{NAME}:stable").files)


def test_the_page_shows_each_value_and_source_and_runs_nothing(audited: Audited) -> None:
    made = audited.dossier(f"{NAME}:stable", "eu-annex-iv")
    page = made.files["dossier.html"].decode()
    assert "&lt;b&gt;monthly&lt;/b&gt;" in page and "<b>" not in page and "<script" not in page
    assert "not legal advice" in page and "@page" in page
    for _, cell in cells(made.dossier):
        assert all((cite.get("blob") or cite["digest"]) in page for cite in cell.get("sources", ()))


def test_a_profile_of_ones_own_needs_no_code(audited: Audited, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "dossier: 1\nname: ours\ntitle: Ours\nsections:\n"
        "  - title: All\n    fields:\n"
        "      - {label: Licence, from: manifest, value: /license}\n"
        "      - {label: Sizes, from: manifest, rows: '/artifacts/*', columns: [[Number, '#'], [Bytes, size]]}\n"
        "      - {label: Signer, owner: signer_of_ours}\n"
    )
    made = audited.dossier(f"{NAME}:1.2.0", str(tmp_path / "ours.yaml"))
    assert rows(made.dossier, "Sizes")[0] == {"Number": "0", "Bytes": 54}
    assert judged(audited, json.loads(made.files["dossier.json"]))[1] == []
    with pytest.raises(InputError, match="no profile is called 'plein'"):
        audited.dossier(f"{NAME}:1.2.0", "plein")
    with pytest.raises(NotFoundError):
        audited.dossier(f"{NAME}:9.0.0")


@pytest.mark.more
def test_an_earlier_dossier_is_replaced_as_a_whole(audited: Audited, tmp_path: Path) -> None:
    target = tmp_path / "dossier"
    write_dossier(audited.dossier(f"{NAME}:1.2.0"), target)
    (target / "owner.yaml").write_text("of the earlier one")
    write_dossier(audited.dossier(f"{NAME}:1.2.0"), target)
    assert {path.name for path in target.iterdir()} == set(audited.dossier(f"{NAME}:1.2.0").files)
