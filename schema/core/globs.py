"""Patterns of `*` (any characters) and `?` (one), matched in time linear in the text.

All places in the pattern where a match may be are the bits of one number, which a character moves on at once (Baeza-Yates
and Gonnet, "A new approach to text searching", 1992). So no pattern can run away, as a backtracking matcher can.
"""

from collections.abc import Callable


def matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern to a function that is True if a whole text fits; it is case-sensitive."""
    beginning = pattern.rstrip("*")
    if pattern != beginning and not {"*", "?"} & {*beginning}:
        return lambda text: text.startswith(beginning)
    steps, loops = _bits(pattern)
    if not steps and not loops:
        return lambda text: not text
    return _automaton(steps, loops)


def _bits(pattern: str) -> tuple[list[str], int]:
    """The characters that move a match on, and the places (as bits) that a `*` lets it stay in."""
    steps: list[str] = []
    loops = 0
    for character in pattern:
        if character == "*":
            loops |= 1 << len(steps)
        else:
            steps.append(character)
    return steps, loops


def _automaton(steps: list[str], loops: int) -> Callable[[str], bool]:
    anything = sum(1 << index for index, step in enumerate(steps) if step == "?")
    moves = {
        step: anything | sum(1 << index for index, candidate in enumerate(steps) if candidate == step)
        for step in {*steps} - {"?"}
    }
    final = 1 << len(steps)

    def fits(text: str) -> bool:
        places = 1
        for character in text:
            places = (places & moves.get(character, anything)) << 1 | places & loops
            if not places:
                return False
        return bool(places & final)

    return fits
