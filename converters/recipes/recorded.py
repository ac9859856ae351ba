"""Files that a recorded recipe names by digest alone, put back in their places.

A manifest tells no path, so what lay beside a recipe stands there as a digest: the data of steps, and what options of the
task named. Whoever runs the recipe again has to name these files, and they must have the recorded digests.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxreg.schema.errors import InputError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPTIONS = "options."


def with_data(recorded: Any, given: Mapping[str, Path], what: str) -> dict[str, Any]:
    """The recipe in its JSON form, with paths in place of digests.

    Raises InputError for a file that must be named and is not, and for one that the recipe has no place for.

    Args:
        given: by the name of a step, or `options.<key>`.
        what: how people call the version.
    """
    digests = dict(_digests(recorded))
    if missing := next((name for name in digests if name not in given), None):
        raise InputError(
            f"{what} was made with data that its recipe names by digest: {missing}, {digests[missing]}",
            f"name that file or directory: --data {missing}=PATH",
        )
    if others := sorted(given.keys() - digests.keys()):
        known = ", ".join(digests) or "nothing"
        raise InputError(f"{what} was made without data called {others[0]}", f"its recipe names {known}")
    steps = [
        {**step, "data": str(given[step["name"]].absolute())} if step["name"] in digests else dict(step)
        for step in recorded["steps"]
    ]
    options = {
        key: str(given[OPTIONS + key].absolute()) if OPTIONS + key in digests else value
        for key, value in recorded.get("options", {}).items()
    }
    return {**recorded, "steps": steps, "options": options}


def check_data(recorded: Any, found: Any, what: str) -> None:
    """Raise InputError, naming the first, where files have other digests than those recorded.

    Args:
        found: the recipe as an order of it would be recorded.
    """
    now = dict(_digests(found))
    for name, digest in _digests(recorded):
        if now.get(name) != digest:
            raise InputError(
                f"the data {name} are not those that {what} was made with: {now.get(name)}, recorded is {digest}"
            )


def _digests(recipe: Any) -> Iterator[tuple[str, str]]:
    for step in recipe["steps"]:
        if "data" in step:
            yield step["name"], step["data"]
    for key, value in recipe.get("options", {}).items():
        if isinstance(value, str) and _DIGEST.fullmatch(value):
            yield OPTIONS + key, value
