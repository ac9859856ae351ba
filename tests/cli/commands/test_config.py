"""`reg config` names every place, what decides it, and no secret."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry.support import environment
from onnxreg.registry.support.environment import trust_file

Reg = Callable[..., Any]
PLACES = {"registry", "cache", "keys", "trust", "state"}


def places(value: Any) -> dict[str, Any]:
    return {each["name"]: each for each in value["places"]}


def variables(value: Any) -> dict[str, Any]:
    return {each["name"]: each for each in value["variables"]}


def test_every_place_with_what_decides_it(reg: Reg, home: Path, own_user: Path) -> None:
    done = reg("--registry", home, "config", "--json")
    assert done.status == 0 and done.json.keys() == {"places", "settings", "variables"}
    found = places(done.json)
    assert found.keys() == PLACES
    assert found["registry"] == {
        "name": "registry",
        "path": str(home),
        "source": "--registry",
        "exists": True,
    }
    assert found["cache"]["path"].startswith(str(own_user)) and found["cache"]["source"] == "REG_STATE"
    for name in ("keys", "trust", "state"):
        assert found[name]["path"] == str(own_user / name)
        assert (found[name]["source"], found[name]["exists"]) == (f"REG_{name.upper()}", False)


def test_without_variables_the_places_are_the_defaults(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REG_KEYS", "REG_TRUST", "REG_STATE"):
        monkeypatch.delenv(name)
    found = reg("config", "--json").json
    assert {each["source"] for each in found["places"]} == {"default"}
    assert found["variables"] == []
    assert places(found)["trust"]["path"] == str(trust_file())


def test_a_relative_place_is_shown_in_full(reg: Reg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REG_HOME", "mine")
    found = places(reg("config", "--json").json)["registry"]
    assert (found["path"], found["source"]) == (str(tmp_path / "mine"), "REG_HOME")
    assert not (tmp_path / "mine").exists()


def test_the_variables_that_are_set(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_ACTOR", "ada")
    monkeypatch.setenv("REG_KEYS", "old")
    monkeypatch.setenv("REG_MAX_AGE", "")
    found = variables(reg("config", "--json").json)
    assert found["REG_ACTOR"] == {"name": "REG_ACTOR", "value": "ada", "source": "REG_ACTOR"}
    assert found["REG_KEYS"] == {"name": "REG_KEYS", "value": "old", "source": "REG_KEYS"}
    assert "REG_MAX_AGE" not in found


@pytest.mark.parametrize(
    "name", ["REG_TOKEN_MODELS_EXAMPLE", "REG_SERVE_TOKEN", "REG_KEY_PASSPHRASE", "REG_SIGNING_KEY"]
)
def test_no_secret_is_shown(reg: Reg, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "s3cret")
    done, shown = reg("config", "--json"), reg("config")
    assert variables(done.json)[name]["value"] is None
    assert "s3cret" not in done.out + shown.out
    assert [name, "(secret)", name] in [line.split() for line in shown.out.splitlines()]


def test_a_signing_key_is_shown_by_its_name(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    monkeypatch.setenv("REG_SIGNING_KEY", "release")
    reg("key", "new", "release")
    assert variables(reg("config", "--json").json)["REG_SIGNING_KEY"]["value"] == "release"


def test_config_is_a_table_for_people(reg: Reg, home: Path) -> None:
    lines = reg("--registry", home, "config").out.splitlines()
    assert lines[0].split() == ["PLACE", "PATH", "SET", "BY", "EXISTS"]
    assert lines[1].split() == ["registry", str(home), "--registry", "yes"]
    assert lines[len(PLACES) + 2].split()[0] == "SETTING"
    assert any(line.startswith("VARIABLE") for line in lines)


def test_every_documented_variable_can_be_shown() -> None:
    assert set(environment.VARIABLES) - set(environment.names()) == {"REG_TOKEN_HOST"}


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user `ada` of the machine `analytical`, who set nothing."""
    monkeypatch.delenv("REG_ACTOR")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "analytical")


@pytest.mark.parametrize(
    ("variable", "value", "source"),
    [(None, "ada@analytical", "default"), ("ci", "ci", "REG_ACTOR"), ("", None, "REG_ACTOR")],
)
def test_the_actor_is_shown(
    reg: Reg, ada: None, monkeypatch: pytest.MonkeyPatch, variable: str | None, value: str | None, source: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("REG_ACTOR", variable)
    assert reg("config", "--json").json["settings"] == [{"name": "actor", "value": value, "source": source}]
    assert ["actor", value or "(nobody)", source] in [line.split() for line in reg("config").out.splitlines()]


def test_the_log_names_the_default_actor(
    reg: Reg, home: Path, ada: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", str(home))
    name = "acme/pii"
    for words in (("tag", f"{name}:0.1.0", "beta"), ("untag", f"{name}:beta")):
        assert reg(*words).err == ""
    actors = [line["event"].get("actor") for line in reg("log", name, "--json").json["lines"]]
    assert actors == ["ada"] * 3 + ["ada@analytical"] * (len(actors) - 3)
    assert "ada@analytical" in reg("log", name).out
    monkeypatch.setenv("REG_ACTOR", "")
    assert reg("tag", f"{name}:0.1.0", "beta").err == ""
    assert "actor" not in reg("log", name, "--json").json["lines"][-1]["event"]
