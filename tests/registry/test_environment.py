"""Variables of `reg`, accounts without a home, and the claimed author of events."""

import getpass
import os
import socket

import pytest
from support.registries.home import Home

from onnxreg.cli.main import main
from onnxreg.registry import system
from onnxreg.registry.system import actor_of_event

PLACES = {
    "REG_KEYS": system.key_directory,
    "REG_TRUST": system.trust_file,
    "REG_STATE": system.state_directory,
}


@pytest.mark.parametrize("name", PLACES)
def test_a_variable_names_a_place(name, monkeypatch, tmp_path):
    monkeypatch.setenv(name, str(tmp_path / "present"))
    assert PLACES[name]() == tmp_path / "present"


def test_an_account_without_a_home(registry, tmp_path, monkeypatch, capsys):
    """It has no settings, no known heads and no default registry; all else works."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(system, "NO_HOME", tmp_path / "file" / "home")
    (tmp_path / "file").write_bytes(b"")
    for name in ("HOME", "REG_HOME", "REG_STATE", "REG_KEYS", "REG_TRUST", "REG_ACTOR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    registry.make()
    home = ["--registry", registry.place]
    for words in ("ls", "resolve acme/pii", "verify", f"push acme/pii {tmp_path / 'share'}", "gc", "config"):
        status = main([*(home if words != "config" else []), *words.split()])
        assert status == (9 if words == "config" else 0), capsys.readouterr().err
    assert "REG_HOME" in capsys.readouterr().err


@pytest.fixture
def machine(monkeypatch):
    """The machine `analytical`, where the user is `ada`."""
    monkeypatch.delenv("REG_ACTOR")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "analytical")


def unknown() -> str:
    raise OSError("there is no user of this number")


def test_it_is_the_variable_or_the_user_and_the_host(machine, monkeypatch):
    assert actor_of_event(None) == "ada@analytical"
    monkeypatch.setattr(getpass, "getuser", unknown)
    assert actor_of_event(None) == "analytical"
    monkeypatch.setattr(socket, "gethostname", unknown)
    assert actor_of_event(None) is None
    for value, recorded in (("ci", "ci"), ("", None)):
        monkeypatch.setenv("REG_ACTOR", value)
        assert actor_of_event(None) == recorded
    assert (actor_of_event("grace"), actor_of_event("")) == ("grace", None)


def test_a_name_of_the_machine_always_fits_into_an_event(machine, monkeypatch, registry):
    monkeypatch.setattr(getpass, "getuser", lambda: "a\udc80\n" * 100)
    published = registry.make()
    assert registry.log(published.name)[0].event.actor == ("a??" * 67)[:200]


def test_events_name_the_author_and_no_other_byte_of_a_registry_does(machine, registry, other, monkeypatch):
    first = registry.make()
    registry.tag(first.ref, "stable")
    assert [line.event.actor for line in registry.log(first.name)] == ["ada@analytical"] * 2
    named = [
        path
        for path in registry.store.root.rglob("*")
        if path.is_file() and b"analytical" in path.read_bytes()
    ]
    assert [path.suffix for path in named] == [".jsonl"]
    monkeypatch.setenv("REG_ACTOR", "")
    again = other.make()
    assert again.digest == first.digest
    assert b"actor" not in (other.store.root / "index" / "acme" / "pii.jsonl").read_bytes()


def test_python_names_another_author_or_nobody(machine, tmp_path):
    for name, recorded in (("grace", "grace"), ("", None), (None, "ada@analytical")):
        registry = Home(tmp_path / f"of-{recorded}", actor=name)
        assert registry.log(registry.make().name)[0].event.actor == recorded
