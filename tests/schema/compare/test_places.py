"""Each change names the places of its two values in the manifests, whatever moved."""

from copy import deepcopy
from typing import Any

import pytest

from onnxreg.schema.compare.manifests import diff, located_changes
from onnxreg.schema.core import pointer
from onnxreg.schema.manifest.manifest import Manifest


def changed(full: dict[str, Any]) -> dict[str, Any]:
    """Artifacts, files, checks and tensors in another order, with some values changed, added and removed."""
    value = deepcopy(full)
    value["artifacts"].reverse()
    value["files"].reverse()
    for artifact in value["artifacts"]:
        artifact["opset_imports"] = {"ai.onnx": 19, "x~/y": 1}
        artifact["metadata"]["inputs"].reverse()
        artifact.get("checks", []).reverse()
        artifact["reproducible"] = False
    value["recipe"]["tools"]["torch"] = "3.0"
    value["labels"] = [*value["labels"][::-1], "AGE"]
    del value["license"]
    return value


@pytest.mark.parametrize("back", [False, True])
def test_the_places_hold_the_values(full: dict[str, Any], back: bool) -> None:
    old, new = full, changed(full)
    if back:
        old, new = new, old
    manifests = Manifest.from_json(old), Manifest.from_json(new)
    changes = located_changes(*manifests)
    assert [change for change, _ in changes] == list(diff(*manifests).changes)
    assert len(changes) > 15
    for change, delta in changes:
        before, after = delta.pointers
        for side, place, value in ((old, before, change.old), (new, after, change.new)):
            assert value is None if place is None else pointer.find(side, place) == value, change.path
        assert (before is None) == change.kind.endswith("added")
        assert (after is None) == change.kind.endswith("removed")
