"""The differences of two JSON values. The items of lists are matched by name, not by position."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from onnxreg.schema.core.pointer import ABSENT, child

Op = Literal["added", "removed", "changed", "reordered"]
Namer = Callable[[Any, int], str]  # names a list's item, given the item and its position

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_QUOTED = re.compile(r"[\[\]\"\x00-\x1f\x7f]")


class NamedList(NamedTuple):
    """Functions that name the items of a list. An old and a new item match if they have the same name.

    Each function names only items that the functions before it left unmatched.
    """

    namers: tuple[Namer, ...]
    positions: bool = False  # reordered if a matched item has another index


# The namers of each list, by pattern, such as `artifacts[].files`. None: the list is compared as a whole.
Lists = Mapping[str, NamedList | None]


class Spot(NamedTuple):
    """A position in two JSON values.

    `path` is a text such as `labels[O]`, in which `O` is the name of a list item. `pattern` is the path without these
    names, such as `labels[]`. `names` has the names from the path, such as `("O",)`. `pointers` are JSON pointers (RFC
    6901) into the old and the new value. `within` is the innermost list item that contains the position, as a pair
    (old, new). If no list contains the position, `within` is the pair of the two documents.
    """

    within: tuple[Any, Any]
    path: str = ""
    pattern: str = ""
    names: tuple[str, ...] = ()
    pointers: tuple[str, str] = ("", "")

    def key(self, key: str) -> "Spot":
        step = f".{key}" if _PLAIN.fullmatch(key) else f"[{json.dumps(key)}]"
        path, pattern = ((text + step).removeprefix(".") for text in (self.path, self.pattern))
        before, after = (child(side, key) for side in self.pointers)
        return self._replace(path=path, pattern=pattern, pointers=(before, after))

    def item(self, name: str, i: int = 0, j: int = 0) -> "Spot":
        """Return the position of an item in the list at this position. `i` is the item's index in the old list, and `j`
        is its index in the new list.
        """
        quoted = json.dumps(name) if _QUOTED.search(name) else name
        return self._replace(
            path=f"{self.path}[{quoted}]",
            pattern=f"{self.pattern}[]",
            names=(*self.names, name),
            pointers=(child(self.pointers[0], i), child(self.pointers[1], j)),
        )


class JsonChange(NamedTuple):
    """A difference that `compare` found, at the position `at`. `old` is None for an added value, and `new` is None for
    a removed value.
    """

    at: Spot
    op: Op
    old: Any
    new: Any

    @property
    def pointers(self) -> tuple[str | None, str | None]:
        """The JSON pointers of the old and of the new value. The pointer of a missing value is None."""
        before, after = self.at.pointers
        return None if self.op == "added" else before, None if self.op == "removed" else after


def same(old: Any, new: Any) -> bool:
    """True if two values are equal as JSON: `1` equals `1.0` but not `true`."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def compare(old: Any, new: Any, lists: Lists, at: Spot | None = None) -> Iterator[JsonChange]:
    """Yield all differences of two JSON values. `at` is their position, or None for whole documents.

    An absent list or object is compared as an empty one. If the other side is empty, the whole value is one change.
    """
    if old == new and same(old, new):
        return
    at = at or Spot((old, new))
    named = lists.get(at.pattern)
    is_piece = named is None and at.pattern in lists
    if named is not None and (items := _both(list, old, new)):
        yield from _named(*items, named, lists, at)
    elif not is_piece and (objects := _both(dict, old, new)):
        before, after = objects
        for key in sorted(before.keys() | after.keys()):
            yield from compare(before.get(key, ABSENT), after.get(key, ABSENT), lists, at.key(key))
    elif not is_piece and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from compare(*pair, lists, at.item(str(index), index, index))
    elif old is ABSENT:
        yield JsonChange(at, "added", None, new)
    elif new is ABSENT:
        yield JsonChange(at, "removed", old, None)
    else:
        yield JsonChange(at, "changed", old, new)


def _both(kind: type, old: Any, new: Any) -> tuple[Any, Any] | None:
    """Return the two values if both are of this kind, else None. Absent or null counts as empty, unless the other is
    empty.
    """
    before, after = (kind() if side is ABSENT or side is None else side for side in (old, new))
    if not (isinstance(before, kind) and isinstance(after, kind)):
        return None
    return (before, after) if (before is old and after is new) or before or after else None


def _named(old: list[Any], new: list[Any], named: NamedList, lists: Lists, at: Spot) -> Iterator[JsonChange]:
    pairs, removed, added = match(old, new, named.namers)
    yield from (JsonChange(at.item(name, i=i), "removed", old[i], None) for name, i in removed)
    yield from (JsonChange(at.item(name, j=j), "added", None, new[j]) for name, j in added)
    for name, i, j in pairs:
        yield from compare(old[i], new[j], lists, at.item(name, i, j)._replace(within=(old[i], new[j])))
    order = [j for _, _, j in sorted(pairs, key=lambda pair: pair[1])]
    if order != sorted(order) or (named.positions and any(i != j for _, i, j in pairs)):
        yield JsonChange(at, "reordered", old, new)


def match(
    old: Sequence[Any], new: Sequence[Any], namers: Sequence[Namer]
) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]], list[tuple[str, int]]]:
    """Match the items of two lists by name. Items of equal names are matched in order.

    Return the pairs (name, old position, new position), the removed items and the added items.
    """
    pairs: list[tuple[str, int, int]] = []
    left, right = set(range(len(old))), set(range(len(new)))
    old_names, new_names = _names(old, left, namers[0]), _names(new, right, namers[0])
    for namer in namers:
        before, after = _names(old, left, namer), _names(new, right, namer)
        matches = [(name, i, after[name]) for name, i in before.items() if name in after]
        left -= {i for _, i, _ in matches}
        right -= {j for _, _, j in matches}
        pairs += matches
    removed = [(name, i) for name, i in old_names.items() if i in left]
    return pairs, removed, [(name, j) for name, j in new_names.items() if j in right]


def _names(items: Sequence[Any], positions: Collection[int], namer: Namer) -> dict[str, int]:
    """Return name -> position of these items. Repeated names get numbers: `name#2`, `name#3`, ..."""
    counts: dict[str, int] = {}
    names: dict[str, int] = {}
    for position in sorted(positions):
        stem = name = namer(items[position], position)
        while name in names:
            counts[stem] = counts.get(stem, 1) + 1
            name = f"{stem}#{counts[stem]}"
        names[name] = position
    return names
