"""Suggestions for unknown names. Light: difflib is imported only after a mistake."""

from collections.abc import Iterable

from onnxreg.schema.core.errors import Advice

MIN_LIKENESS = 0.6
"""The least similarity, from 0 to 1."""


def nearest(name: str, names: Iterable[str], least: float = MIN_LIKENESS, most: int = 3) -> list[str]:
    """The most similar names, the best first; case does not matter."""
    from difflib import get_close_matches

    folded: dict[str, list[str]] = {}
    for candidate in names:
        folded.setdefault(candidate.lower(), []).append(candidate)
    matches = get_close_matches(name.lower(), folded, most, least)
    return [candidate for match in matches for candidate in folded[match]][:most]


def suggest(
    name: str, candidates: Iterable[str], otherwise: str | Advice | None = None, least: float = MIN_LIKENESS
) -> str | Advice:
    """A hint: similar names; if there are none, `otherwise`, by default the list of all names."""
    names = list(candidates)
    alike = nearest(name, names, least)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    return otherwise or f"one of: {', '.join(names)}"
