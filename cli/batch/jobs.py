"""Reading a job file, YAML or CSV: every row is checked before the first one runs."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, NotFoundError, why
from onnxreg.schema.inputs.recipe_file import JobRow

OPTION = "options."
"""The prefix of an option's column in a CSV file."""
PATHS = ("source", "recipe")
OPTION_PATHS = ("eval_suite", "confirm_suite", "calibration", "scales_from")


@dataclass(frozen=True)
class Job:
    """One export. `row` is its number in the file, from 1; paths are absolute."""

    row: int
    request: JobRow

    @property
    def called(self) -> str:
        return self.request.called


def read_jobs(path: Path) -> list[Job]:
    """The jobs of a file, in order.

    Raises NotFoundError if there is no such file, InputError if it is malformed: the message names the row.
    """
    rows = list(_csv_rows(path) if path.suffix.lower() == ".csv" else _yaml_rows(path))
    if not rows:
        raise InputError(f"{path.name} holds no jobs", "write one row for each export: see docs/fleets.md")
    directory = path.absolute().parent
    return [
        Job(number, _row(row, f"{path.name}: row {number}", directory)) for number, row in enumerate(rows, 1)
    ]


def _yaml_rows(path: Path) -> Sequence[Any]:
    from onnxreg.converters.engine.read_recipe import read_document

    value = read_document(path, "job file")
    if not isinstance(value, list):
        raise InputError(f"{path.name} is not a list of jobs", "begin each job with a dash: - source: ...")
    return value


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = reader.fieldnames or ()
            if twice := next((name for name in header if header.count(name) > 1), None):
                raise InputError(f"{path.name}: there are two columns {twice!r}", "leave one out")
            for number, row in enumerate(reader, 1):
                if None in row or None in row.values():
                    raise InputError(
                        f"{path.name}: row {number} has not as many cells as there are columns",
                        "write a cell with a comma in double quotes",
                    )
                yield _from_cells(row)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no job file at {path}", "check the path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path.name} is not a CSV file: {why(error)}", "save it as comma-separated text, in UTF-8"
        ) from error


def _from_cells(row: Mapping[str, str]) -> dict[str, Any]:
    """A row without its empty cells. The columns `options.*` hold JSON, or else text."""
    cells = {key: cell for key, cell in row.items() if cell}
    value: dict[str, Any] = {key: cell for key, cell in cells.items() if not key.startswith(OPTION)}
    options = {
        key.removeprefix(OPTION): _scalar(cell) for key, cell in cells.items() if key.startswith(OPTION)
    }
    return {**value, "options": options} if options else value


def _scalar(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _row(value: Any, label: str, directory: Path) -> JobRow:
    if not isinstance(value, dict):
        raise InputError(f"{label} holds no keys", "write keys and values: - {source: ..., profile: ...}")
    job_row = JobRow.from_json(value, label)
    placed = {key: _beside(text, directory) for key in PATHS if (text := getattr(job_row, key)) is not None}
    options = {
        key: _beside(item, directory) if key in OPTION_PATHS else item
        for key, item in job_row.options.items()
    }
    evaluation = job_row.evaluation
    if evaluation is not None:
        evaluation = evaluation.model_copy(update={"suite": _beside(evaluation.suite, directory)})
    return job_row.model_copy(update={**placed, "options": options, "evaluation": evaluation})


def _beside(text: Any, directory: Path) -> str:
    """A path from the job file's directory, if something is there; else unchanged: it may be a hub id.

    In `path/to/file.py:function` the path is the part before the colon.
    """
    name = str(text)
    file = name.rpartition(":")[0] or name
    exists = (directory / name).exists() or (directory / file).is_file()
    return str(directory / name) if exists else name


def refuse_twins(jobs: Sequence[Job], names: Sequence[str], file_name: str) -> None:
    """Refuse several rows of one model unless each has a version of its own: else the order would decide.

    Args:
        names: of the models, as far as the rows give them.
        file_name: of the job file.
    """
    first: dict[tuple[str, str | None], Job] = {}
    for job, name in zip(jobs, names, strict=True):
        version = job.request.version
        versions = {version, None} if version else {own for other, own in first if other == name}
        twins = [first[name, own] for own in versions if (name, own) in first]
        if twins:
            twin = min(twins, key=lambda other: other.row)
            raise InputError(
                f"{file_name}: rows {twin.row} and {job.row} both are {name}",
                "give each a version of its own",
            )
        first[name, version] = job
