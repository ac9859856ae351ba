"""`reg index publish`, and what `reg ls` and `reg query` say of a catalog."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers.static import serve

from onnxreg.cli.commands import remotes

Reg = Callable[..., Any]


@pytest.fixture
def shop(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REG_HOME", str(home))
    return home


@pytest.mark.parametrize(
    "line", [line for line in remotes.EXAMPLES if " index publish" in line and "s3://" not in line]
)
def test_the_examples_of_the_help_run(line: str, shop: Path, tmp_path: Path, reg: Reg) -> None:
    assert reg("push", "--all", "--remote", tmp_path / "shared").status == 0
    assert reg("remote", "add", "origin", tmp_path / "shared").status == 0
    assert reg(*shlex.split(line)[1:]).status == 0


def test_it_says_what_it_wrote(shop: Path, reg: Reg) -> None:
    done = reg("index", "publish")
    assert done.status == 0 and "2 models, 6 artifacts, " in done.out
    document = reg("index", "publish", "--json").json
    assert document.keys() == {"time", "models", "artifacts", "size", "damages"}
    assert (document["models"], document["artifacts"]) == (2, 6)
    assert document["size"] == (shop / "search" / "catalog.jsonl.gz").stat().st_size
    assert reg("verify").status == 0


@pytest.mark.parametrize("words", [("ls",), ("query", "newest")])
def test_an_answer_says_how_old_it_is(words: tuple[str, ...], shop: Path, tmp_path: Path, reg: Reg) -> None:
    time = reg("index", "publish", "--json").json["time"]
    own = ("--registry", tmp_path / "own")
    with serve(shop) as url:
        done = reg(*own, *words, "--remote", url)
        assert done.status == 0 and "acme/pii" in done.out
        assert done.err.startswith(f"catalog: {url} as it was ") and "--max-age 0s" in done.err
        assert reg(*own, *words, "--remote", url, "--json").json["snapshot"] == time
        fresh = reg(*own, *words, "--remote", url, "--max-age", "0s")
        assert fresh.status == 6 and "reg index publish" in fresh.err
    done = reg(*own, *words, "--remote", shop, "--max-age", "0s", "--json")
    assert done.err == "" and "snapshot" not in done.json
    assert done.json == reg(*words, "--json").json


def test_an_export_says_how_old_it_is(shop: Path, tmp_path: Path, reg: Reg) -> None:
    time = reg("index", "publish", "--json").json["time"]
    table = tmp_path / "table.csv"
    done = reg("query", "--remote", shop, "--export", table, "--json")
    assert done.json == {"path": str(table), "rows": 6, "snapshot": time}


def test_a_damaged_catalog_is_named(shop: Path, tmp_path: Path, reg: Reg) -> None:
    reg("index", "publish")
    (shop / "search" / "catalog.jsonl.gz").write_bytes(b"damaged")
    done = reg("--registry", tmp_path / "own", "query", "newest", "--remote", shop)
    assert done.status == 0 and "tiny" in done.out
    assert done.err.startswith(f"the catalog of {shop} is damaged") and done.err.count("\n") == 1


def test_a_damaged_model_is_named(shop: Path, tmp_path: Path, reg: Reg) -> None:
    (shop / "index" / "tiny.jsonl").write_bytes(b"{}\n")
    done = reg("index", "publish")
    assert done.status == 4 and "tiny" in done.err
    done = reg("--registry", tmp_path / "own", "ls", "--remote", shop)
    assert done.status == 4 and "acme/pii" in done.out and "tiny" in done.err


@pytest.mark.parametrize("place", ["file", "web"])
def test_a_place_that_is_only_read_is_refused(place: str, shop: Path, tmp_path: Path, reg: Reg) -> None:
    if place == "web":
        with serve(shop) as url:
            done = reg("index", "publish", "--remote", url)
    else:
        assert reg("archive", "create", tmp_path / "one.zip", "tiny:0.1.0").status == 0
        done = reg("index", "publish", "--remote", tmp_path / "one.zip")
    assert done.status != 0 and len(done.err.splitlines()) == 2
