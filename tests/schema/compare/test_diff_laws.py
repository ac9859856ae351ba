"""The laws of the diff and its overview: nothing goes unreported or out of sight, the reverse mirrors."""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from support.schema.edits import MATCHED_BY, Path, at, copied, edited, nodes, parsed, sha

from onnxreg.schema.compare.json_changes import JsonChange, compare
from onnxreg.schema.compare.manifests import Change, ManifestDiff, diff, located_changes
from onnxreg.schema.compare.overview import DiffOverview, overview
from onnxreg.schema.compare.severity import LISTS, RULES
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.document import Document
from onnxreg.schema.manifest.manifest import Manifest

FAMILY = "model_family"
"""Stands in the manifests of families only: `test_family.py` changes what these hold."""

OPEN = {
    *("recipe.steps[].params.least*", "recipe.parameters.search.candidates*"),
    *("quantization.quant_recall_delta", "artifacts[].metadata.quant_recall_delta"),
    *("artifacts[].metadata.certified", "artifacts[].metadata.quantization*", "artifacts[].latency*"),
}
"""Fields of objects whose keys are those of a pass, of a manifest of version 1, or of the log."""


def place(path: Path) -> str:
    """A path in the notation of `Spot.pattern`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += "[]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key):
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key)}]"
    return text


def names_it(delta: JsonChange, path: Path) -> bool:
    """Whether a difference stands at the field, below it, or at what holds it; the top does not count."""
    here, there = place(path), delta.at.pattern
    return bool(there) and (
        here == there
        or here.startswith((f"{there}.", f"{there}["))
        or there.startswith((f"{here}.", f"{here}["))
    )


def others(value: Any) -> list[Any]:
    """Other values for a field, among them such as only JSON's types tell apart."""
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, int | float):
        return [value + 1, str(value)]
    if isinstance(value, str):
        return [sha(999) if value.startswith("sha256:") else f"{value}x"]
    if isinstance(value, list) and value:
        return [value[:-1], [*value, value[0]], value[::-1] if len(value) > 1 else []]
    return [None]


def test_no_change_goes_unreported(full):
    """Every field of a full manifest, changed to what a model would allow and to what none would."""
    paths = [
        path for path in nodes(full) if not (isinstance(path[-1], int) and isinstance(at(full, path), dict))
    ]
    assert len(paths) > 300
    for path in paths:
        for other in others(at(full, path)):
            new = copied(full)
            at(new, path[:-1])[path[-1]] = other
            deltas = list(compare(full, new, LISTS))
            assert any(names_it(delta, path) for delta in deltas), (path, other)


def test_no_removal_goes_unreported(full):
    for path in nodes(full):
        if path[-1] in MATCHED_BY and len(path) > 1:
            continue
        new = copied(full)
        del at(new, path[:-1])[path[-1]]
        for one, other in ((full, new), (new, full)):
            assert any(names_it(delta, path) for delta in compare(one, other, LISTS)), path


def test_no_unknown_field_goes_unreported(full):
    holders = [path for path in nodes(full) if isinstance(at(full, path), dict)]
    for path in [(), *holders]:
        for value in (1, None, [], {}, {"a": 1}, "text", [1]):
            new = copied(full)
            at(new, path)["unknown"] = value
            assert any(names_it(delta, (*path, "unknown")) for delta in compare(full, new, LISTS)), path


def mirrored(delta: JsonChange) -> tuple[str, ...]:
    op = {"added": "removed", "removed": "added"}.get(delta.op, delta.op)
    return (delta.at.path, delta.at.pattern, op, json.dumps(delta.new), json.dumps(delta.old))


def plain(delta: JsonChange) -> tuple[str, ...]:
    return (delta.at.path, delta.at.pattern, delta.op, json.dumps(delta.old), json.dumps(delta.new))


