"""The claimed author of events: the variable, or user and host; and what never names anybody."""

import getpass
import socket
from pathlib import Path

import pytest
from support.registries.home import Home

from onnxreg.registry.support.environment import actor_of_event


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine `analytical`, where the user is `ada`."""
    monkeypatch.delenv("REG_ACTOR")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "analytical")


def unknown() -> str:
    raise OSError("there is no user of this number")


def test_it_is_the_variable_or_the_user_and_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert actor_of_event(None) == "ada@analytical"
    monkeypatch.setattr(getpass, "getuser", unknown)
    assert actor_of_event(None) == "analytical"
    monkeypatch.setattr(socket, "gethostname", unknown)
    assert actor_of_event(None) is None
    for value, recorded in (("ci", "ci"), ("", None)):
        monkeypatch.setenv("REG_ACTOR", value)
        assert actor_of_event(None) == recorded
    assert (actor_of_event("grace"), actor_of_event("")) == ("grace", None)


def test_a_name_of_the_machine_always_fits_into_an_event(
    monkeypatch: pytest.MonkeyPatch, registry: Home
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "a\udc80\n" * 100)
    published = registry.make()
    assert registry.log(published.name)[0].event.actor == ("a??" * 67)[:200]


def test_events_name_the_author_and_no_other_byte_of_a_registry_does(
    registry: Home, other: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_python_names_another_author_or_nobody(tmp_path: Path) -> None:
    for name, recorded in (("grace", "grace"), ("", None), (None, "ada@analytical")):
        registry = Home(tmp_path / f"of-{recorded}", actor=name)
        assert registry.log(registry.make().name)[0].event.actor == recorded
