"""Every generated cell is in the registry's files; a person's words are shown as theirs; equal inputs give equal bytes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.dossier.audited import make_audited, release
from support.dossier.judge import Judge
from support.registries import memory, owner
from support.registries.gated import NAME, refusal
from support.registries.home import Home
from support.sampling import sampled
from support.trust.attack_operations import attack

from onnxreg.registry.dossier.dossier import Table, make_dossier, write_dossier
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.system import stamp, trust_file
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import GateError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Purge
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.signing.dsse import MEDIA_TYPE as DSSE

RULES = (Path(__file__).parents[3] / "docs" / "diff.md").read_text("utf-8")
ONE, STABLE = f"{NAME}:1.2.0", f"{NAME}:stable"
EU = "eu-annex-iv"
Json, Files = dict[str, Any], dict[str, bytes]


@dataclass(frozen=True)
class Audited:
    """A registry that tests only read, the key that the reader trusts, and another one."""

    registry: Home
    key: PrivateKey
    other: PrivateKey

    def dossier(self, ref: str = ONE, profile: str = "plain", facts: Path | None = None) -> Files:
        return made(self.registry.store, ref, profile, facts)

    def json(self, ref: str = ONE, profile: str = "plain") -> Json:
        return dict(json.loads(self.dossier(ref, profile)["dossier.json"]))

    def judge(self, dossier: Json) -> Judge:
        return Judge(dossier, self.registry.store.root, RULES)


def made(store: RegistryStore, ref: str, profile: str = "plain", facts: Path | None = None) -> Files:
    return make_dossier(store, Ref.parse(ref), profile, facts)


@pytest.fixture(scope="session")
def template(isolated_user, tmp_path_factory) -> Audited:
    key, other = generate("ed25519"), generate("ed25519")
    return Audited(make_audited(tmp_path_factory.mktemp("audited"), key, other), key, other)


@pytest.fixture
def audited(template) -> Audited:
    trust_file().parent.mkdir(parents=True, exist_ok=True)
    trust_file().write_text(f'[keys.release]\nkey = "{template.key.public}"\n')
    return template


@pytest.fixture
def copy(audited, tmp_path) -> Home:
    """A copy of the registry, to be changed."""
    return audited.registry.copied(tmp_path / "copy")


def fields(dossier: Json) -> list[Json]:
    return [field for section in dossier["sections"] for field in section["fields"]]


def tables(dossier: Json, label: str) -> list[Table]:
    """The tables of a field."""
    (found,) = [field.get("tables", []) for field in fields(dossier) if field["label"] == label]
    return list(found)


def rows(*found: Table) -> list[Json]:
    """The rows of tables, as columns and values."""
    return [
        dict(zip(table["columns"], (cell["value"] for cell in row), strict=True))
        for table in found
        for row in table["rows"]
    ]


@pytest.mark.parametrize("profile", sampled(["plain", EU], 2))
@pytest.mark.parametrize("ref", sampled(["1.2.0", "stable", "beta", "nightly", "1.0.0"], 5))
def test_every_cell_is_in_its_source(audited, profile, ref):
    checked, wrong = audited.judge(audited.json(f"{NAME}:{ref}", profile)).report()
    assert wrong == [] and checked > 100


def cells(dossier: Json) -> Iterator[tuple[Json, str | None, Json]]:
    """Every cell, its column, and the words of its row by column."""
    for table in (table for field in fields(dossier) for table in field.get("tables", [])):
        for row in table["rows"]:
            columns = table.get("columns", [])
            words = {column: cell["value"] for column, cell in zip(columns, row, strict=False)}
            yield from (
                (words, columns[at] if at < len(columns) else None, each) for at, each in enumerate(row)
            )


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case list():
            return [*value, "x"]
        case dict():
            return {**value, "x": 1}
        case _:
            return f"{value or ''}x"


def edits(cell: Json) -> Iterator[Json]:
    """A cell with another value, and with each part of its citations changed."""
    yield {**cell, "value": other(cell["value"])}
    for at, cite in enumerate(cell.get("sources", [])):
        for key in cite.keys() & {"blob", "digest", "line", "pointer", "value"}:
            changed = deepcopy(cell)
            is_digest = key in ("blob", "digest")
            flipped = (
                cite[key][:-1] + ("0" if cite[key][-1] != "0" else "1") if is_digest else other(cite[key])
            )
            changed["sources"][at][key] = flipped
            yield changed


@pytest.mark.parametrize("channel", sampled(["beta", "stable"], 2))
def test_an_edited_cell_is_noticed(audited, channel):
    """Also a severity that the rules decide."""
    dossier = audited.json(f"{NAME}:{channel}")
    judge, count, severities = audited.judge(dossier), 0, 0
    for words, column, cell in cells(dossier):
        judge.cell(cell, words)
        wrong = list(edits(cell))
        if column == "Severity" and "label" in words["Kind"]:
            wrong.append({**cell, "value": "degrading"})
            severities += 1
        for changed in wrong:
            with pytest.raises(Exception):  # noqa: B017
                judge.cell(changed, words | ({column: changed["value"]} if column else {}))
            count += 1
    assert count > 400 and (severities > 0) == (channel == "beta")


def test_cells_come_from_sealed_segments_too(audited):
    assert audited.registry.tree.state(NAME)["segments"]
    assert len(rows(*tables(audited.json(f"{NAME}:nightly"), "History of its channels"))) == 70


def test_the_history_of_a_channel(audited):
    dossier = audited.json(STABLE)
    assert dossier["subject"]["channels"] == ["stable"]
    moves, *details = tables(dossier, "History of its channels")
    history = rows(moves)
    assert [row["Version"] for row in history] == ["1.0.0", "1.1.0", "1.2.0"]
    assert {(row["By, as claimed"], row["Reason"], row["Signed by"]) for row in history} == {
        ("ada@<lab>", "<b>monthly</b>", "release")
    }
    assert [table["caption"] for table in details] == ["Findings"]
    lines = {row["Line"]: row["Version"] for row in history}
    assert {row["Line"]: row["Version"] for row in rows(*details)} == lines


def test_the_changes_since_the_version_published_before(audited):
    dossier = audited.json(f"{NAME}:1.1.0")
    changes = rows(*tables(dossier, "Changes since the version published before"))
    value = [row for row in changes if row["Kind"] == "check-value-changed" and "delta" in row["Place"]]
    assert [(row["Severity"], row["Before"], row["After"]) for row in value] == [("degrading", 0.002, 0.003)]
    assert "cosmetic" not in {row["Severity"] for row in changes}


def test_a_dropped_version_is_no_base_and_its_drop_is_listed(copy, tmp_path):
    before = copy.get(f"{NAME}:1.3.0").digest
    copy.add(release(tmp_path / "a", "a", labels=["AGE"]), "1.4.0")
    owner.drop(copy, f"{NAME}:1.4.0")
    owner.gc(copy)
    copy.add(release(tmp_path / "b", "b", labels=["AGE"]), "1.5.0")
    dossier = json.loads(made(copy.store, f"{NAME}:1.5.0")["dossier.json"])
    (changes,) = tables(dossier, "Changes since the version published before")
    cited = {source["blob"] for row in changes["rows"] for cell in row for source in cell.get("sources", ())}
    assert cited == {str(before), str(copy.get(f"{NAME}:1.5.0").digest)}
    withdrawn = [(row["Event"], row["Version"]) for row in rows(*tables(dossier, "Withdrawals"))]
    assert withdrawn[-1] == ("drop", "1.4.0")


@pytest.mark.parametrize("profile", ["plain", EU])
def test_a_refusal_of_the_same_bytes_in_another_version_is_listed(copy, tmp_path, profile):
    copy.add(release(tmp_path / "a", "0", license="MIT"), "1.4.0")
    assert copy.get(f"{NAME}:1.4.0").states["model_int8.onnx"].state == "refused"
    dossier = json.loads(made(copy.store, f"{NAME}:1.4.0", profile)["dossier.json"])
    assert [row["Verdict"] for row in rows(*tables(dossier, "Later evaluations"))] == ["refused"]


def test_an_evaluation_of_other_weights_of_the_graph_is_not_listed(copy, tmp_path):
    """As in gates: the digest of a graph with external data does not tell its weights."""
    for version in ("1.4.0", "1.5.0"):
        made_here = release(tmp_path / version, "e", description=version)
        (tmp_path / version / "data.bin").write_text(version)
        float32, int8 = made_here.artifacts
        int8 = replace(int8, sidecars=(DraftFile("external-data", "data.bin"),))
        copy.add(replace(made_here, artifacts=(float32, int8)), version)
    report = json.loads(refusal(copy, "1.4.0")) | {"state": "certified"}
    owner.attest(copy, f"{NAME}:1.4.0", json.dumps(report).encode())
    listed = [
        [row["Verdict"] for row in rows(*tables(json.loads(files["dossier.json"]), "Later evaluations"))]
        for files in (made(copy.store, f"{NAME}:1.4.0"), made(copy.store, f"{NAME}:1.5.0"))
    ]
    assert listed == [["certified"], []]


def test_without_a_channel_every_one_that_pointed_there(audited):
    assert audited.json(f"{NAME}:1.1.0")["subject"]["channels"] == ["nightly", "stable"]
    assert audited.json(f"{NAME}:1.3.0")["subject"]["channels"] == ["beta"]


def test_evidence_of_another_move_is_refused(copy):
    attack(copy, "evidence 1.2.0; move 1.3.0 policy=@policy evidence=@made")
    with pytest.raises(GateError, match="is that of another move"):
        made(copy.store, STABLE)


def test_a_channel_that_was_moved_by_hand_shows_no_findings(audited):
    moves, *details = tables(audited.json(f"{NAME}:nightly"), "History of its channels")
    assert "Evidence" not in moves["columns"] and not details


def test_signatures_name_the_keys_that_the_reader_trusts(audited):
    dossier = audited.json()
    signed = [row["Signed by"] for row in rows(*tables(dossier, "Signatures of the version"))]
    assert signed == ["release", f"unknown key {audited.other.public.id[:12]}"]
    assert dossier["keys"] == [{"name": "release", "key": str(audited.key.public)}]


@pytest.mark.parametrize(
    "data", [b"{}", b"not JSON", b'{"payloadType": "x", "payload": "%", "signatures": 7}']
)
def test_an_envelope_that_is_none_is_named_by_its_line(copy, data):
    copy.decisions().attest(Ref.parse(ONE), data, DSSE)
    message = rf"^line \d+ of the log of {NAME} has a signature that is wrong: ."
    with pytest.raises(IntegrityError, match=message):
        made(copy.store, ONE)


def test_a_wrong_signature_ends_it(audited, copy):
    signatures = rows(*tables(audited.json(), "Signatures of the version"))
    path = copy.tree.blob(signatures[0]["Envelope"])
    copy.tree.overwrite(path, path.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    with pytest.raises(IntegrityError):
        made(copy.store, ONE)


def test_a_version_that_was_taken_down_leaves_its_moves(copy):
    gone = copy.get(f"{NAME}:1.1.0").digest
    owner.untag(copy, NAME, "nightly")

    def take_down(ledger: Log) -> list[Digest]:
        ledger.append(Purge(**stamp(NAME), version=Version(1, 1, 0), manifest=gone, blobs=(gone,)))
        return []

    with copy.store.push() as push:
        commit(copy.store, push, NAME, take_down)
    copy.tree.blob(str(gone)).unlink()
    moves, *details = tables(json.loads(made(copy.store, STABLE)["dossier.json"]), "History of its channels")
    assert [row["Version"] for row in rows(moves)] == ["1.0.0", "1.1.0", "1.2.0"]
    assert {table["caption"] for table in details} == {"Findings"}
    with pytest.raises(NotFoundError):
        made(copy.store, f"{NAME}:1.1.0")


def test_nothing_of_a_version_is_made_up(audited):
    """A field without anything in the registry says so, and has no cell; a person's fields are not provided."""
    found = fields(audited.json(f"{NAME}:1.3.0", EU))
    assert len([field for field in found if "key" in field]) > 25
    for field in found:
        assert (field["origin"] == "generated") == bool(field.get("tables"))
        if field["origin"] == "absent" or "key" in field:
            assert field["text"] == ["not provided" if "key" in field else "not recorded"]


