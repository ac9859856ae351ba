"""Edits of a JSON value: one by its place, and random ones of a manifest by hypothesis."""

import copy
import marshal
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Manifest

Path = tuple[str | int, ...]
MATCHED_BY = {"format", "precision", "path", "role", "name", "metric", "domain", "opset"}


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced_at(value: Any, pointer: str, to: Any) -> Any:
    """A copy with the value at a JSON pointer (`-` appends) replaced: by another, by a function's, by nothing (...)."""
    top: Any = {"": copied(value)}
    holder = top
    *above, last = (int(part) if part.isdigit() else part for part in pointer.split("/"))
    for key in above:
        holder = holder[key]
    if to is ...:
        del holder[last]
    elif last == "-":
        holder.append(to)
    else:
        holder[last] = to(holder[last]) if callable(to) else to
    return top[""]


def refused(value: Any, position: int = 1) -> Any:
    """The manifest after one of its artifacts was refused, with the keys of version 1 that repeat it."""
    made = copied(value)
    made["artifacts"][position].setdefault("certification", {})["state"] = "refused"
    made["certified"] = made["quantization"]["certified"] = False
    return made


def copied(value: Any) -> Any:
    """A copy of a JSON value, five times as fast as by the module `copy`."""
    return marshal.loads(marshal.dumps(value, 2))  # later versions keep what is shared


def nodes(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value below the top."""
    if path:
        yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in below:
        yield from nodes(item, (*path, key))


@st.composite
def edited(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """The manifest after some edits, each of which keeps the names by which lists are matched."""
    new = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 5))):
        path = draw(st.sampled_from(list(nodes(new))))
        holder, key = at(new, path[:-1]), path[-1]
        edit = draw(st.sampled_from(["other", "remove", "double", "shuffle", "unknown", "move"]))
        if edit == "other" and not isinstance(holder[key], dict | list):
            old = holder[key]
            holder[key] = (
                f"{old}x" if isinstance(old, str) else draw(st.sampled_from([0, 1, True, None, 0.5]))
            )
        elif edit == "remove" and key not in MATCHED_BY:
            del holder[key]
        elif edit == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[int(key)]))
        elif edit == "shuffle" and isinstance(holder, list):
            holder[:] = draw(st.permutations(holder))
        elif edit == "unknown" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "y.z", "é"]))] = draw(st.sampled_from([None, [], {}, [1], 1]))
        elif edit == "move" and isinstance(holder, list):
            holder.insert(0, holder.pop())
    return new


def parsed(value: dict[str, Any]) -> Manifest | None:
    try:
        return Manifest.from_json(value)
    except InputError:
        return None
