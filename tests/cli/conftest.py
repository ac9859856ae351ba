"""The command line called in this process, and registries made of a few bytes."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.command_line import Outcome, Reg, make_draft, make_fleet, make_template

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No registry, colour or width of the machine's user; a working directory of the test's own."""
    own = "REG_HOME", "REG_MAX_AGE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "_REG_COMPLETE"
    for name in own:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def reg(capfdbinary: pytest.CaptureFixture[bytes]) -> Reg:
    """Run `reg` with these words in this process."""

    def run(*words: object) -> Outcome:
        capfdbinary.readouterr()
        status = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Outcome(status, out.decode(), err.decode())

    return run


@pytest.fixture
def draft() -> Callable[..., Draft]:
    return make_draft


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    """A registry with two versions of `acme/pii` and one of `tiny`; the channel `stable` is the first."""
    return Path(shutil.copytree(template, tmp_path / "home"))


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The same as the registry of every command."""
    monkeypatch.setenv("REG_HOME", str(home))
    return Registry(home)


@pytest.fixture(scope="session")
def fleet_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("fleet")).store.root


@pytest.fixture
def fleet(fleet_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A model of two versions for devices to ask, in the registry of every command."""
    registry = Registry(shutil.copytree(fleet_template, tmp_path / "fleet"))
    monkeypatch.setenv("REG_HOME", str(registry.store.root))
    return registry


@pytest.fixture
def other_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Path]]:
    """Copy a registry to where another user of this machine may read it; state and trust lie beside the copy."""
    with TemporaryDirectory(dir="/tmp") as above:
        Path(above).chmod(0o755)

        def copy(home: Path) -> Path:
            for own in ("STATE", "TRUST"):
                monkeypatch.setenv(f"REG_{own}", str(Path(above) / "own" / own.lower()))
            (Path(above) / "own").mkdir()
            (Path(above) / "own" / "trust").touch(0o644)
            return Path(shutil.copytree(home, Path(above) / "home"))

        yield copy
