"""An export again, by another process and in another place: the same bytes, and nothing new."""

import json

import pytest
from e2e.conftest import EXPORT


def test_exporting_again_publishes_nothing_new(reg, exported):
    again = json.loads(reg(*EXPORT, exported.checkpoint).stdout)
    assert {**again, "output": exported.printed["output"], "new": True} == exported.printed


@pytest.mark.more
def test_bytes_do_not_depend_on_place_process_or_hash_seed(reg, export, environment, tmp_path):
    (tmp_path / "a-checkpoint").symlink_to(export.checkpoint)
    environment |= {"PYTHONHASHSEED": "1234"}
    again = json.loads(reg(*EXPORT, "a-checkpoint", "--output", "out").stdout)
    assert again["digest"] == export.printed["digest"]
    needles = [str(tmp_path).encode(), str(export.checkpoint).encode(), b"a-checkpoint"]
    published = [path for path in tmp_path.rglob("*") if path.is_file() and "local" not in path.parts]
    assert len(published) > 10
    for path in published:
        data = path.read_bytes()
        assert not [needle for needle in needles if needle in data], path
