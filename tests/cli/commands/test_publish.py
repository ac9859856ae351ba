"""`reg push` and `reg import oci://`, as they are typed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries.drafts import write_draft
from support.servers.docker_registry import OciServer, docker_registry

from onnxreg.registry import Registry

Reg = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    with docker_registry(tmp_path_factory.mktemp("oci")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    registry = Registry(tmp_path / "home")
    registry.add(write_draft(tmp_path / "files", "acme/pii", "a", 100), "1.0.0")
    return registry.store.root


def test_a_version_travels_to_another_home(reg: Reg, home: Path, server: OciServer, tmp_path: Path) -> None:
    url = server.url("cli/pii")
    answer = reg("--registry", home, "push", "acme/pii", url, "--json")
    assert answer.status == 0, answer.err
    value = json.loads(answer.out)
    assert {**value, "digest": 0, "bytes": 0} == {
        "ref": "acme/pii:1.0.0",
        "url": f"{url}:1.0.0",
        "digest": 0,
        "blobs": 7,
        "bytes": 0,
        "referrers": 1,
    }
    imported = reg("--registry", tmp_path / "other", "import", f"{url}@{value['digest']}", "--json")
    assert imported.status == 0, imported.err
    assert json.loads(imported.out)["digest"] == str(Registry(home).get("acme/pii").digest)
    again = reg("--registry", home, "push", "acme/pii", url)
    assert (again.status, "sent 0 blobs" in again.out) == (0, True)


def test_exit_statuses(reg: Reg, home: Path, server: OciServer, tmp_path: Path) -> None:
    url = server.url("cli/statuses:latest")
    assert reg("--registry", home, "push", "acme/pii", url).status == 0
    Registry(home).add(write_draft(tmp_path / "more", "acme/pii", "b", 100), "2.0.0")
    assert reg("--registry", home, "push", "acme/pii", url).status == 5
    assert reg("--registry", home, "push", "acme/*", url).status == 2
    assert reg("--registry", home, "push", "acme/pii:9.9.9", url).status == 3
    other = ("--registry", tmp_path / "other", "import")
    assert reg(*other, server.url("cli/statuses:none")).status == 3
    assert reg(*other, url, "--name", "acme/another").status == 2
    assert reg(*other, tmp_path).status == 2
