"""`reg push` of many models, `--tag`, and what is said of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.cli.render import output
from onnxreg.registry import Registry

Reg = Callable[..., Any]


def test_everything_as_json(reg: Reg, home: Path, tmp_path: Path) -> None:
    share = tmp_path / "share"
    done = reg("--registry", home, "push", "--all", "--remote", share, "--tag", "stable", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json.keys() == {"remote", "pushed", "skipped", "channels"}
    many, one = done.json["pushed"]
    assert many["ref"] == "acme/pii" and many["versions"] == ["0.1.0", "0.2.0"]
    assert one.keys() == {"ref", "versions", "events", "blobs", "bytes"}
    assert one["ref"] == "tiny:0.1.0" and one["events"] == 1
    assert done.json["channels"] == [{"name": "acme/pii", "tag": "stable", "version": "0.1.0"}]
    assert str(Registry(share).find("acme/pii:stable").version) == "0.1.0"
    again = reg("--registry", home, "push", "--all", "--remote", share, "--tag", "stable", "--json")
    assert again.json == {"remote": str(share), "pushed": [], "skipped": [], "channels": []}


def test_everything_for_people(reg: Reg, home: Path, tmp_path: Path) -> None:
    words = ("--registry", home, "push", "*", "--remote", tmp_path / "share", "--tag", "stable")
    first = reg(*words).out.splitlines()
    assert first[0].split() == ["PUSHED", "VERSION", "BLOBS", "SIZE", "CHANNELS"]
    assert first[1].startswith("acme/pii  0.1.0, 0.2.0") and first[1].endswith("stable: 0.1.0")
    assert first[-1].startswith(f"pushed 2 models to {tmp_path / 'share'}: ")
    assert reg(*words).out == f"up to date with {tmp_path / 'share'}: 2 models\n"


def test_one_failure_gives_its_status_and_the_others_go(
    reg: Reg, home: Path, tmp_path: Path, draft: Callable[..., Any]
) -> None:
    share = Registry(tmp_path / "share")
    share.add(draft(tmp_path / "w", name="acme/pii", seed="z"), "0.2.0")
    done = reg("--registry", home, "push", "--all", "--remote", share.store.root)
    assert done.status == 5
    assert "acme/pii  0.2.0  acme/pii:0.2.0 has manifest" in done.out
    assert sorted(share.names()) == ["acme/pii", "tiny"]
    as_json = reg("--registry", home, "push", "--all", "--remote", share.store.root, "--json")
    assert as_json.status == 5 and as_json.error["family"] == "conflict"
    assert [item["ref"] for item in as_json.json["skipped"]] == ["acme/pii:0.2.0"]


def test_a_failed_model_is_not_up_to_date(reg: Reg, home: Path, tmp_path: Path) -> None:
    share = tmp_path / "share"
    reg("--registry", home, "push", "--all", "--remote", share)
    for path in (home / "index").rglob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))
    done = reg("--registry", home, "push", "--all", "--remote", share)
    assert done.status == 4
    assert "up to date" not in done.out


def test_a_version_that_conflicts_keeps_its_model_from_being_up_to_date(
    reg: Reg, home: Path, tmp_path: Path, draft: Callable[..., Any]
) -> None:
    share = Registry(tmp_path / "share")
    share.add(draft(tmp_path / "w", name="acme/pii", seed="z"), "0.2.0")
    words = ("--registry", home, "push", "acme/pii", "--all", "--remote", share.store.root)
    assert (reg(*words).status, reg(*words).status) == (5, 5)
    assert "up to date" not in reg(*words).out


def test_a_channel_of_one_version(reg: Reg, home: Path, tmp_path: Path) -> None:
    share = tmp_path / "share"
    done = reg("--registry", home, "push", "acme/pii", share, "--tag", "stable")
    assert done.status == 0
    assert "pushed channel stable: acme/pii:0.1.0" in done.out.splitlines()
    back = reg("--registry", tmp_path / "mine", "pull", "acme/pii:0.2.0", share, "--tag", "stable", "--json")
    assert back.json["ref"] == "acme/pii:0.2.0"
    assert back.json["channels"] == [{"name": "acme/pii", "tag": "stable", "version": "0.1.0"}]
    assert "channels" not in reg("--registry", home, "push", "acme/pii", share, "--json").json


def test_a_channel_push_names_the_model_not_the_version(reg: Reg, home: Path, tmp_path: Path) -> None:
    words = ("--registry", home, "push", "acme/pii:0.2.0", tmp_path / "share")
    reg(*words)
    assert reg(*words, "--tag", "stable").out.startswith(f"pushed acme/pii to {tmp_path / 'share'}: ")


def test_healing_tells_that_it_reads_nothing(reg: Reg, home: Path, tmp_path: Path) -> None:
    words = ("--registry", home, "push", "acme/pii", "./share", "--heal")
    assert reg(*words).out.startswith("pushed acme/pii:0.2.0 to ")
    place = tmp_path / "share"
    told = f"every file of acme/pii:0.2.0 is in {place} (not read: reg verify --remote {place} reads them)"
    assert reg(*words).out == f"nothing to do: {told}\n"


def test_to_names_the_remote_of_one_version_too(reg: Reg, home: Path, tmp_path: Path) -> None:
    done = reg("--registry", home, "push", "acme/pii:0.1.0", "--remote", tmp_path / "share", "--json")
    assert (done.json["ref"], done.json["remote"]) == ("acme/pii:0.1.0", str(tmp_path / "share"))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["push"], 2, "what to push is missing"),
        (["push", "acme/pii", "./a", "--remote", "./b"], 2, "two remotes are named"),
        (["push", "--all", "s3://bucket"], 2, "a remote is named with --remote"),
        (["push", "acme/pii:0.1.0", "--all", "--remote", "./a"], 2, "not a model's name or a glob"),
        (["push", "acm?/*", "--remote", "./a", "--tag", "beta"], 3, "acme/pii has no channel beta"),
        (["push", "acme/pi[xy]", "--remote", "./a"], 3, "did you mean acme/pii"),
        (["push", "acme/pii", "./a", "--tag", "beta"], 3, "has no channel beta"),
        (["push", "acme/pii", "./a", "--tag", "1.0.0"], 2, "is a version, not a channel"),
    ],
)
def test_bad_requests(reg: Reg, home: Path, tmp_path: Path, words: list[str], status: int, said: str) -> None:
    done = reg("--registry", home, *words)
    assert (done.status, done.out) == (status, "")
    assert said in done.err
    assert not (tmp_path / "a").exists()


def test_durations() -> None:
    times = {1.2: "1 s", 59.4: "59 s", 65: "1 min 05 s", 3600: "1 h 00 min", 8100: "2 h 15 min"}
    assert {seconds: output.duration(seconds) for seconds in times} == times


def test_a_remote_in_the_place_of_a_model_is_named_with_to(reg: Reg, home: Path, tmp_path: Path) -> None:
    assert reg("--registry", home, "remote", "add", "origin", tmp_path / "share").status == 0
    done = reg("--registry", home, "push", "--all", "origin", "--json")
    assert done.status == 2
    assert done.error["hint"] == "name it with --remote: reg push --all --remote origin"
    assert reg("--registry", home, "push", "--all", "--remote", "origin").status == 0


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_the_remote_may_be_an_option(verb: str, reg: Reg, home: Path, tmp_path: Path) -> None:
    reg("--registry", home, "push", "acme/pii", tmp_path / "share")
    own = home if verb == "push" else tmp_path / "own"
    done = reg("--registry", own, verb, "acme/pii", "--remote", tmp_path / "share", "--json")
    assert (done.status, done.json["remote"]) == (0, str(tmp_path / "share"))
