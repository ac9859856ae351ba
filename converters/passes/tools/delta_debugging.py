"""Minimal sets by delta debugging.

Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (IEEE TSE 28(2), 2002), algorithm ddmin.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise


class ExhaustedError(Exception):
    """The number of trials that were allowed is used up."""


class Trials:
    """Counts the trials of a predicate over sets of names, asks each set once, and ends after `most` of them."""

    def __init__(self, holds: Callable[[frozenset[str]], bool], most: int) -> None:
        self._holds = holds
        self._known: dict[frozenset[str], bool] = {}
        self._most = most

    @property
    def count(self) -> int:
        return len(self._known)

    def __call__(self, names: frozenset[str]) -> bool:
        """Raise ExhaustedError if this would be one trial too many."""
        if names not in self._known:
            if self.count >= self._most:
                raise ExhaustedError
            self._known[names] = self._holds(names)
        return self._known[names]


def minimize(all_names: Sequence[str], holds: Callable[[frozenset[str]], bool]) -> tuple[list[str], bool]:
    """A subset for which `holds` still does, and from which no name can be left out; it must hold for all `names`.

    The second result is False if the trials ended first: then the set holds, but may not be minimal.
    """
    names, parts = list(all_names), 2
    try:
        while names:
            if holds(frozenset()):
                return [], True
            smaller = next(
                (subset for subset in _complements(names, parts) if holds(frozenset(subset))), None
            )
            if smaller is not None:
                names, parts = smaller, max(parts - 1, 2)
            elif parts >= len(names):
                return names, True
            else:
                parts = min(2 * parts, len(names))
    except ExhaustedError:
        return names, False
    return names, True


def _complements(names: Sequence[str], parts: int) -> list[list[str]]:
    """The names without each of so many consecutive parts, the last part left out first."""
    edges = [len(names) * index // parts for index in range(parts + 1)]
    return [[*names[:start], *names[end:]] for start, end in pairwise(edges) if start < end][::-1]
