"""The run directory of a training: a version that is written there goes into `exports/`, beside its
`checkpoints/`.

That is Orchard's layout. The manifest of an export calls its graph `exports/model.onnx`, and there it is.
"""

from collections.abc import Iterable
from pathlib import Path

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.rules import FILENAME

CHECKPOINTS, EXPORTS = "checkpoints", "exports"


def folder_in(directory: Path) -> Path:
    """The folder for the files of a version: `exports/` of a run directory, every other directory itself."""
    is_run = (directory / CHECKPOINTS).is_dir() and not (directory / FILENAME).exists()
    return directory / EXPORTS if is_run else directory


def prefix_in(folder: Path) -> str:
    """The prefix of a version's paths that this folder replaces; empty outside of a run directory."""
    is_exports = folder.name == EXPORTS and (folder.parent / CHECKPOINTS).is_dir()
    return f"{EXPORTS}/" if is_exports else ""


def check_apart(paths: Iterable[str], prefix: str) -> None:
    """InputError for two files that would have one path without the prefix."""
    names: set[str] = set()
    for path in paths:
        name = path.removeprefix(prefix)
        if name in names:
            raise InputError(
                f"{prefix}{name} and {name} would be one file in the {EXPORTS} of a run directory",
                "write the version to another directory",
            )
        names.add(name)
