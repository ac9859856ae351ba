"""`reg resolve` and `reg builtin devices` on the command line: options, devices from files, reasons, a lying index."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version

Reg = Callable[..., Any]
MODEL = "acme/fleet"
pytestmark = pytest.mark.usefixtures("fleet")


def resolved(reg: Reg, *words: object) -> tuple[str, str]:
    found = reg("resolve", MODEL, *words, "--json").json
    return found["version"], found["artifact"]["path"]


def codes(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["version"], each["artifact"], each["code"]) for each in found["rejected"]]


@pytest.mark.parametrize(
    ("words", "version", "path"),
    [
        ([], "1.1.0", "model.ort"),
        (["--format", "onnx-int8"], "1.1.0", "int8.onnx"),
        (["--precision", "int8"], "1.1.0", "int8.onnx"),
        (["--format", "ort"], "1.1.0", "model.ort"),
        (["--format", "ort", "--format", "onnx"], "1.1.0", "model.ort"),
        (["--precision", "float32"], "1.1.0", "model.ort"),
        (["--certified"], "1.0.0", "int8.onnx"),
        (["--max-size", "3120"], "1.1.0", "model.ort"),
        (["--max-size", "3.12kB", "--precision", "float32"], "1.1.0", "model.ort"),
        (["--min-recall", "PHONE=0.96"], "1.1.0", "int8.onnx"),
        (["--where", "opset = 18"], "1.0.0", "model.ort"),
        (["--device", "ort-android-1.18", "--precision", "float32"], "1.1.0", "model.ort"),
        (["--device", "ort-android-1.16", "--precision", "float32"], "1.0.0", "model.ort"),
        (["--device", "ort-android-1.16"], "1.1.0", "int8.onnx"),
        (["--device", "ort-web-1.17", "--format", "onnx"], None, None),
        (["--device", "ort-web-1.18", "--format", "onnx"], "1.1.0", "model.onnx"),
    ],
)
def test_resolve_options_choose_an_artifact(
    reg: Reg, words: list[str], version: str | None, path: str | None
) -> None:
    done = reg("resolve", MODEL, *words, "--json")
    assert done.status == (0 if version else 3)
    found = done.json
    assert found["version"] == version
    assert (found["artifact"] or {"path": None})["path"] == path


def test_the_json_is_as_documented(reg: Reg, fleet: Registry) -> None:
    found = reg(
        "resolve", MODEL, "--device", "ort-android-1.17", "--format", "onnx", "--format", "ort", "--json"
    ).json
    assert list(found) == ["name", "version", "manifest", "size", "artifact", "files", "rejected"]
    assert (found["name"], found["version"]) == (MODEL, "1.0.0")
    assert found["manifest"] == str(fleet.find(f"{MODEL}:1.0.0").entry.manifest)
    assert found["size"] == 3000 + 120 == sum(file["size"] for file in found["files"])
    assert codes(found) == [
        ("1.1.0", "model.onnx", "opset"),
        ("1.1.0", "model.ort", "opset"),
        ("1.1.0", "int8.onnx", "format"),
        ("1.0.0", "model.onnx", "ir-version"),
        ("1.0.0", "int8.onnx", "format"),
    ]
    for file in found["files"]:
        data = Path(file["url"].removeprefix("file://")).read_bytes()
        assert str(Digest.of(data)) == file["digest"]


def test_nothing_answers(reg: Reg) -> None:
    words = ("resolve", MODEL, "--format", "ort", "--certified")
    done = reg(*words)
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith(
        f"error: no artifact of {MODEL} answers the query\nhint: 1.1.0 model.ort is unknown"
    )
    explained = reg(*words, "--explain")
    assert explained.status == 3 and "not-certified" in explained.out
    found = reg(*words, "--json")
    assert found.status == 3 and found.error["family"] == "not-found"
    value = found.json
    assert (value["artifact"], value["version"], value["size"], value["files"]) == (None, None, None, [])
    assert len(value["rejected"]) == 6


def test_the_nearest_misses_are_named_first(reg: Reg) -> None:
    hint = reg("resolve", MODEL, "--precision", "int8", "--max-size", "5B").err.splitlines()[1]
    assert (
        hint
        == "hint: "
        + "; ".join(
            f"{version} int8.onnx takes 1120 bytes to download, at most 5 are wanted"
            for version in ("1.1.0", "1.0.0")
        )
        + "; 1.1.0 model.onnx is float32, wanted int8"
    )


def test_rejections_for_people(reg: Reg, fleet: Registry) -> None:
    fleet.yank(f"{MODEL}:1.1.0")
    shown = reg("resolve", MODEL, "--format", "ort").out
    assert "1.1.0    " in shown and "is yanked" in shown
    assert "int8.onnx   format  is onnx-int8, wanted ort" in shown


def test_many_rejections_are_listed_when_asked_for(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxreg.cli.commands.resolve.MAX_REJECTIONS", 1)
    words = ("resolve", MODEL, "--format", "onnx-int8")
    few, all_of_them = reg(*words).out, reg(*words, "--explain").out
    assert (
        few.endswith("and 1 more, which --explain lists\n") and "model.ort" not in few.split("not chosen")[1]
    )
    assert "model.ort" in all_of_them.split("not chosen")[1]


def device_file(path: Path, **more: Any) -> Path:
    path.write_text(json.dumps({"ort": "1.23", **more}))
    return path


def test_a_device_file(reg: Reg, tmp_path: Path) -> None:
    assert resolved(reg, "--device", device_file(tmp_path / "a.json", ram="2kB")) == ("1.1.0", "int8.onnx")
    assert resolved(reg, "--device", device_file(tmp_path / "any name")) == ("1.1.0", "model.ort")


def test_a_minimal_build_by_its_config_file(reg: Reg, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "ops.config").write_text(
        'ai.onnx;13;MatMul{"inputs": {"0": ["float"]}}\nai.onnx;20;Gelu\n'
    )
    small = device_file(tmp_path / "small.json", build="minimal", operators="ai.onnx;13;MatMul")
    whole = device_file(tmp_path / "whole.json", build="minimal", operators_file="build/ops.config")
    assert resolved(reg, "--device", whole) == ("1.1.0", "model.ort")
    done = reg("resolve", MODEL, "--device", small, "--json")
    assert done.status == 3
    assert {code for _, path, code in codes(done.json) if path == "model.ort"} == {"operators"}
    assert "needs ai.onnx:Gelu (opset 20), which this build lacks" in done.error["hint"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"ort": "1.23"', "is not valid JSON"),
        ("[]", "holds 0 devices"),
        ('[{"ort": "1.23"}, {"ort": "1.22"}]', "holds 2 devices"),
        ('{"ort": "0.9"}', "older than 1.15"),
        ('{"ort": "1.23", "operators_file": "gone"}', "operators_file: "),
        ('{"ort": "1.23", "operators_file": 5}', "operators_file is not a path"),
        ('{"ort": "1.23", "build": "minimal", "operators": "x"}', "line 1 of the operator config"),
        ('"1.23"', "not an object"),
    ],
)
def test_a_malformed_device_file(reg: Reg, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "device.json").write_text(content)
    done = reg("resolve", MODEL, "--device", "device.json", "--json")
    assert (done.status, done.error["family"]) == (2, "input")
    assert message in done.error["message"] and "device.json" in done.error["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "ort-andriod-1.23"], "there is no device preset"),
        (["--max-size", "30 MB"], "not a size"),
        (["--min-recall", "PHONE"], "not a least recall"),
        (["--min-recall", "PHONE=1.5"], "not a least recall"),
        (["--min-recall", "=0.5"], "not a least recall"),
        (["--where", "opset >="], "it ends here"),
    ],
)
def test_malformed_options(reg: Reg, words: list[str], message: str) -> None:
    done = reg("resolve", MODEL, *words)
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize("place", ["missing.json", "./android"])
def test_a_device_file_that_is_not_there(reg: Reg, place: str) -> None:
    done = reg("resolve", MODEL, "--device", place)
    assert done.status == 3
    assert f"there is no device file {place}" in done.err


def lie(registry: Registry) -> None:
    """Call the int8 graph of 1.1.0 certified, in the index alone."""
    path = registry.store.root / "index" / "acme" / "fleet.jsonl"
    path.chmod(0o644)
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"state":"unknown"', b'"state":"certified"'))
    assert path.read_bytes() != good


def test_a_lying_index_is_found_out(reg: Reg, fleet: Registry, tmp_path: Path) -> None:
    words = ("resolve", MODEL, "--verify", "--json")
    assert reg(*words).status == 0
    lie(fleet)
    seen = reg(*words[:2], "--json")
    assert (seen.status, seen.error["message"]) == (
        4,
        f"the index says other things of {MODEL}:1.0.0 than before",
    )
    KnownHeads().reset(fleet.id)
    assert reg(*words[:2], "--json").json["artifact"]["state"] == "certified"
    done = reg(*words)
    assert (done.status, done.error["family"]) == (4, "integrity")
    assert "says other things of manifest" in done.error["message"]
    pulled = reg("--registry", tmp_path / "mine", "pull", f"{MODEL}:1.1.0", fleet.store.root)
    assert pulled.status == 4 and "says other things of manifest" in pulled.err
    pushed = reg("push", f"{MODEL}:1.1.0", tmp_path / "there")
    assert pushed.status == 4
    assert reg("verify").status == 4


def test_verify_reads_the_manifest_of_an_older_version_anyway(reg: Reg, fleet: Registry) -> None:
    assert reg("resolve", f"{MODEL}:stable", "--verify").status == 0


def test_a_damaged_operator_set_is_no_reason_to_offer(reg: Reg, fleet: Registry, tmp_path: Path) -> None:
    state = fleet.state(MODEL)
    digest = state.summaries[Version.parse("1.1.0")].artifacts[1].operators
    place = Path(fleet.store.blob_url(digest).removeprefix("file://"))
    place.chmod(0o644)
    place.write_bytes(b"[]")
    device = device_file(tmp_path / "d.json", build="minimal", operators="ai.onnx;13;MatMul")
    done = reg("resolve", MODEL, "--device", device)
    assert (done.status, "damaged" in done.err) == (4, True)


def test_devices(reg: Reg) -> None:
    shown = reg("builtin", "devices").out.splitlines()
    assert shown[0].split()[0] == "DEVICE"
    listed = reg("builtin", "devices", "--json").json["devices"]
    assert len(listed) == len(shown) - 1
    android = next(each for each in listed if each["name"] == "ort-android-1.23")
    assert (android["opset"], android["ir_version"], android["ort_formats"]) == (23, 11, [5, 6])
    assert android["providers"] == ["CPU", "NNAPI", "XNNPACK"] and android["source"].startswith("Maven")
    for each in listed[::10]:
        assert reg("resolve", MODEL, "--device", each["name"], "--json").status == 0
