"""`reg export --push`: the version and its push in one step, and what stays if the push fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxreg.registry import Registry

Reg = Callable[..., Any]
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }
"""
RECIPE = "task: onnx\nsteps:\n  - {name: fixed, pass: DynamicToFixedShape, params: {dim_param: [batch], dim_value: [1]}}\n"
WORDS = ("--registry", "r", "export", "m.onnx", "--recipe", "fixed.yaml", "--name", "acme/x")


@pytest.fixture(autouse=True)
def source(tmp_path: Path) -> None:
    """A graph and a recipe in the working directory."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "fixed.yaml").write_text(RECIPE)


@pytest.fixture
def conflict(draft: Callable[..., Any], tmp_path: Path) -> Path:
    """A remote that has another manifest under the version to push."""
    Registry(tmp_path / "share").add(draft(tmp_path / "w", name="acme/x"), "0.1.0")
    return tmp_path / "share"


def versions(root: str | Path) -> list[str]:
    return [str(version) for version in Registry(root, create=False).state("acme/x").versions]


def test_a_new_version_is_published_and_pushed(reg: Reg, tmp_path: Path) -> None:
    done = reg(*WORDS, "--push", "./share")
    lines = done.out.splitlines()
    assert done.status == 0 and lines[0] == "published acme/x:0.1.0"
    assert lines[-1].startswith(f"pushed acme/x:0.1.0 to {tmp_path / 'share'}: ")
    assert versions("r") == versions("share") == ["0.1.0"]


def test_a_version_that_was_found_is_pushed(reg: Reg, tmp_path: Path) -> None:
    assert reg(*WORDS).status == 0
    words = (*WORDS, "--push", "./share")
    lines = reg(*words).out.splitlines()
    assert lines[0] == "nothing new: this is acme/x:0.1.0"
    assert lines[-1].startswith(f"pushed acme/x:0.1.0 to {tmp_path / 'share'}: ")
    assert reg(*words).out.splitlines()[-1].startswith("nothing to do: acme/x:0.1.0 is up to date")


def test_both_reports_are_one_document(reg: Reg, tmp_path: Path) -> None:
    first = reg(*WORDS, "--push", "./share", "--json")
    assert (first.status, first.err) == (0, "")
    keys = {
        *("ref", "name", "version", "new", "digest", "manifest", "states", "yanked", "newer", "output"),
        "pushed",
    }
    assert first.json.keys() == keys
    pushed = first.json["pushed"]
    assert pushed.keys() == {"ref", "remote", "events", "blobs", "bytes", "output"}
    assert (pushed["ref"], pushed["remote"], pushed["events"]) == ("acme/x:0.1.0", str(tmp_path / "share"), 1)
    again = reg(*WORDS, "--push", "./share", "--json")
    assert again.json["digest"] == first.json["digest"]
    assert (again.json["pushed"]["events"], again.json["pushed"]["blobs"]) == (0, 0)


def test_after_a_failed_push_the_version_stays(reg: Reg, conflict: Path) -> None:
    done = reg(*WORDS, "--push", conflict)
    assert done.status == 5 and done.out.startswith("published acme/x:0.1.0\n")
    assert "error: acme/x:0.1.0 is published here, but not pushed: " in done.err
    assert f"to try again: reg push acme/x:0.1.0 {conflict}\n" in done.err
    assert versions("r") == ["0.1.0"]


def test_after_a_failed_push_the_document_says_so(reg: Reg, conflict: Path) -> None:
    for _ in range(2):
        done = reg(*WORDS, "--push", conflict, "--json")
        assert (done.status, done.error["family"]) == (5, "conflict")
        assert (done.json["ref"], done.json["pushed"]) == ("acme/x:0.1.0", None)
        assert f"reg push acme/x:0.1.0 {conflict}" in done.error["hint"]


def test_a_remote_that_is_not_there_ends_it_before_the_export(reg: Reg) -> None:
    for _ in range(2):
        done = reg(*WORDS, "--push", "nowhere")
        assert (done.status, done.out) == (3, "")
        assert "there is no remote nowhere" in done.err
    assert not Path("r").exists()


def test_a_batch_has_one_remote(reg: Reg, tmp_path: Path) -> None:
    row = {"source": "m.onnx", "recipe": "fixed.yaml", "name": "acme/x"}
    (tmp_path / "jobs.yaml").write_text(json.dumps([row]))
    words = ("--registry", "r", "export", "--batch", "jobs.yaml", "--jobs", 1, "--push", "./share")
    done = reg(*words, "--json")
    assert done.status == 0 and [job["pushed"] for job in done.json["jobs"]] == [True]
    assert versions("share") == ["0.1.0"]
