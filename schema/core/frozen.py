"""JSON containers that cannot be changed: still a `dict` and a `list` to everything that reads them."""

from typing import Any, NoReturn


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("a document is frozen: make a new one from its JSON value")


class FrozenDict(dict[str, Any]):
    """A JSON object that raises TypeError on every attempt to change it."""

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class FrozenList(list[Any]):
    """A JSON array that raises TypeError on every attempt to change it."""

    def __reduce__(self) -> Any:
        return FrozenList, (list(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(FrozenList, _name, _refuse)


def freeze(value: Any) -> Any:
    """A JSON value with all its containers frozen."""
    if isinstance(value, dict):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList(freeze(item) for item in value)
    return value
