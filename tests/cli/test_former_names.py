"""A variable under its former name works, and one line on stderr says what it is called now."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]
WARNING = "ONNXREG_KEYS is now REG_KEYS; the next release does not read the former names"


@pytest.fixture
def former(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of keys, under its former name."""
    monkeypatch.delenv("REG_KEYS")
    monkeypatch.setenv("ONNXREG_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    return tmp_path / "keys"


def test_one_warning_and_the_work(reg: Reg, former: Path) -> None:
    done = reg("key", "new", "release")
    assert (done.status, done.err) == (0, f"warning: {WARNING}\n")
    assert (former / "release.pem").is_file()


def test_as_json_the_warning_is_json_on_stderr(reg: Reg, former: Path, home: Path) -> None:
    for words in (["key", "list", "--json"], ["--registry", home, "ls", "--json"]):
        done = reg(*words)
        assert (done.status, json.loads(done.err)) == (0, {"warning": WARNING})
        assert done.json


def test_quiet_warns_of_nothing(reg: Reg, former: Path) -> None:
    assert reg("--quiet", "key", "list").err == ""


def test_several_names_are_one_line(reg: Reg, former: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXREG_TRUST", "mine.toml")
    assert "ONNXREG_TRUST" not in reg("key", "list").err
    monkeypatch.delenv("REG_TRUST")
    (line,) = reg("key", "list").err.splitlines()
    assert "ONNXREG_KEYS is now REG_KEYS, ONNXREG_TRUST is now REG_TRUST;" in line


def test_a_key_under_the_former_name_signs(
    reg: Reg, former: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reg("key", "new", "release")
    monkeypatch.setenv("ONNXREG_SIGNING_KEY", "release")
    done = reg("--registry", home, "tag", "tiny", "beta")
    assert done.status == 0 and "ONNXREG_SIGNING_KEY is now REG_SIGNING_KEY" in done.err
    *_, last = reg("--registry", home, "log", "tiny", "--json").json["lines"]
    assert (last["event"]["kind"], last["signed"]["status"]) == ("tag", "unknown")