@given(st.data())
def test_complete_and_symmetric(full_once, data):
    """JSON level: no delta exactly where the canonical bytes are equal, and the reverse mirrors."""
    old, new = data.draw(edited(full_once)), data.draw(edited(full_once))
    deltas = list(compare(old, new, LISTS))
    assert bool(deltas) == (canonical.encode(old) != canonical.encode(new))
    assert Counter(map(mirrored, deltas)) == Counter(map(plain, compare(new, old, LISTS)))
    assert list(compare(old, copy.deepcopy(old), LISTS)) == []


def exchanged(change: Change) -> tuple[str, ...]:
    kind = re.sub(
        "(added|removed)$", lambda m: {"added": "removed", "removed": "added"}[m.group()], change.kind
    )
    return (kind, change.path, str(change.artifact), json.dumps(change.new), json.dumps(change.old))


def kept(change: Change) -> tuple[str, ...]:
    return (change.kind, change.path, str(change.artifact), json.dumps(change.old), json.dumps(change.new))


@given(st.data())
def test_laws_of_diff(full_once, data):
    old = Manifest.from_json(full_once)
    new = parsed(data.draw(edited(full_once)))
    if new is None:
        return
    there, back = diff(old, new), diff(new, old)
    assert Counter(map(exchanged, there.changes)) == Counter(map(kept, back.changes))
    assert bool(there.changes) == (old.encode() != new.encode())
    assert diff(new, new).changes == ()
    assert ManifestDiff.decode(there.encode()) == there
    severities = [change.severity for change in there.changes]
    assert there.compatible == ("breaking" not in severities)
    assert {s: n for s, n in there.counts.items() if n} == Counter(severities)
    assert severities == sorted(severities, key=["breaking", "degrading", "notable", "cosmetic"].index)


def test_pointers_lead_to_both_values_whatever_moved(full):
    moved = copied(full)
    for artifact in moved["artifacts"]:
        artifact["metadata"]["inputs"].reverse()
        artifact.get("checks", []).reverse()
        artifact |= {"reproducible": False, "opset_imports": {"ai.onnx": 19, "x~/y": 1}}
    moved |= {key: moved[key][::-1] for key in ("artifacts", "files", "labels")}
    del moved["license"], moved["recipe"]["tools"]["torch"]
    for sides in ((full, moved), (moved, full)):
        changes = located_changes(*map(Manifest.from_json, sides))
        assert len(changes) > 15
        for change, delta in changes:
            for side, place, value in zip(sides, delta.pointers, (change.old, change.new), strict=True):
                assert value is None if place is None else pointer.find(side, place) == value, change.path


def documents(value: Any, model: Any) -> Iterator[tuple[type[Document], dict[str, Any]]]:
    """Every object of a JSON value that a class stands for, with its class."""
    if isinstance(model, type) and issubclass(model, Document):
        yield model, value
        for name, field in model.model_fields.items():
            if (field.alias or name) in value:
                yield from documents(value[field.alias or name], field.annotation)
        return
    for item in value if isinstance(value, list) else [value]:
        if item is not None:
            yield from (found for inner in get_args(model) for found in documents(item, inner))


def test_the_full_manifest_is_full(full):
    """Every field of every class that a manifest is made of stands somewhere in it."""
    there: dict[type[Document], set[str]] = {}
    for model, value in documents(full, Manifest):
        there.setdefault(model, set()).update(value)
    assert len(there) >= 17
    for model, keys in there.items():
        fields = {field.alias or name for name, field in model.model_fields.items()} - {FAMILY}
        assert fields <= keys, model


def test_every_rule_has_a_place_that_exists(full):
    """A rule for a field that no manifest has would be dead."""
    places = {place(path) for path in nodes(full)}
    for key in (key for key in RULES if not key.startswith(FAMILY) and key not in OPEN):
        bare = key.rstrip("*")
        assert any(known == bare or (key.endswith("*") and known.startswith(bare)) for known in places), key


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
def test_every_change_is_in_exactly_one_place(full_once, data):
    old, new = parsed(data.draw(edited(full_once))), parsed(data.draw(edited(full_once)))
    if old is not None and new is not None:
        check_laws(old, new)


def test_every_single_change_is_in_one_place(full):
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
