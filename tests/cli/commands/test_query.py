"""`reg query`: its examples, its table, its JSON, its files, and how it says what is wrong."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers.static import serve

from onnxreg.cli.commands import query
from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.search.catalogs import MODELS
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.fields import FIELDS

Reg = Callable[..., Any]
ALL = [
    (name, version, path)
    for name, version in (("acme/pii", "0.1.0"), ("acme/pii", "0.2.0"), ("tiny", "0.1.0"))
    for path in ("model.onnx", "model_int8.onnx")
]


@pytest.fixture
def shop(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REG_HOME", str(home))
    return home


def found(reg: Reg, *words: str) -> list[tuple[str, str, str]]:
    done = reg("query", *words, "--json")
    assert (done.status, done.err) == (0, "")
    return [(match["name"], match["version"], match["artifact"]["path"]) for match in done.json["matches"]]


@pytest.mark.parametrize("line", query.EXAMPLES)
@pytest.mark.usefixtures("shop")
def test_the_examples_of_the_help_run(line: str, reg: Reg) -> None:
    done = reg(*shlex.split(line)[1:])
    assert (done.status, done.err) == (0, "")
    assert done.out


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], ALL),
        (["precision = int8"], ALL[1::2]),
        (["opset = 18 and 'stable' in channels"], ALL[:1]),
        (["version >= 0.2.0 and recall.NAME >= 0.9"], [ALL[3]]),
        (["newest", "acme/*"], ALL[2:4]),
        (["newest", "tiny"], ALL[4:]),
        (["name ~ 't*' and size < 20kB"], [ALL[5]]),
        (["state = refused and not recall.NAME >= 0.95"], ALL[1::2]),
        (["certified"], []),
        (["yanked"], []),
        (["", "tiny"], None),
    ],
    ids=str,
)
@pytest.mark.usefixtures("shop")
def test_an_expression_chooses(reg: Reg, words: list[str], expected: list[Any] | None) -> None:
    if expected is None:
        assert reg("query", *words).status == 2
    else:
        assert found(reg, *words) == expected


@pytest.mark.usefixtures("shop")
def test_the_json_is_as_documented(reg: Reg) -> None:
    answer = reg("query", "recall.NAME > 0.9 and stable in channels", "--json").json
    (match,) = answer.pop("matches")
    assert answer == {"models": 1, "more": False}
    artifact = match.pop("artifact")
    assert [*match, *artifact] == list(FIELDS)
    resolved = reg("resolve", "acme/pii:stable", "--precision", "int8", "--json").json
    assert match["manifest"] == resolved["manifest"]
    assert {key: artifact[key] for key in resolved["artifact"]} == resolved["artifact"]
    assert match["channels"] == ["stable"] and match["newest"] is False and match["family"] is None
    assert artifact["recall"] == {"NAME": 0.93} and artifact["min_recall"] == 0.93


@pytest.mark.usefixtures("shop")
def test_a_person_sees_a_table_or_a_sentence(reg: Reg) -> None:
    assert reg("yank", "acme/pii:0.1.0").status == 0
    header, row = reg("query", "int8 in channels or (path = model_int8.onnx and yanked)").out.splitlines()
    assert " ".join(header.split()) == (
        "NAME VERSION CHANNELS STATE ARTIFACT FORMAT PRECISION DOWNLOAD CERTIFICATION"
    )
    assert row.split() == [
        *(
            "acme/pii",
            "0.1.0",
            "stable",
            "yanked",
            "model_int8.onnx",
            "onnx-int8",
            "int8",
            "8.8",
            "kB",
            "refused",
        )
    ]
    assert reg("query", "certified").out == "no artifact fits\n"
    assert reg("--quiet", "query", "newest").out == ""


@pytest.mark.usefixtures("shop")
def test_a_limit_says_that_there_is_more(reg: Reg) -> None:
    assert found(reg, "--limit", "3") == ALL[:3]
    answer = reg("query", "--limit", "3", "--json").json
    assert (answer["models"], answer["more"]) == (1, True)
    assert reg("query", "--limit", "6", "--json").json["more"] is False
    assert reg("query", "--limit", "3").out.endswith("\nand more: these are the first 3\n")
    assert reg("query", "--limit", "0").status == 2


@pytest.mark.usefixtures("shop")
def test_a_wrong_expression_is_drawn(reg: Reg) -> None:
    done = reg("query", "newest and sise <= 30MB")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "error: the expression cannot be read: there is no field sise\n"
        "  newest and sise <= 30MB\n"
        "             ~~~^\n"
        "hint: did you mean size?\n"
    )
    told = reg("query", "newest and sise <= 30MB", "--json").error
    assert told == {
        "family": "input",
        "message": "the expression cannot be read: there is no field sise",
        "hint": "did you mean size?",
    }


@pytest.mark.usefixtures("shop")
def test_a_name_alone_gets_the_condition_that_means_it(reg: Reg) -> None:
    name = "acme/pii"
    assert reg("query", name, "--json").error["hint"] == f"write name = {name}"
    matches = reg("query", f"name = {name}", "--json").json["matches"]
    assert {match["name"] for match in matches} == {name}


@pytest.mark.usefixtures("shop")
def test_terminal_escapes_are_not_printed(reg: Reg) -> None:
    done = reg("query", "name = 'a\x1b[2J' and\x1b")
    assert done.status == 2
    assert "\x1b" not in done.err


@pytest.mark.parametrize("where", [[], ["--remote", "./home"]], ids=["here", "remote"])
@pytest.mark.usefixtures("shop")
def test_an_exact_name_must_be_there(reg: Reg, where: list[str]) -> None:
    done = reg("query", "newest", "tinny", *where)
    assert (done.status, done.out) == (3, "")
    assert "did you mean tiny?" in done.err
    assert reg("query", "newest", "tinny*", *where).out == "no artifact fits\n"


def test_another_registry_is_asked(reg: Reg, home: Path) -> None:
    Registry("mine")
    for words in (["newest"], ["newest", "acme/*"], ["newest", "tiny", "--limit", "1"]):
        here = reg("--registry", "home", "query", *words, "--json")
        (home / "local" / MODELS).unlink()
        there = reg("--registry", "mine", "query", *words, "--remote", "./home", "--json")
        assert (there.status, there.json) == (0, here.json)
        assert not (home / "local" / MODELS).exists()


@pytest.mark.usefixtures("shop")
def test_a_place_that_lists_nothing_is_asked_for_one_model(reg: Reg, home: Path) -> None:
    with serve(home) as url:
        done = reg("query", "newest", "--remote", url)
        assert done.status == 6
        assert "a web server does not list what it has" in done.err
        assert found(reg, "newest", "tiny", "--remote", url) == ALL[4:]


def test_a_manifest_that_is_missing_is_named_and_the_rest_listed(
    reg: Reg, shop: Path, draft: Callable[..., Any], tmp_path: Path
) -> None:
    registry = Registry(shop)
    for seed in range(6):
        registry.add(draft(tmp_path / f"w{seed}", name="tiny", seed=str(seed)))
    lost = lookup.find(registry.store, Ref("tiny", "0.1.0")).entry.manifest
    (shop / blob_path(lost)).unlink()
    done = reg("query", "precision = int8", "tiny")
    assert done.status == 4
    assert len(done.out.splitlines()) == 1 + 6
    assert f"tiny:0.1.0: blob {lost} is not in" in done.err


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@pytest.mark.usefixtures("shop")
def test_a_table_is_written(reg: Reg, suffix: str, tmp_path: Path) -> None:
    done = reg("query", "precision = int8", "--export", f"all{suffix}")
    assert (done.status, done.out) == (0, f"3 artifacts written to all{suffix}\n")
    assert (tmp_path / f"all{suffix}").stat().st_size
    again = reg("query", "--export", f"all{suffix}", "--json")
    assert again.json == {"path": f"all{suffix}", "rows": 6}
    if suffix == ".jsonl":
        lines = (tmp_path / "all.jsonl").read_text().splitlines()
        assert [tuple(json.loads(line)[key] for key in ("name", "version", "path")) for line in lines] == ALL


@pytest.mark.usefixtures("shop")
def test_a_table_goes_nowhere_it_should_not(reg: Reg, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for file, words in (
        ("all.xlsx", "a table is called *.parquet, *.jsonl, *.csv"),
        ("home/index/tiny.jsonl", "is inside a registry"),
        ("nowhere/all.csv", "there is no directory nowhere"),
    ):
        done = reg("query", "--export", file)
        assert done.status == 2
        assert words in done.err
    assert sorted(tmp_path.rglob("*")) == before
