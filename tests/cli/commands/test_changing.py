"""`push`, `pull`, `remote`, `tag`, `yank`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.vocabulary import FILENAME

NAME = "acme/pii"
Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_push_moves_what_is_missing_and_then_nothing(reg: Reg, tmp_path: Path) -> None:
    share = tmp_path / "share"
    done = reg("push", "acme/pii:0.1.0", share)
    assert done.out.startswith(f"pushed acme/pii:0.1.0 to {share}: 6 blobs, 45.9 kB")
    assert done.err == ""
    again = reg("push", "acme/pii:0.1.0", share)
    assert again.out == f"nothing to do: acme/pii:0.1.0 is up to date with {share}\n"
    assert reg("push", "acme/pii:0.1.0", share, "--json").json == {
        "ref": "acme/pii:0.1.0",
        "remote": str(share),
        "events": 0,
        "blobs": 0,
        "bytes": 0,
        "output": None,
    }
    second = reg("push", "acme/pii", share, "--json").json
    assert (second["ref"], second["events"], second["blobs"]) == ("acme/pii:0.2.0", 1, 3)


def test_pull_brings_a_version_and_writes_its_files(reg: Reg, home: Path, tmp_path: Path) -> None:
    done = reg("--registry", "mine", "pull", "acme/pii", home, "--output", "out", "--json").json
    assert (done["ref"], done["remote"], done["output"]) == ("acme/pii:0.2.0", str(home), "out")
    shown = reg("show", "acme/pii", "--json").out.encode()
    assert (tmp_path / "out" / FILENAME).read_bytes() == shown
    names = {"model.onnx", "model_int8.onnx", "config.json", "recall_delta.json", FILENAME}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    again = reg("--registry", "mine", "pull", "acme/pii", home, "--output", "out")
    assert again.out == f"nothing to do: acme/pii:0.2.0 is up to date with {home}\nwritten to out\n"


def test_pull_by_channel_and_by_digest(reg: Reg, home: Path) -> None:
    done = reg("--registry", "mine", "pull", "acme/pii:stable", home, "--output", "stable", "--json")
    assert done.json["ref"] == "acme/pii:0.1.0"
    digest = Digest.of(Path("stable", FILENAME).read_bytes())
    reg("yank", "acme/pii:0.1.0")
    ref = f"acme/pii@{digest}"
    assert reg("--registry", "new", "pull", ref, home, "--output", "exact").status == 0
    assert Path("exact", FILENAME).read_bytes() == Path("stable", FILENAME).read_bytes()


def test_pull_of_one_format_is_partial_and_says_so(reg: Reg, home: Path, tmp_path: Path) -> None:
    mine = ("--registry", "mine")
    ref, int8 = f"{NAME}:0.2.0", "model_int8.onnx"
    words = (*mine, "pull", ref, home, "--format", "onnx-int8")
    done = reg(*words, "--output", "out", "--json").json
    assert done["held"] == [int8]
    written = {"config.json", "recall_delta.json", int8, "openmed-onnx.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == written
    assert "nothing to do" in reg(*words).out
    assert f"held here: {int8}" in reg(*words).out

    (listed,) = reg(*mine, "ls", NAME, "--json").json["versions"]
    (source, _) = reg("ls", NAME, "--json").json["versions"]
    assert (listed["state"], listed["held"]) == ("refused", [int8])
    assert (source["state"], source["held"]) == ("refused", None) and listed["size"] < source["size"]
    assert f"refused  {int8}" in reg(*mine, "ls", NAME).out
    assert "HELD" not in reg("ls", NAME).out
    shown = reg(*mine, "show", ref).out
    assert f"partial: reg pull {ref} fetches the rest" in shown and "HELD" in shown
    assert "HELD" not in reg("show", ref).out
    assert reg(*mine, "show", ref, "--json").out == reg("show", ref, "--json").out
    assert f"hold     0.2.0 {listed['manifest'][7:19]} {int8}" in reg(*mine, "log", NAME).out

    resolved = reg(*mine, "resolve", NAME, "--json").json
    codes = {item["artifact"]: item["code"] for item in resolved["rejected"]}
    assert (resolved["artifact"]["path"], codes) == (int8, {"model.onnx": "not-held"})
    absent = reg(*mine, "resolve", NAME, "--format", "onnx-android")
    assert absent.status == 3 and "model.onnx is not held here" in absent.err
    assert reg(*mine, "verify").status == 0
    assert "compatible" in reg(*mine, "diff", ref, ref, "--json").json

    refused = reg(*mine, "push", ref, tmp_path / "there")
    assert refused.status == 3 and f"only onnx-int8 (int8) of {ref}" in refused.err
    assert reg(*mine, "pull", ref, home, "--json").json["held"] is None
    assert "0.2.0 " in reg(*mine, "log", NAME).out and "everything" in reg(*mine, "log", NAME).out


def test_pull_of_a_format_that_is_not_there_names_those_that_are(reg: Reg, home: Path) -> None:
    words = ("--registry", "mine", "pull", NAME, home, "--format", "onnx-int4")
    failed = reg(*words)
    assert failed.status == 3
    assert "has no onnx-int4" in failed.err and "onnx-android (float32), onnx-int8 (int8)" in failed.err
    narrow = reg(*words[:-1], "onnx-int8", "--precision", "float16")
    assert narrow.status == 3 and "has no onnx-int8 of precision float16" in narrow.err


def test_remotes_have_names(reg: Reg, tmp_path: Path) -> None:
    assert reg("remote", "add", "origin", tmp_path / "share").out == "remote origin added\n"
    assert reg("remote", "add", "origin", tmp_path / "elsewhere").status == 5
    assert reg("remote", "list", "--json").json == {
        "remotes": [{"name": "origin", "url": str(tmp_path / "share")}]
    }
    assert reg("remote", "list").out.splitlines()[1].split() == ["origin", str(tmp_path / "share")]
    assert reg("push", "tiny").out.startswith(f"pushed tiny:0.1.0 to {tmp_path / 'share'}")
    assert reg("resolve", "tiny", "--remote", "origin", "--json").json["version"] == "0.1.0"
    assert reg("remote", "remove", "origin").status == 0
    assert reg("remote", "list", "--json").json == {"remotes": []}


def test_resolve_reads_a_remote_without_a_registry_of_its_own(reg: Reg, home: Path) -> None:
    assert reg("--registry", "none", "resolve", "tiny", "--remote", home, "--json").json["name"] == "tiny"


def test_tag_moves_a_channel(reg: Reg) -> None:
    assert reg("tag", "acme/pii", "stable", "--reason", "tested").out == "acme/pii:stable is 0.2.0\n"
    assert reg("resolve", "acme/pii:stable", "--json").json["version"] == "0.2.0"
    event = reg("log", "acme/pii", "--json").json["lines"][-1]["event"]
    assert (event["kind"], event["tag"], event["version"], event["reason"]) == (
        "tag",
        "stable",
        "0.2.0",
        "tested",
    )


def test_yank_and_undo(reg: Reg) -> None:
    assert reg("yank", "acme/pii:0.2.0", "--reason", "bad").out == "acme/pii:0.2.0 is yanked\n"
    assert reg("resolve", "acme/pii", "--json").json["version"] == "0.1.0"
    assert reg("show", "acme/pii:0.2.0").status == 3
    assert reg("yank", "acme/pii:0.2.0", "--undo").out == "acme/pii:0.2.0 is no longer yanked\n"
    assert reg("resolve", "acme/pii", "--json").json["version"] == "0.2.0"


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (("tag", f"{NAME}:0.1.0", "stable"), f"{NAME}:stable is already 0.1.0"),
        (("yank", f"{NAME}:0.2.0"), f"{NAME}:0.2.0 is already yanked"),
        (("yank", f"{NAME}:0.1.0", "--undo"), f"{NAME}:0.1.0 is not yanked"),
        (("pin", f"{NAME}:0.2.0", "--undo"), f"{NAME}:0.2.0 is not pinned"),
    ],
)
def test_a_decision_that_changes_nothing_says_so_and_logs_nothing(
    words: tuple[str, ...], before: str, reg: Reg
) -> None:
    assert reg("yank", f"{NAME}:0.2.0").status == 0
    lines = reg("log", NAME, "--json").json["lines"]
    assert reg(*words).out == f"nothing to do: {before}\n"
    again = reg(*words, "--reason", "again")
    assert (again.status, again.out) == (0, f"nothing to do: {before}; the reason is not logged\n")
    assert reg("log", NAME, "--json").json["lines"] == lines


@pytest.mark.parametrize("words", [("tag", NAME, "1.0.0"), ("untag", f"{NAME}:1.0.0")])
def test_a_version_is_no_channel(words: tuple[str, ...], reg: Reg) -> None:
    done = reg(*words)
    assert done.status == 2 and "1.0.0 is a version, not a channel" in done.err
    assert "name a channel, such as stable" in done.err
