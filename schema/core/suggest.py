"""What somebody may have meant who wrote a name that is not known. Light: only a mistake imports difflib."""

from collections.abc import Iterable

ALIKE = 0.6
"""The least likeness, of 1."""


def nearest(name: str, known: Iterable[str], least: float = ALIKE, most: int = 3) -> list[str]:
    """The known names that are most alike, the best first; capitals do not count."""
    from difflib import get_close_matches

    folded: dict[str, list[str]] = {}
    for each in known:
        folded.setdefault(each.lower(), []).append(each)
    found = get_close_matches(name.lower(), folded, most, least)
    return [each for near in found for each in folded[near]][:most]


def suggest(name: str, known: Iterable[str], otherwise: str | None = None, least: float = ALIKE) -> str:
    """A hint: the names that are alike; where there are none, what else to do, by default to take one of all."""
    names = list(known)
    near = nearest(name, names, least)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"one of: {', '.join(names)}"
