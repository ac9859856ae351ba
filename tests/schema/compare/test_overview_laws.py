"""The laws of the overview: every change is in one place, and a severe one is never out of sight."""

import copy
import re
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.schema.edits import at, edited, nodes, parsed

from onnxreg.schema.compare.manifests import ManifestDiff, diff
from onnxreg.schema.compare.overview import DiffOverview, overview
from onnxreg.schema.manifest.manifest import Manifest


def shown(found: DiffOverview) -> list[int]:
    """The positions of the changes in the tables and facts."""
    rows = (*found.artifacts, *found.figures, *found.facts)
    return [position for row in rows for position in row.changes]


def folded(found: DiffOverview) -> list[int]:
    return [position for group in found.folded for position in group.changes]


def check_laws(old: Manifest, new: Manifest) -> tuple[ManifestDiff, DiffOverview]:
    changes, found = overview(old, new)
    assert changes == diff(old, new)
    positions = shown(found) + folded(found)
    assert sorted(positions) == list(range(len(changes.changes)))
    for position in folded(found):
        assert changes.changes[position].severity in ("notable", "cosmetic")
    for position, change in enumerate(changes.changes):
        if change.severity == "breaking":
            assert position in [at for row in found.facts for at in row.changes]
    for group in found.folded:
        assert group.kinds == Counter(changes.changes[position].kind for position in group.changes)
    assert DiffOverview.decode(found.encode()) == found
    return changes, found


@given(st.data())
def test_every_change_is_in_exactly_one_place(full_once: dict[str, Any], data: st.DataObject) -> None:
    old, new = parsed(data.draw(edited(full_once))), parsed(data.draw(edited(full_once)))
    if old is not None and new is not None:
        check_laws(old, new)


def test_every_single_change_is_in_one_place(full: dict[str, Any]) -> None:
    """One field of each kind removed, else replaced, if a manifest is left."""
    old, count = Manifest.from_json(full), 0
    places = {re.sub(r"/[0-9]+", "[]", "/".join(map(str, path))): path for path in nodes(full)}
    for path in places.values():
        value = copy.deepcopy(full)
        del at(value, path[:-1])[path[-1]]
        new = parsed(value)
        if new is None:
            value = copy.deepcopy(full)
            holder, key = at(value, path[:-1]), path[-1]
            holder[key] = f"{holder[key]}x" if isinstance(holder[key], str) else 0.5
            new = parsed(value)
        if new is not None:
            check_laws(old, new)
            count += 1
    assert count > 100
