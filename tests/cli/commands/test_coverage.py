"""`reg coverage`: what each device of a fleet gets, and that a stranded one shuts the gate."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry

Reg = Callable[..., Any]
MODEL = "acme/fleet"
pytestmark = pytest.mark.usefixtures("fleet")


@pytest.fixture
def phones(tmp_path: Path) -> Path:
    """Three phones: a stock one, an old one, and one that can hold next to nothing."""
    devices = [
        {"name": "new", "ort": "1.23"},
        {"name": "old", "ort": "1.16"},
        {"ort": "1.23", "free_space": "1kB"},
    ]
    path = tmp_path / "phones.json"
    path.write_text(json.dumps(devices))
    return path


def test_a_covered_fleet(reg: Reg) -> None:
    done = reg(
        "coverage",
        MODEL,
        "--devices",
        "ort-android-1.23",
        "--devices",
        "ort-ios-1.17",
        "--format",
        "ort",
        "--json",
    )
    assert done.status == 0
    assert (done.json["ref"], done.json["stranded"]) == (MODEL, 0)
    android, ios = done.json["devices"]
    assert list(android) == ["device", "version", "manifest", "size", "artifact", "rejected"]
    assert (android["device"], android["version"], android["size"]) == ("ort-android-1.23", "1.1.0", 3120)
    assert (ios["device"], ios["version"], ios["artifact"]["path"]) == ("ort-ios-1.17", "1.0.0", "model.ort")


def test_an_unsigned_version_covers_nothing_if_signatures_are_required(reg: Reg, own_user: Path) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text("[[require]]\nversions = true\n")
    done = reg("coverage", MODEL, "--devices", "ort-android-1.23", "--json")
    assert (done.status, done.error["family"], done.out) == (4, "integrity", "")


def test_each_device_gets_what_resolve_gives_it(reg: Reg) -> None:
    names = ("ort-web-1.16", "ort-webgpu-1.30", "ort-desktop-1.20")
    words = [word for name in names for word in ("--devices", name)]
    covered = reg("coverage", MODEL, *words, "--precision", "float32", "--json").json["devices"]
    for name, found in zip(names, covered, strict=True):
        alone = reg("resolve", MODEL, "--device", name, "--precision", "float32", "--json").json
        assert found == {"device": name} | {key: alone[key] for key in found if key != "device"}


def test_a_stranded_device_shuts_the_gate(reg: Reg, phones: Path) -> None:
    done = reg("coverage", MODEL, "--devices", phones)
    assert done.status == 8
    assert "1 device of 3 get nothing of acme/fleet: phones[2]" in done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[1][:4] == ["new", "1.1.0", "model.ort", "ort"]
    assert rows[3][0] == "phones[2]" and "space" not in rows[3][1] and "bytes" in rows[3]
    value = reg("coverage", MODEL, "--devices", phones, "--json")
    assert value.status == 8 and value.error["family"] == "gate"
    assert value.json["stranded"] == 1
    stranded = value.json["devices"][2]
    assert (stranded["version"], stranded["artifact"]) == (None, None)
    assert {each["code"] for each in stranded["rejected"]} == {"space"}


def test_a_version_that_is_named_gives_way_to_no_other(reg: Reg, phones: Path) -> None:
    words = ("coverage", "--devices", phones, "--precision", "float32", "--where", "size > 0", "--json")
    assert reg(*words, MODEL).json["stranded"] == 1
    assert reg(*words, f"{MODEL}:1.1.0").json["stranded"] == 2
    assert reg(*words, f"{MODEL}:stable").json["stranded"] == 1


def test_a_gate_before_a_promotion(reg: Reg) -> None:
    words = ("coverage", "--devices", "ort-android-1.23", "--certified")
    assert reg(*words, f"{MODEL}:1.0.0").status == 0
    assert reg(*words, f"{MODEL}:1.1.0").status == 8


def test_coverage_at_a_remote_is_the_same(reg: Reg, fleet: Registry, tmp_path: Path) -> None:
    words = ("coverage", MODEL, "--devices", "ort-web-1.23", "--json")
    here = reg(*words).json
    there = reg("--registry", tmp_path / "none", *words, "--remote", fleet.store.root).json
    assert there == here


def test_absent_models_versions_and_devices(reg: Reg) -> None:
    assert reg("coverage", "acme/nobody", "--devices", "ort-web-1.23").status == 3
    assert reg("coverage", f"{MODEL}:9.9.9", "--devices", "ort-web-1.23").status == 3
    assert reg("coverage", MODEL, "--devices", "ort-web-9").status == 2
    assert reg("coverage", MODEL).status == 2


def test_a_fleet_of_nobody_is_no_gate(reg: Reg, tmp_path: Path) -> None:
    (tmp_path / "nobody.json").write_text("[]")
    done = reg("coverage", MODEL, "--devices", tmp_path / "nobody.json")
    assert done.status == 2
    assert "no device is described" in done.err
