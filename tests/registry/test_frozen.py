"""The tree that release 0.1 wrote is read by every later build."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.log.log import open_log
from onnxreg.registry.remotes import open_url
from onnxreg.schema.core.errors import HostError
from onnxreg.schema.log.events import KINDS
from onnxreg.schema.query.resolve import Query

FROZEN = Path(__file__).parents[1] / "fixtures" / "registry-v1"
EXPECTED: dict[str, Any] = json.loads((FROZEN / "expected.json").read_text())


@pytest.fixture
def frozen(tmp_path) -> Iterator[Home]:
    shutil.copytree(FROZEN / "tree", tmp_path / "frozen")
    yield Home(tmp_path / "frozen", create=False)


LATER = {"hold", "deltas", "rollout", "timing"}
"""The kinds of event that are younger than the tree."""


def test_it_holds_every_kind_of_event():
    assert {kind for model in EXPECTED["models"].values() for kind in model["kinds"]} == set(KINDS) - LATER


def test_it_is_read_as_it_was_meant(frozen):
    assert frozen.id == EXPECTED["id"]
    assert frozen.names() == sorted(EXPECTED["models"])
    for name, model in EXPECTED["models"].items():
        state = frozen.state(name)
        entries = open_log(frozen.store, name).versions
        assert {str(version): entry.to_json() for version, entry in entries.items()} == model["versions"]
        assert {tag: str(channel.version) for tag, channel in state.channels.items()} == model["channels"]
        assert str(frozen.log(name)[-1].digest) == model["head"]
    resolved = frozen.resolve("acme/pii:stable", Query(formats=("onnx-int8",)))
    assert str(resolved.artifact.digest) == EXPECTED["stable_int8"]


def test_it_verifies_byte_for_byte(frozen):
    frozen.check()


def test_it_can_be_written_on(frozen, tmp_path):
    owner.pin(frozen, "acme/pii:stable")
    owner.gc(frozen, 1)
    frozen.push("acme/pii:stable", str(tmp_path / "there"))
    frozen.check()
    assert not owner.verify(Home(tmp_path / "there")).damages


@pytest.mark.parametrize("verb", ["open", "remote"])
def test_a_later_layout_is_refused(frozen, verb):
    path = frozen.store.root / "registry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout_version": 2, "min_reader": 2}))
    with pytest.raises(HostError, match="layout 2") as caught:
        Home(frozen.store.root) if verb == "open" else open_url(frozen.place)
    assert "upgrade" in caught.value.hint


def test_a_layout_that_only_later_builds_may_write_is_read(frozen):
    path = frozen.store.root / "registry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout_version": 2, "min_writer": 2}))
    later = Home(frozen.store.root)
    assert later.resolve("acme/pii:stable")
    for write in (
        lambda: owner.pin(later, "acme/pii:stable"),
        lambda: later.store.swap_file("search/part", b"part", None),
    ):
        with pytest.raises(HostError, match="newer onnxreg"):
            write()
