"""Every variable of `reg` is read by one module, by its present name or by its former one."""

import os
from pathlib import Path

import pytest
from support.registries.home import Home

from onnxreg.cli.main import main
from onnxreg.registry.support import environment

PLACES = {
    "REG_KEYS": environment.key_directory,
    "REG_TRUST": environment.trust_file,
    "REG_STATE": environment.state_directory,
}


@pytest.mark.parametrize("name", PLACES)
def test_a_variable_names_a_place(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, str(tmp_path / "present"))
    assert PLACES[name]() == tmp_path / "present"


def test_an_account_without_a_home(
    registry: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no settings, no known heads and no default registry; all else works."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(environment, "NO_HOME", tmp_path / "file" / "home")
    (tmp_path / "file").write_bytes(b"")
    for name in ("HOME", "REG_HOME", "REG_STATE", "REG_KEYS", "REG_TRUST", "REG_ACTOR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    registry.make()
    home = ["--registry", registry.place]
    for words in ("ls", "resolve acme/pii", "verify", f"push acme/pii {tmp_path / 'share'}", "gc", "config"):
        status = main([*(home if words != "config" else []), *words.split()])
        assert status == (9 if words == "config" else 0), capsys.readouterr().err
    assert "REG_HOME" in capsys.readouterr().err
