"""Reading a job file in YAML: each row becomes an export request, and its command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.read_recipe import read_document
from onnxreg.converters.request import ON_BY_DEFAULT, ExportRequest, flag
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import JobRow

PATHS = ("eval_suite", "confirm_suite", "calibration")
"""The options that name files."""
FLAGS = (*ON_BY_DEFAULT, "quantize", "int8_embeddings", "item_scores", "margin", "certify")
"""The options that are true or false."""


@dataclass(frozen=True)
class Job:
    """One export. `row` is its number in the file, from 1; `request` is what it asks for, its paths absolute."""

    row: int
    called: str
    version: str | None
    request: ExportRequest

    def words(self) -> list[str]:
        """The command line of the job, from `export` on; no value of a row can be taken for an option."""
        request = self.request
        values: dict[str, Any] = {"name": request.name, "version": self.version, "profile": request.profile}
        values |= {"task": request.task, "recipe": request.recipe, **request.options}
        words = ["export", "--json"]
        for key, value in values.items():
            if key in FLAGS:
                words += [flag(key)] if value is not (key in ON_BY_DEFAULT) else []
            elif isinstance(value, Mapping):
                words += [f"{flag(key)}={gold}={label or ''}" for gold, label in value.items()]
            elif value is not None:
                items = value if isinstance(value, list | tuple) else [value]
                words += [f"{flag(key)}={item}" for item in items]
        return words if request.source is None else [*words, "--", request.source]


def read_jobs(path: Path, trust_remote_code: bool = False, allow_code: Sequence[str] = ()) -> list[Job]:
    """The jobs of a file, in order.

    Raises NotFoundError if there is no such file, InputError if it is malformed: the message names the row.
    """
    rows = read_document(path, "job file")
    if not isinstance(rows, list):
        raise InputError(f"{path.name} is not a list of jobs", "begin each job with a dash: - source: ...")
    if not rows:
        raise InputError(f"{path.name} holds no jobs", "write one row for each export: see docs/fleets.md")
    directory, jobs = path.absolute().parent, []
    for number, value in enumerate(rows, 1):
        label = f"{path.name}: row {number}"
        if not isinstance(value, dict):
            raise InputError(f"{label} holds no keys", "write keys and values: - {source: ..., profile: ...}")
        row = JobRow.from_json(value, label)
        options = {**row.options, **row.statements}
        for key, item in options.items():
            if (key in FLAGS) is not isinstance(item, bool):
                raise InputError(
                    f"{label}: the option {key[:80]} is {'' if key in FLAGS else 'not '}true or false"
                )
        source, recipe = (
            None if text is None else _beside(text, directory) for text in (row.source, row.recipe)
        )
        placed = {key: Path(_beside(options[key], directory)) for key in PATHS if key in options}
        request = ExportRequest(
            source,
            row.name,
            row.profile,
            None if recipe is None else Path(recipe),
            row.task,
            {**options, **placed},
            trust_remote_code,
            allow_code,
        )
        name = row.name or source or str(recipe)
        jobs.append(
            Job(number, name if row.version is None else f"{name}:{row.version}", row.version, request)
        )
    return jobs


def _beside(text: Any, directory: Path) -> str:
    """A path from the job file's directory, if something is there; else unchanged: it may be a hub id.

    In `path/to/file.py:function` the path is the part before the colon.
    """
    name = str(text)
    file = name.rpartition(":")[0] or name
    exists = (directory / name).exists() or (directory / file).is_file()
    return str(directory / name) if exists else name
