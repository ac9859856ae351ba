"""Differences of two JSON values: the items of lists are matched by name, not by position.

Pure JSON, knows no manifest: `Tables` says which lists are named and which values are one piece. Complete: two values
that differ (as canonical JSON does) have at least one `JsonChange`. Symmetric: the changes of (b, a) are those of
(a, b) with added and removed, old and new exchanged.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from onnxreg.schema.core import pointer

T = TypeVar("T")
Op = Literal["added", "removed", "changed", "reordered"]
Namer = Callable[[Any, int], str]
"""The name of a list's item, given the item and its position."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_QUOTED = re.compile(r"[\[\]\"\x00-\x1f\x7f]")
_BRACKETS = re.compile(r"\[(\"(?:[^\"\\]|\\.)*\"|[^\[\]]*)\]")
_ABSENT = object()


@dataclass(frozen=True)
class NamedItem:
    """The matching of a list's items: by the first namer, the remaining ones by the second, and so on.

    `positions`: an item at another index than before counts as reordered, even if the order of the
    common items is the same.
    """

    namers: tuple[Namer, ...]
    positions: bool = False


@dataclass(frozen=True)
class Tables:
    """`lists` and `pieces` are keyed by place: the path with the name or index of every list's item left out."""

    lists: Mapping[str, NamedItem]
    pieces: frozenset[str]


@dataclass(frozen=True)
class JsonChange:
    """One difference. `path` names the items (`labels[O]`), `pattern` does not (`labels[]`), `names` are these names.

    `old` is None if added, `new` is None if removed; for reordered they are the whole lists. `within` are the two
    items of a named list that it was found in, the innermost ones; None at the top. `places` are the JSON pointers
    (RFC 6901) of the old and the new value; None if there is none.
    """

    path: str
    pattern: str
    names: tuple[str, ...]
    op: Op
    old: Any
    new: Any
    within: tuple[Any, Any] | None = None
    places: tuple[str | None, str | None] = (None, None)


