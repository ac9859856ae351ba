"""Things by name: ours, and those that other packages bring as entry points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from onnxreg.schema.core.errors import ConflictError, HostError, InputError, suggest

T = TypeVar("T")


@dataclass(frozen=True)
class PlugIns(Generic[T]):
    """The things of one kind: `built_in` are ours; other packages bring theirs in the entry points of `group`.

    `noun` names the kind in messages, with its article: `a pass`. `accept` makes the thing of what an entry point loads,
    None if that is not one of its name.
    """

    group: str
    noun: str
    built_in: Mapping[str, T]
    accept: Callable[[EntryPoint, Any], T | None]

    def names(self) -> list[str]:
        """All names; ours come first, then others' in order. Nothing of theirs is imported."""
        return [*self.built_in, *sorted(self._others())]

    def find(self, name: str) -> T:
        """Return the thing of this name.

        Raises InputError, with the nearest names, for a name that none has, ConflictError if two packages give it,
        HostError if that of another package does not load.
        """
        if name in self.built_in:
            return self.built_in[name]
        kind, others = self.noun.partition(" ")[2], self._others()
        if name not in others:
            raise InputError(f"no {kind} is called {name[:80]!r}", suggest(name, self.names()))
        entry = others[name]
        try:
            thing = self.accept(entry, entry.load())
        except Exception as error:
            raise HostError(f"the {kind} {name} ({entry.value}) does not load: {error}") from error
        if thing is None:
            raise HostError(
                f"{entry.value} is not {self.noun} with the id {name}",
                "report it to the authors of its package",
            )
        return thing

    def _others(self) -> dict[str, EntryPoint]:
        entries: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.built_in or entries.get(entry.name, entry).value != entry.value:
                raise ConflictError(
                    f"two packages bring {self.noun} called {entry.name}: {entry.value} is one of them",
                    "uninstall one of them",
                )
            entries[entry.name] = entry
        return entries
