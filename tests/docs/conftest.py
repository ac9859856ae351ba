"""What the pages of the documentation need to run: one real export for all of them, and servers on this machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.docs import given
from support.docs.shell import Shell
from support.exports import export_android
from support.servers import hub as hubs
from support.servers import regserve

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft


@pytest.fixture(scope="session")
def exported(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Draft:
    """A tiny checkpoint by the android profile, judged on one sentence, twenty times."""
    place = tmp_path_factory.mktemp("exported")
    (place / "suite.jsonl").write_text(given.SUITE)
    (place / "workspace").mkdir()
    options = {"eval_suite": place / "suite.jsonl"}
    return export_android(str(bert), place / "workspace", name="acme/pii", options=options)


@pytest.fixture(scope="session")
def stocked(exported: Draft, isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the registry `home`, and a copy of its models in the registry `shared`."""
    place = tmp_path_factory.mktemp("stocked")
    given.stock(Registry(place / "home", actor="ada"), exported)
    words = ["--quiet", "--registry", str(place / "home"), "push", "--all", "--remote", str(place / "shared")]
    assert main([*words, "--tag", "stable"]) == 0
    return place


@pytest.fixture
def shell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
) -> Shell:
    scratch = tmp_path / "page"
    scratch.mkdir()
    places = {f"/{name}/": f"{scratch}/{name}/" for name in ("srv", "mnt")}
    return Shell(given.World(scratch, request.getfixturevalue, monkeypatch, places), capfd)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hubs.Hub]:
    """An empty Hub that this process, and those that it starts, are logged in to."""
    with hubs.running(tmp_path / "hub") as found:
        found.enter(monkeypatch, tmp_path / "hf")
        yield found


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """`reg serve` of a registry in a directory, until the test ends."""
    with ExitStack() as sites:
        yield lambda root: sites.enter_context(regserve.running(root)).url
