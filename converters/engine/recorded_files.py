"""Put files back into a recorded recipe, which names them by digest alone.

A manifest holds no paths, so files beside a recipe are recorded as digests: the data of steps, and files that
options of the task name. To run the recipe again, name these files; they must have the recorded digests.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import below, digest_file
from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.manifest.parts import Code

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPTION_PREFIX = "options."
STEP_FILES = ("data", "scales_from")
"""Keys of a step that name a file; a step has one of them at most."""
WEIGHT_SUFFIXES = frozenset({".ckpt", ".npz", ".pt", ".pth", ".safetensors"})
"""Suffixes of the files that options name."""
UNRECORDED_KEYS = ("source", "name")
"""Keys of a recipe that depend on the machine, and that a manifest never has."""


def with_data(
    recorded: Any, files: Mapping[str, Path], label: str, folder: Path | None = None
) -> dict[str, Any]:
    """Return the recipe in JSON form with paths in place of digests. No path comes from the recorded recipe.

    Raises InputError for a missing file and for one that the recipe does not use; IntegrityError if the
    recipe has a path in place of a digest.

    Args:
        files: paths by the name of a step, or `options.<key>`.
        label: name of the version in messages.
        folder: the source that the user named: a file that an option records may be in it.
    """
    recorded = {key: value for key, value in recorded.items() if key not in UNRECORDED_KEYS}
    _check_paths(recorded, label)
    digests = dict(_digests(recorded))
    files = {**_in_folder(digests, files, folder), **files}
    if missing := next((name for name in digests if name not in files), None):
        raise InputError(
            f"{label} was made with data that its recipe names by digest: {missing}, {digests[missing]}",
            (
                f"name that file: --data {missing}=PATH, or the directory that it is in: --source DIR"
                if missing.startswith(OPTION_PREFIX)
                else f"name that file: --data {missing}=PATH"
            ),
        )
    if unknown := sorted(files.keys() - digests.keys()):
        names = ", ".join(digests) or "nothing"
        raise InputError(f"{label} was made without data called {unknown[0]}", f"its recipe names {names}")
    steps = [
        {**step, **{key: str(files[step["name"]].absolute()) for key in STEP_FILES if key in step}}
        for step in recorded["steps"]
    ]
    options = {
        key: str(files[OPTION_PREFIX + key].absolute()) if OPTION_PREFIX + key in digests else value
        for key, value in recorded.get("options", {}).items()
    }
    return {**recorded, "steps": steps, "options": options}


def _check_paths(recorded: Any, label: str) -> None:
    """Raise IntegrityError if the recipe names a file of this machine."""
    options = recorded.get("options", {})
    references = {OPTION_PREFIX + key: options.get(key) for key in task_catalog.find(recorded["task"]).paths}
    references["evaluation"] = recorded.get("evaluation", {}).get("suite")
    references |= {step["name"]: step[key] for step in recorded["steps"] for key in STEP_FILES if key in step}
    for name, value in references.items():
        if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise IntegrityError(f"the recipe of {label} names a file, not the digest of one: {name}")


def _in_folder(digests: Mapping[str, str], files: Mapping[str, Path], folder: Path | None) -> dict[str, Path]:
    """Find the files in a folder whose digests options record."""
    missing = {
        name: digest
        for name, digest in digests.items()
        if name.startswith(OPTION_PREFIX) and name not in files
    }
    paths: dict[str, Path] = {}
    for path in [] if folder is None else _visible_files(folder):
        if paths.keys() >= set(missing.values()):
            break
        paths.setdefault(str(digest_file(path)), path)
    return {name: paths[digest] for name, digest in missing.items() if digest in paths}


def _visible_files(folder: Path) -> list[Path]:
    """List the files below a folder, weights and arrays first."""
    names = (path.relative_to(folder) for path in below(folder))
    visible = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    ordered = sorted(visible, key=lambda name: (name.suffix not in WEIGHT_SUFFIXES, name))
    return [folder / name for name in ordered if (folder / name).is_file()]


def check_code(recorded: Code | None, current: Code | None, label: str) -> None:
    """Raise InputError if the function that makes the module is not the recorded one.

    Older versions have no record of the function: then only the digest of the source is compared.
    """
    if current is None or current == recorded:
        return
    if recorded is None:
        if current.distribution is not None:
            raise InputError(
                f"{label} does not record which {current.distribution} made it", "export it again"
            )
        return
    hint: str = "give the code as it was exported: --source DIR"
    if recorded.distribution is not None:
        hint = f"install {recorded.distribution} {recorded.version}, if you trust it"
    raise InputError(f"{label} was made by {_described(recorded)}, here it is {_described(current)}", hint)


def _described(code: Code) -> str:
    return f"{code.name} of {code.digest or f'{code.distribution} {code.version}'}"


def check_data(recorded: Any, current: Any, label: str) -> None:
    """Raise InputError, naming the first file whose digest is not the recorded one.

    Args:
        current: the recipe as this plan would record it.
    """
    now = dict(_digests(current))
    for name, digest in _digests(recorded):
        if now.get(name) != digest:
            raise InputError(
                f"the data {name} are not those that {label} was made with: {now.get(name)}, recorded is {digest}"
            )


def _digests(recipe: Any) -> Iterator[tuple[str, str]]:
    for step in recipe["steps"]:
        for key in STEP_FILES:
            if key in step:
                yield step["name"], step[key]
    for key, value in recipe.get("options", {}).items():
        if isinstance(value, str) and _DIGEST.fullmatch(value):
            yield OPTION_PREFIX + key, value