def same(old: Any, new: Any) -> bool:
    """Equal as JSON: `1` is `1.0` but not `true`."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def compare(old: Any, new: Any, tables: Tables) -> Iterator[JsonChange]:
    """Every difference between two JSON values. An absent list or object is walked like an empty one."""
    return _compare(old, new, tables, _Spot())


class _Spot(NamedTuple):
    path: str = ""
    pattern: str = ""
    names: tuple[str, ...] = ()
    within: tuple[Any, Any] | None = None
    places: tuple[str, str] = ("", "")

    def key(self, key: str) -> "_Spot":
        places = (pointer.child(self.places[0], key), pointer.child(self.places[1], key))
        return _Spot(_join(self.path, key), _join(self.pattern, key), self.names, self.within, places)

    def item(self, name: str, i: int = 0, j: int = 0) -> "_Spot":
        """The item of a list: at index i of the old one, j of the new one."""
        path, pattern = f"{self.path}[{_quote(name)}]", f"{self.pattern}[]"
        places = (pointer.child(self.places[0], i), pointer.child(self.places[1], j))
        return _Spot(path, pattern, (*self.names, name), self.within, places)

    def delta(self, op: Op, old: Any, new: Any) -> JsonChange:
        before, after = self.places
        places = (None if op == "added" else before, None if op == "removed" else after)
        return JsonChange(self.path, self.pattern, self.names, op, old, new, self.within, places)


def _compare(old: Any, new: Any, tables: Tables, at: _Spot) -> Iterator[JsonChange]:
    if old == new and same(old, new):
        return
    if at.pattern in tables.pieces:
        yield from _leaf(old, new, at)
    elif at.pattern in tables.lists and _walkable(list, old, new):
        yield from _named(_or(old, []), _or(new, []), tables, at)
    elif _walkable(dict, old, new):
        before, after = _or(old, {}), _or(new, {})
        for key in sorted(before.keys() | after.keys()):
            yield from _compare(before.get(key, _ABSENT), after.get(key, _ABSENT), tables, at.key(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _compare(old_item, new_item, tables, at.item(str(index), index, index))
    else:
        yield from _leaf(old, new, at)


def _leaf(old: Any, new: Any, at: _Spot) -> Iterator[JsonChange]:
    if old is _ABSENT:
        yield at.delta("added", None, new)
    elif new is _ABSENT:
        yield at.delta("removed", old, None)
    elif not same(old, new):
        yield at.delta("changed", old, new)


def _named(old: list[Any], new: list[Any], tables: Tables, at: _Spot) -> Iterator[JsonChange]:
    named_item = tables.lists[at.pattern]
    pairs, removed, added = match(old, new, named_item.namers)
    for name, i in removed:
        yield at.item(name, i=i).delta("removed", old[i], None)
    for name, j in added:
        yield at.item(name, j=j).delta("added", None, new[j])
    for name, i, j in pairs:
        yield from _compare(old[i], new[j], tables, at.item(name, i, j)._replace(within=(old[i], new[j])))
    order = [j for _, _, j in sorted(pairs, key=lambda pair: pair[1])]
    if order != sorted(order) or (named_item.positions and any(i != j for _, i, j in pairs)):
        yield at.delta("reordered", old, new)


Matched = tuple[list[tuple[str, int, int]], list[tuple[str, int]], list[tuple[str, int]]]
"""Names with positions: the pairs, those that were removed, and those that were added."""


def match(old: Sequence[Any], new: Sequence[Any], namers: Sequence[Namer]) -> Matched:
    """The pairs of positions, and those that stay alone on either side; the k-th of a name matches the k-th.

    Items are paired by the first namer, those that are left by the second, and so on.
    """
    pairs: list[tuple[str, int, int]] = []
    left, right = set(range(len(old))), set(range(len(new)))
    old_names, new_names = _names(old, left, namers[0]), _names(new, right, namers[0])
    for namer in namers:
        after = {name: j for j, name in _names(new, right, namer).items()}
        before = _names(old, left, namer).items()
        matches = [(name, i, after[name]) for i, name in before if name in after]
        left -= {i for _, i, _ in matches}
        right -= {j for _, _, j in matches}
        pairs += matches
    return pairs, [(old_names[i], i) for i in sorted(left)], [(new_names[j], j) for j in sorted(right)]


def _names(items: Sequence[Any], positions: Collection[int], namer: Namer) -> dict[int, str]:
    """The name of the item at each position; the second of a name is called `name#2`, or the next that is free."""
    counts: dict[str, int] = defaultdict(int)
    names: dict[str, int] = {}
    for position in sorted(positions):
        stem = name = namer(items[position], position)
        while name in names:
            counts[stem] += 1
            name = f"{stem}#{counts[stem] + 1}"
        names[name] = position
    return {position: name for name, position in names.items()}


def _walkable(kind: type, old: Any, new: Any) -> bool:
    """Both are of the kind, or one is, and not empty, while the other is absent or null."""
    kinds = [side for side in (old, new) if isinstance(side, kind)]
    return len(kinds) == 2 or (len(kinds) == 1 and bool(kinds[0]) and (_is_missing(old) or _is_missing(new)))


def _is_missing(value: Any) -> bool:
    return value is _ABSENT or value is None


def _or(value: Any, empty: Any) -> Any:
    return empty if _is_missing(value) else value


def _join(path: str, key: str) -> str:
    if not _PLAIN.fullmatch(key):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def _quote(name: str) -> str:
    return json.dumps(name) if _QUOTED.search(name) else name


def parsed_path(path: str) -> tuple[str, tuple[str, ...]]:
    """The pattern of a delta's path, and the names in its brackets.

    A key in brackets, such as `opset_imports["com.microsoft"]`, counts as a name.
    """
    names = _BRACKETS.findall(path)
    return _BRACKETS.sub("[]", path), tuple(
        json.loads(name) if name.startswith('"') else name for name in names
    )


class PlaceTable(Generic[T]):
    """Values by place; a `*` at the end takes in everything below. The longest key that fits holds."""

    def __init__(self, values: Mapping[str, T], default: T) -> None:
        self._values, self._default = values, default
        self._branches = sorted((key[:-1] for key in values if key.endswith("*")), key=len, reverse=True)

    def at(self, pattern: str) -> T:
        """The value for a place, in the notation of `JsonChange.pattern`."""
        if pattern in self._values:
            return self._values[pattern]
        for branch in self._branches:
            if pattern == branch or pattern.startswith((f"{branch}.", f"{branch}[")):
                return self._values[f"{branch}*"]
        return self._default
