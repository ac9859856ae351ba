"""Files that a recorded recipe names by digest alone, put back in their places.

A manifest tells no path, so what lay beside a recipe stands there as a digest: the data of steps, and what options of the
task named. Whoever runs the recipe again has to name these files, and they must have the recorded digests.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.source.file_hash import digest_file
from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.manifest.recorded_recipe import Code

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPTIONS = "options."
IN_FOLDER = ", or the directory that it is in: --source DIR"
WEIGHTS = frozenset({".ckpt", ".npz", ".pt", ".pth", ".safetensors"})
"""Suffixes of the files that options name."""
OF_THE_FILE = ("source", "name")
"""Keys of a recipe that say where it was run, and that a manifest never has."""


def with_data(
    recorded: Any, given: Mapping[str, Path], what: str, folder: Path | None = None
) -> dict[str, Any]:
    """The recipe in its JSON form, with paths in place of digests. No path in it is the recorded recipe's own.

    Raises InputError for a file that must be named and is not, and for one that the recipe has no place for; IntegrityError
    where it has a path in place of a digest.

    Args:
        given: by the name of a step, or `options.<key>`.
        what: how people call the version.
        folder: the source that a person named: a file that an option records may be in it.
    """
    recorded = {key: value for key, value in recorded.items() if key not in OF_THE_FILE}
    _check_paths(recorded, what)
    digests = dict(_digests(recorded))
    given = {**_in_folder(digests, given, folder), **given}
    if missing := next((name for name in digests if name not in given), None):
        raise InputError(
            f"{what} was made with data that its recipe names by digest: {missing}, {digests[missing]}",
            f"name that file: --data {missing}=PATH{IN_FOLDER if missing.startswith(OPTIONS) else ''}",
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


def _check_paths(recorded: Any, what: str) -> None:
    """IntegrityError where the recipe names a file of this machine."""
    options = recorded.get("options", {})
    named = {OPTIONS + key: options.get(key) for key in task_catalog.find(recorded["task"]).paths}
    named |= {step["name"]: step["data"] for step in recorded["steps"] if "data" in step}
    for name, value in named.items():
        if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise IntegrityError(f"the recipe of {what} names a file, not the digest of one: {name}")


def _in_folder(digests: Mapping[str, str], given: Mapping[str, Path], folder: Path | None) -> dict[str, Path]:
    """The files in a folder that options record the digests of."""
    wanted = {
        name: digest for name, digest in digests.items() if name.startswith(OPTIONS) and name not in given
    }
    found: dict[str, Path] = {}
    for path in [] if folder is None else _visible_files(folder):
        if found.keys() >= set(wanted.values()):
            break
        found.setdefault(str(digest_file(path)), path)
    return {name: found[digest] for name, digest in wanted.items() if digest in found}


def _visible_files(folder: Path) -> list[Path]:
    """The files below a folder, weights and arrays first."""
    names = (path.relative_to(folder) for path in folder.rglob("*"))
    visible = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    ordered = sorted(visible, key=lambda name: (name.suffix not in WEIGHTS, name))
    return [folder / name for name in ordered if (folder / name).is_file()]


def check_code(recorded: Code | None, found: Code | None, what: str) -> None:
    """Raise InputError where the function that makes the module is not the one that was recorded.

    Versions that were made before functions were recorded have None: then the digest of the source has to do.
    """
    if found is None or found == recorded:
        return
    if recorded is None:
        if found.distribution is not None:
            raise InputError(f"{what} does not record which {found.distribution} made it", "export it again")
        return
    hint = "give the code as it was exported: --source DIR"
    if recorded.distribution is not None:
        hint = f"install {recorded.distribution} {recorded.version}, if you trust it"
    raise InputError(f"{what} was made by {_described(recorded)}, here it is {_described(found)}", hint)


def _described(code: Code) -> str:
    return f"{code.name} of {code.digest or f'{code.distribution} {code.version}'}"


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
