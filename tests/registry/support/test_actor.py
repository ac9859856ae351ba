"""The claimed author of events: the variable, the setting, or user and host; and what never names anybody."""

import getpass
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.support import actor
from onnxreg.registry.support.actor import ClaimedActor, claimed_actor
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The machine `analytical`, where the user is `ada`; its settings file, which does not exist."""
    monkeypatch.delenv("REG_ACTOR")
    settings = tmp_path / "config" / "settings.toml"
    monkeypatch.setattr("onnxreg.registry.support.environment.settings_file", lambda: settings)
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "analytical")
    return settings


def unknown() -> str:
    raise OSError("there is no user of this number")


def test_by_default_it_is_the_user_and_the_host() -> None:
    assert claimed_actor() == ClaimedActor("ada@analytical", "default")


def test_an_unknown_user_or_host_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", unknown)
    assert claimed_actor().name == "analytical"
    monkeypatch.setattr(socket, "gethostname", unknown)
    assert claimed_actor() == ClaimedActor(None, "default")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert claimed_actor().name == "ada"


def test_the_variable_comes_before_the_setting_and_this_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actor.write_setting('Ada Lovelace \U0001f600 \u00e9 "\\')
    assert claimed_actor() == ClaimedActor('Ada Lovelace \U0001f600 \u00e9 "\\', "settings")
    monkeypatch.setenv("REG_ACTOR", "ci")
    assert claimed_actor() == ClaimedActor("ci", "REG_ACTOR")
    monkeypatch.setenv("REG_ACTOR", "")
    assert claimed_actor() == ClaimedActor(None, "REG_ACTOR")
    monkeypatch.delenv("REG_ACTOR")
    actor.write_setting("")
    assert claimed_actor() == ClaimedActor(None, "settings")
    actor.write_setting(None)
    assert claimed_actor().source == "default"


@pytest.mark.parametrize(
    "text", ["actor = 7\n", 'actor = "a\\nb"\n', f'actor = "{"a" * 201}"\n', 'acter = "ada"\n', "actor"]
)
def test_a_malformed_setting_is_an_error_and_names_the_file(text: str, machine: Path) -> None:
    machine.parent.mkdir()
    machine.write_text(text)
    with pytest.raises(InputError, match=r"settings\.toml"):
        claimed_actor()


def test_a_name_that_no_event_may_have_is_not_stored(machine: Path) -> None:
    for name in ("a" * 201, "ada\nlovelace"):
        with pytest.raises(InputError, match="one line of at most 200 characters"):
            actor.write_setting(name)
    assert not machine.exists()


def test_a_name_of_the_machine_always_fits_into_an_event(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, make_draft: MakeDraft
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "a\udc80\n" * 100)
    published = registry.add(make_draft())
    assert registry.log(published.name)[0].event.actor == ("a??" * 67)[:200]


def test_events_name_the_author_and_no_other_byte_of_a_registry_does(
    registry: Registry, other: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = registry.add(make_draft())
    registry.tag(first.ref, "stable")
    assert [line.event.actor for line in registry.log(first.name)] == ["ada@analytical"] * 2
    named = [
        path
        for path in registry.store.root.rglob("*")
        if path.is_file() and b"analytical" in path.read_bytes()
    ]
    assert [path.suffix for path in named] == [".jsonl"]
    monkeypatch.setenv("REG_ACTOR", "")
    again = other.add(make_draft())
    assert again.digest == first.digest
    assert b"actor" not in (other.store.root / "index" / "acme" / "pii.jsonl").read_bytes()


def test_python_names_another_author_or_nobody(tmp_path: Path, make_draft: MakeDraft) -> None:
    for name, recorded in (("grace", "grace"), ("", None), (None, "ada@analytical")):
        registry = Registry(tmp_path / f"of-{recorded}", actor=name)
        published = registry.add(make_draft())
        assert registry.log(published.name)[0].event.actor == recorded
