"""An export again, by another process and in another place: the same bytes, and nothing new."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import EXPORT
from support.servers.hub import Hub, Repository, running

from onnxreg.cli.main import main

pytestmark = pytest.mark.more


@pytest.mark.large
def test_another_process_publishes_nothing_new_and_bytes_do_not_depend_on_place_or_hash_seed(
    reg, exported, environment, tmp_path
):
    again = json.loads(reg(*EXPORT, exported.checkpoint).stdout)
    assert {**again, "output": exported.printed["output"], "new": True} == exported.printed
    (tmp_path / "a-checkpoint").symlink_to(exported.checkpoint)
    environment |= {"PYTHONHASHSEED": "1234", "REG_HOME": str(tmp_path / "elsewhere")}
    again = json.loads(reg(*EXPORT, "a-checkpoint", "--no-cache", "--output", "out").stdout)
    assert again["digest"] == exported.printed["digest"]
    needles = [str(tmp_path).encode(), str(exported.checkpoint).encode(), b"a-checkpoint"]
    published = [path for path in tmp_path.rglob("*") if path.is_file() and "local" not in path.parts]
    assert len(published) > 10
    for path in published:
        data = path.read_bytes()
        assert not [needle for needle in needles if needle in data], path


# A checkpoint by its hub id, from an emulator of the Hub by the real client: pinned, and asked for each time


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as found:
        found.enter(monkeypatch, tmp_path / "hf")
        yield found


def upload(hub: Hub, checkpoint: Path) -> str:
    """The commit that holds it now."""
    if "models/acme/tagger" not in hub.repositories:
        hub.repositories["models/acme/tagger"] = Repository()
        hub.repositories["models/acme/tagger"].add("main", "new", {})
    hub.commit("acme/tagger", {path.name: path.read_bytes() for path in checkpoint.iterdir()})
    return hub.history("acme/tagger")[-1].id


def test_a_source_of_the_hub_is_pinned_and_asked_for_each_time(hub, make_checkpoint, tmp_path, capfd):
    def export(source: str = "acme/tagger@main") -> Any:
        words = ["export", source, "--task", "token-classification", "--json"]
        assert main(["--registry", str(tmp_path / "home"), *words]) == 0
        return json.loads(capfd.readouterr().out)

    first = upload(hub, make_checkpoint(seed=1))
    one = export()
    assert (one["name"], one["version"]) == ("acme/tagger", "0.1.0")
    assert one["manifest"]["source"]["id"] == "acme/tagger"
    assert one["manifest"]["source"]["revision"] == first
    assert export() == {**one, "new": False}
    second = upload(hub, make_checkpoint(seed=2))
    two = export()
    assert (two["version"], two["manifest"]["source"]["revision"]) == ("0.1.1", second)
    assert export(f"acme/tagger@{first}")["digest"] == one["digest"]
