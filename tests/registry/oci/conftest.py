"""An OCI registry in memory, a version in it, and nobody's credentials."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registries.home import Home
from support.servers import oci
from support.servers.oci import Oci


@pytest.fixture(autouse=True)
def auth_file(tmp_path, monkeypatch) -> Path:
    """The only file of credentials, which does not exist yet."""
    path = tmp_path / "auth.json"
    for variable in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(path))
    return path


@pytest.fixture
def server() -> Iterator[Oci]:
    with oci.running() as found:
        yield found


@pytest.fixture(scope="session")
def template(isolated_user, tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("filled") / "home")
    home.make("1.0.0")
    return home


@pytest.fixture
def filled(template, tmp_path) -> Home:
    """A registry with version 1.0.0 of acme/pii."""
    return template.copied(tmp_path / "home")
