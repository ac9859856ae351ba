"""A registry with two models, and a server over it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registries.drafts import write_draft
from support.registries.home import Home
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings


@pytest.fixture(scope="session")
def template(isolated_user, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("filled")
    registry = Registry(root / "home")
    registry.add(write_draft(root / "a", "acme/pii", "a", 100), "0.1.0")
    registry.add(write_draft(root / "b", "acme/pii", "b", 100), "0.2.0")
    registry.tag("acme/pii:0.1.0", "stable")
    registry.add(write_draft(root / "c", "tiny", "c", 100), "1.0.0")
    return registry.store.root


@pytest.fixture
def filled(template, tmp_path) -> Home:
    """`acme/pii` in two versions, `stable` being the first, and `tiny` in one."""
    return Home(shutil.copytree(template, tmp_path / "home"))


@pytest.fixture
def site(filled) -> Iterator[Site]:
    with running(filled.store.root, Settings(behind_proxy=True)) as found:
        yield found
