"""Pipelines: graphs that work together under names, from `reg add` to the device."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
IMAGES = "float[n,3,h,w] x"
GRAPHS = {
    "det.onnx": f"g ({IMAGES}) => (float[n,3,h,w] y) {{ y = Sigmoid(x) }}",
    "det-fixed.onnx": "g (float[1,3,64,64] x) => (float[1,3,64,64] y) { y = Sigmoid(x) }",
    "det-half.onnx": "g (float16[n,3,h,w] x) => (float16[n,3,h,w] y) { y = Sigmoid(x) }",
    "rec.onnx": f"g ({IMAGES}) => (float[n,h,w] y) {{ y = ReduceMean<axes=[1],keepdims=0>(x) }}",
    "cls.onnx": f"g ({IMAGES}) => (float[n,3] y) {{ y = ReduceMean<axes=[2,3],keepdims=0>(x) }}",
    "decoder.onnx": "g (int64[n,s] ids) => (int64[n,s] next) { next = Identity(ids) }",
    "integers.onnx": "g (int64[n,3,h,w] x) => (int64[n,3,h,w] y) { y = Identity(x) }",
}
NAME = ("--name", "acme/ocr")
DETECTOR, RECOGNIZER = ("--member", "detector=det.onnx"), ("--member", "recognizer=rec.onnx")
DEVICE = "ort-android-1.23"


@pytest.fixture(autouse=True)
def graphs(tmp_path: Path) -> None:
    for name, text in GRAPHS.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
        onnx.save(model, tmp_path / name)


@pytest.fixture
def ocr(reg: Reg) -> str:
    """A detector in two variants, a recognizer and a classifier."""
    words = (*DETECTOR, "--member", "detector=det-fixed.onnx", *RECOGNIZER, "--role", "classifier=cls.onnx")
    assert reg("add", *words, *NAME).status == 0
    return "acme/ocr"


@pytest.mark.parametrize("other", ["rec.onnx", "cls.onnx", "decoder.onnx", "integers.onnx"])
def test_graphs_that_take_or_give_other_tensors_are_no_alternatives(reg: Reg, other: str) -> None:
    done = reg("add", "det.onnx", other, *NAME)
    assert done.status == 2
    assert "det.onnx" in done.err and other in done.err and "--member NAME=FILE" in done.err


@pytest.mark.parametrize("other", ["det-fixed.onnx", "det-half.onnx"])
def test_variants_of_one_graph_are_alternatives(reg: Reg, other: str) -> None:
    assert reg("add", "det.onnx", other, *NAME).status == 0
    assert reg("resolve", "acme/ocr").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("det.onnx", *RECOGNIZER), "det.onnx has no name"),
        ((*DETECTOR, "--member", "detector=rec.onnx"), "det.onnx and rec.onnx are not alternatives"),
        (("--member", "det.onnx"), "not a member: 'det.onnx'"),
        (("--member", "a b=det.onnx"), "'a b' cannot be the name of a member"),
        ((*DETECTOR, "--member", "other=det.onnx"), "det.onnx is detector and other"),
        ((), "no file is named"),
    ],
)
def test_members_that_are_refused(reg: Reg, words: tuple[str, ...], message: str) -> None:
    done = reg("add", *words, *NAME)
    assert done.status == 2
    assert message in done.err


def test_a_question_without_a_member_names_the_stages(reg: Reg, ocr: str) -> None:
    done = reg("resolve", ocr, "--json")
    assert done.status == 3
    assert {each["code"] for each in done.json["rejected"]} == {"member"}
    assert "det.onnx is one stage of several: detector; " in reg("resolve", ocr).err
    assert reg("resolve", ocr).err.endswith("; name one, such as --member detector\n")


def test_each_stage_has_an_answer(reg: Reg, ocr: str) -> None:
    found = {
        name: reg("resolve", ocr, "--member", name, "--json").json["artifact"]
        for name in ("detector", "recognizer", "classifier")
    }
    assert {name: artifact["path"] for name, artifact in found.items()} == {
        "detector": "det-fixed.onnx",
        "recognizer": "rec.onnx",
        "classifier": "cls.onnx",
    }
    assert all(artifact["member"] == name for name, artifact in found.items())
    assert reg("resolve", ocr, "--member", "vocoder").status == 3


def test_show_names_the_stage_of_each_artifact(reg: Reg, ocr: str) -> None:
    shown = reg("show", ocr).out
    assert "detector, recognizer, classifier" in shown
    assert ["recognizer", "rec.onnx"] in [line.split()[:2] for line in shown.splitlines()]


def test_coverage_asks_for_every_stage(reg: Reg, ocr: str) -> None:
    covered = reg("coverage", ocr, "--devices", DEVICE, "--json").json
    assert [(each["member"], each["artifact"]["path"]) for each in covered["devices"]] == [
        ("detector", "det-fixed.onnx"),
        ("recognizer", "rec.onnx"),
        ("classifier", "cls.onnx"),
    ]
    one = reg("coverage", ocr, "--devices", DEVICE, "--member", "recognizer", "--json").json
    assert [each["artifact"]["path"] for each in one["devices"]] == ["rec.onnx"]
    none = reg("coverage", ocr, "--devices", DEVICE, "--max-size", "123", "--json")
    assert none.status == 8
    assert none.json["stranded"] == 1


def test_a_gate_wants_every_stage_on_each_device(reg: Reg, ocr: str) -> None:
    device = "ort-android-1.17"
    Path("policy.toml").write_text(f'[[rule]]\nchannel = "stable"\ndevices = ["{device}"]\n')
    assert reg("policy", "set", "policy.toml", "--yes").status == 0
    assert reg("promote", f"{ocr}:0.1.0", "stable", "--dry-run").status == 0
    recognizer = '<ir_version: 9, opset_import: ["" : 22]> g (float[n] x) => (float[n] y) { y = Sigmoid(x) }'
    onnx.save(onnx.parser.parse_model(recognizer), "new.onnx")
    assert reg("add", *DETECTOR, "--member", "recognizer=new.onnx", *NAME).status == 0
    refused = reg("promote", f"{ocr}:0.1.1", "stable", "--dry-run")
    assert refused.status == 8
    assert f"{device} gets nothing of recognizer" in refused.err + refused.out


def test_a_lock_keeps_the_member(reg: Reg, ocr: str) -> None:
    assert reg("lock", ocr, "--member", "recognizer").status == 0
    assert reg("lock", "--check").status == 0
    assert '"member": "recognizer"' in Path("onnxreg.lock").read_text()


def test_a_stage_is_pulled_alone(reg: Reg, ocr: str, tmp_path: Path) -> None:
    assert reg("remote", "add", "origin", str(tmp_path / "remote")).status == 0
    assert reg("push", ocr, "origin").status == 0
    away = ("--registry", str(tmp_path / "away"))
    assert reg(*away, "remote", "add", "origin", str(tmp_path / "remote")).status == 0
    assert reg(*away, "pull", ocr, "origin", "--member", "recognizer").status == 0
    assert reg(*away, "resolve", ocr, "--member", "recognizer").status == 0
    rejected = reg(*away, "resolve", ocr, "--member", "detector", "--json").json["rejected"]
    assert {each["code"] for each in rejected if each["artifact"].startswith("det")} == {"not-held"}
    assert reg(*away, "verify").status == 0


def test_diff_names_a_stage_that_is_gone(reg: Reg, ocr: str) -> None:
    assert reg("add", *DETECTOR, *RECOGNIZER, *NAME).status == 0
    found = reg("diff", f"{ocr}:0.1.0", f"{ocr}:0.1.1", "--json").json
    gone = {change["kind"] for change in found["changes"] if change["severity"] == "breaking"}
    assert {"artifact-removed", "member-removed"} <= gone


def drop_members(artifacts: list[Any]) -> None:
    for artifact in artifacts:
        del artifact["member"]


def swap_members(artifacts: list[Any]) -> None:
    artifacts[0]["member"], artifacts[-1]["member"] = artifacts[-1]["member"], artifacts[0]["member"]


@pytest.mark.parametrize("change", [drop_members, swap_members])
@pytest.mark.parametrize("words", [("show",), ("resolve",), ("resolve", "--member", "detector")])
def test_stages_that_are_not_those_seen_before_are_refused(
    reg: Reg, ocr: str, tmp_path: Path, change: Callable[[list[Any]], None], words: tuple[str, ...]
) -> None:
    """The log is as it was: the lie is in the state line alone."""
    assert reg("resolve", ocr, "--member", "detector").status == 0
    (index,) = tmp_path.rglob("index/acme/ocr.jsonl")
    first, rest = index.read_bytes().split(b"\n", 1)
    state = json.loads(first)
    change(state["summaries"]["0.1.0"]["artifacts"])
    index.chmod(0o600)
    index.write_bytes(json.dumps(state, separators=(",", ":")).encode() + b"\n" + rest)
    verb, *options = words
    assert reg(verb, ocr, *options).status == 4
