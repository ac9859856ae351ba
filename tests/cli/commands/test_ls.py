"""`reg ls` with patterns and filters, and over a registry so large that the search index answers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.cli.reports import search_report
from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import MODELS
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

Reg = Callable[..., Any]


def certified(root: Path) -> Draft:
    """One artifact of full precision, and one derived from it that passed its evaluation."""
    root.mkdir()
    for name in ("model.onnx", "model_int8.onnx", "report.json"):
        (root / name).write_text(name)
    verdict = Verdict("certified", "G4/point", (), Digest.of(b"suite"), "report.json")
    return Draft(
        "acme/sure",
        root,
        (
            DraftArtifact("onnx", "float32", "model.onnx"),
            DraftArtifact("onnx-int8", "int8", "model_int8.onnx", parent="model.onnx", verdict=verdict),
        ),
        (DraftFile("report", "report.json"),),
        {"source": {"id": "acme/base", "digest": str(Digest.of(b"base"))}},
    )


@pytest.fixture(scope="module")
def larger(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The usual registry and a model of three versions: certified, not evaluated, a certified pre-release."""
    root = tmp_path_factory.mktemp("larger")
    registry = Registry(shutil.copytree(template, root / "home"))
    registry.add(certified(root / "w1"), "1.0.0")
    draft = certified(root / "w2")
    registry.add(Draft(draft.name, draft.root, draft.artifacts[:1]), "1.1.0")
    registry.add(certified(root / "w3"), "2.0.0-rc.1")
    return registry.store.root


@pytest.fixture
def shop(larger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = Path(shutil.copytree(larger, tmp_path / "shop"))
    monkeypatch.setenv("REG_HOME", str(root))
    return root


def listed(reg: Reg, *words: str) -> dict[str, tuple[str, list[str]]]:
    done = reg("ls", *words, "--json")
    assert (done.status, done.err) == (0, "")
    return {
        model["name"]: (model["version"], [artifact["path"] for artifact in model["artifacts"]])
        for model in done.json["models"]
    }


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--certified"], {"acme/sure": ("1.0.0", ["model_int8.onnx"])}),
        (["--format", "onnx"], {"acme/sure": ("1.1.0", ["model.onnx"])}),
        (
            ["--format", "onnx-int8"],
            {
                "acme/pii": ("0.2.0", ["model_int8.onnx"]),
                "acme/sure": ("1.0.0", ["model_int8.onnx"]),
                "tiny": ("0.1.0", ["model_int8.onnx"]),
            },
        ),
        (["--format", "onnx", "--format", "ort", "--precision", "int8"], {}),
        (["--format", "onnx", "--format", "onnx-int8"], None),
        (["acme/*", "--precision", "float32"], None),
        (["tin?", "--precision", "float32"], {"tiny": ("0.1.0", ["model.onnx"])}),
        (["acme/sure", "--format=onnx-int8"], {"acme/sure": ("1.0.0", ["model_int8.onnx"])}),
        (["acme/pii", "--certified"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("shop")
def test_filters_choose_the_newest_release_that_has_such_an_artifact(
    reg: Reg, words: list[str], expected: dict[str, tuple[str, list[str]]] | None
) -> None:
    found = listed(reg, *words)
    if expected is None:
        assert set(found) == {
            name for name in ("acme/pii", "acme/sure", "tiny") if name != "tiny" or "/" not in words[0]
        }
        assert found["acme/sure"][0] == "1.1.0"
    else:
        assert found == expected


@pytest.mark.usefixtures("shop")
def test_a_yanked_version_gives_way_to_the_one_before(reg: Reg) -> None:
    assert listed(reg, "acme/pii", "--format", "onnx-int8")["acme/pii"][0] == "0.2.0"
    assert reg("yank", "acme/pii:0.2.0").status == 0
    assert listed(reg, "acme/pii", "--format", "onnx-int8")["acme/pii"][0] == "0.1.0"


@pytest.mark.usefixtures("shop")
def test_the_json_of_a_match_is_as_documented(reg: Reg) -> None:
    (model,) = reg("ls", "--certified", "--json").json["models"]
    (artifact,) = model.pop("artifacts")
    resolved = reg("resolve", "acme/sure:1.0.0", "--format", "onnx-int8", "--json").json
    assert resolved["size"] > artifact["size"]
    assert artifact == {**resolved["artifact"], "download_size": resolved["size"]}
    assert model == {
        "name": "acme/sure",
        "versions": 3,
        "newest": "1.1.0",
        "channels": {},
        "version": "1.0.0",
        "manifest": resolved["manifest"],
    }


@pytest.mark.usefixtures("shop")
def test_a_person_sees_a_table_or_a_sentence(reg: Reg) -> None:
    header, row = reg("ls", "--certified").out.splitlines()
    assert header.split() == ["NAME", "VERSION", "ARTIFACT", "FORMAT", "PRECISION", "SIZE", "CERTIFICATION"]
    assert row.split() == [
        "acme/sure",
        "1.0.0",
        "model_int8.onnx",
        "onnx-int8",
        "int8",
        "15",
        "B",
        "certified",
    ]
    assert reg("ls", "--format", "nothing").out == "no release has such an artifact\n"
    assert reg("ls", "z*").out.endswith("is called z*\n")
    assert reg("ls", "z*", "--json").json == {"models": []}


@pytest.mark.usefixtures("shop")
def test_a_pattern_lists_models(reg: Reg) -> None:
    assert [model["name"] for model in reg("ls", "acme/*", "--json").json["models"]] == [
        "acme/pii",
        "acme/sure",
    ]
    assert [model["name"] for model in reg("ls", "*[iy]", "--json").json["models"]] == ["acme/pii", "tiny"]


@pytest.mark.parametrize("words", [["nobody"], ["nobody", "--certified"], ["Not a name", "--certified"]])
@pytest.mark.usefixtures("shop")
def test_an_exact_name_must_be_there(reg: Reg, words: list[str]) -> None:
    done = reg("ls", *words)
    assert (done.status, done.out) == (2 if " " in words[0] else 3, "")


@pytest.mark.parametrize("words", [[], ["--json"], ["--certified"], ["--certified", "--json"]], ids=" ".join)
def test_damage_is_named_after_the_others_are_listed(reg: Reg, shop: Path, words: list[str]) -> None:
    (shop / "index" / "tiny.jsonl").write_bytes(b"{}\n")
    done = reg("ls", *words)
    assert done.status == 4
    assert "the index of tiny in" in done.err
    assert "acme/sure" in done.out
    assert reg("ls", "acme/*", *words).status == 0


def test_many_damages_are_counted(reg: Reg, shop: Path) -> None:
    for number in range(search_report.MAX_NAMED_DAMAGES + 3):
        (shop / "index" / f"bad{number}.jsonl").write_bytes(b"{}\n")
    done = reg("ls")
    assert (done.status, done.err.count("the index of bad")) == (4, search_report.MAX_NAMED_DAMAGES)
    assert "; and 3 more" in done.err


def test_the_index_may_be_deleted_at_any_time(reg: Reg, shop: Path) -> None:
    before = reg("ls", "--certified")
    (shop / "local" / MODELS).write_bytes(b"?" * 5000)
    assert reg("ls", "--certified") == before
    (shop / "local" / MODELS).unlink()
    assert reg("ls", "--certified") == before
    assert reg("verify").status == 0
