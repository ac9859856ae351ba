"""A claim that the files do not bear out."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """A field of the version 1 manifest (`artifacts.2.metadata.operators`), its claim, and what the files
    say.

    `actual` is None if nothing supports the claim; `claimed` is None if a fact was not claimed.
    """

    path: str
    claimed: Any
    actual: Any