PROGRAM = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import make_dossier, write_dossier
from onnxreg.schema.core.ref import Ref

store = Registry(sys.argv[1], False).store
write_dossier(make_dossier(store, Ref.parse(sys.argv[2]), "eu-annex-iv"), Path(sys.argv[3]))
"""


@pytest.mark.more
def test_two_processes_write_the_same_bytes(audited, tmp_path):
    """They have other hash seeds, time zones, languages and working directories."""
    written = []
    for seed, zone, language in (("0", "UTC", "C"), ("1", "Asia/Tokyo", "C.UTF-8")):
        work = tmp_path / f"work{seed}"
        work.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": language}
        words = [sys.executable, "-c", PROGRAM, audited.registry.place, STABLE, str(work / "dossier")]
        subprocess.run(words, check=True, cwd=work, env=environment)
        written.append({path.name: path.read_bytes() for path in (work / "dossier").iterdir()})
    assert written[0] == written[1] == audited.dossier(STABLE, EU)


def test_a_mirror_gives_the_same_bytes(audited):
    copy = memory.remote(audited.registry.id, mirror=True)
    mirror(audited.registry.store, copy)
    assert made(copy, STABLE) == audited.dossier(STABLE)


def test_the_page_shows_each_value_and_source_and_runs_nothing(audited):
    dossier = audited.dossier(STABLE, EU)
    page = dossier["dossier.html"].decode()
    assert "&lt;b&gt;monthly&lt;/b&gt;" in page and "<b>" not in page and "<script" not in page
    assert "not legal advice" in page and "@page" in page
    for _, _, cell in cells(json.loads(dossier["dossier.json"])):
        assert all((cite.get("blob") or cite["digest"]) in page for cite in cell.get("sources", ()))


def test_a_profile_of_ones_own_needs_no_code(audited, tmp_path):
    profile = tmp_path / "ours.yaml"
    profile.write_text(
        "dossier: 1\nname: ours\ntitle: Ours\nsections:\n"
        "  - title: All\n    fields:\n"
        "      - {label: Licence, from: manifest, value: /license}\n"
        "      - {label: Sizes, from: manifest, rows: '/artifacts/*', columns: [[Number, '#'], [Bytes, size]]}\n"
        "      - {label: Lines, from: log, kinds: [publish], this: true, columns: [[Version, event/version]]}\n"
        "      - {label: Signer, owner: signer_of_ours}\n"
    )
    sizes = rows(*tables(audited.json(ONE, str(profile)), "Sizes"))
    own = audited.json(ONE, str(profile))
    assert rows(*tables(own, "Lines")) == [{"Version": ONE.rpartition(":")[2]}]
    assert sizes[0] == {"Number": "0", "Bytes": 54}
    assert audited.judge(audited.json(ONE, str(profile))).report()[1] == []
    with pytest.raises(InputError, match="no profile is called 'plein'"):
        audited.dossier(ONE, "plein")
    with pytest.raises(NotFoundError):
        audited.dossier(f"{NAME}:9.0.0")


@pytest.mark.more
def test_an_earlier_dossier_is_replaced_as_a_whole(audited, tmp_path):
    for _ in range(2):
        write_dossier(audited.dossier(), tmp_path / "dossier")
        assert {path.name for path in (tmp_path / "dossier").iterdir()} == set(audited.dossier())
        (tmp_path / "dossier" / "owner.yaml").write_text("of the earlier one")


def owner_file(tmp_path: Path, *statements: str, name: str = NAME) -> Path:
    (tmp_path / "owner.yaml").write_text(f"facts: 1\nname: {name}\nstatements:\n  " + "\n  ".join(statements))
    return tmp_path / "owner.yaml"


def test_the_words_of_the_owner_are_shown_as_theirs(audited, tmp_path):
    words = ("provider: Acme GmbH", "intended_purpose: [Find names., 'Not <b>for</b> diagnosis.']")
    dossier = audited.dossier(ONE, EU, owner_file(tmp_path, *words))
    found = [field for field in fields(json.loads(dossier["dossier.json"])) if field["origin"] == "owner"]
    texts = {"provider": ["Acme GmbH"], "intended_purpose": ["Find names.", "Not <b>for</b> diagnosis."]}
    assert {field["key"]: field["text"] for field in found} == texts
    assert not any("tables" in field for field in found)
    assert "Not &lt;b&gt;for&lt;/b&gt; diagnosis." in dossier["dossier.html"].decode()
    assert dossier["owner.yaml"].startswith(b"facts: 1")


@pytest.mark.parametrize(
    ("statements", "name", "message"),
    [
        (["providr: Acme"], NAME, "no profile has a field 'providr'"),
        (["provider: {a: 1}"], NAME, "statements.provider"),
        (["provider: a", "provider: b"], NAME, "occurs twice"),
        (["provider: a"], "acme/ner", "are about acme/ner"),
        (["provider: ["], NAME, "neither YAML nor JSON"),
    ],
)
def test_a_wrong_file_of_the_owner_is_refused(audited, tmp_path, statements, name, message):
    with pytest.raises(InputError, match=message):
        audited.dossier(ONE, "plain", owner_file(tmp_path, *statements, name=name))
    with pytest.raises(NotFoundError):
        audited.dossier(ONE, "plain", tmp_path / "none.yaml")
