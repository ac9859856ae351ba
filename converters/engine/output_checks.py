"""What is claimed of an output, as checks; a stated limit that does not hold ends the export."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxreg.converters.engine.measure import Agreement
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import LABELLED, LEAST, AskedCheck

MEASURED = ("max_abs_diff", "min_cosine", "argmax_agreement")


def asked_of(checks: Sequence[AskedCheck], path: str) -> dict[str, AskedCheck]:
    """The check of each metric for the output at `path`; one that names it wins over `*`."""
    found: dict[str, AskedCheck] = {check.metric: check for check in checks if check.output == "*"}
    return found | {check.metric: check for check in checks if check.output == path}


def refuse_unmeasured(asked: Mapping[str, AskedCheck], on_sample: bool, on_labels: bool, path: str) -> None:
    """Raise InputError for a limit on what nobody measures: it would hold whatever the graph is worth.

    Args:
        on_sample: whether the graph is run on inputs of the task, and gives floats.
        on_labels: whether it is run on inputs whose class is known.
    """
    measured = {"bytes", *(MEASURED if on_sample else ()), *(LABELLED if on_labels else ())}
    if others := sorted(asked.keys() - measured):
        raise InputError(
            f"{path}: {others[0]} is not measured here, so no limit on it can be checked",
            f"limits may be on {', '.join(sorted(measured))}",
        )


def parity_checks(
    found: Mapping[str, Agreement], dataset: Digest, asked: Mapping[str, AskedCheck], path: str
) -> Iterator[dict[str, Any]]:
    """`manifest.Check` entries in JSON form, three for each output of a graph; see `rounded`.

    Raises ConversionError, naming the file, for a limit that does not hold.
    """
    for output, agreement in found.items():
        name = "parity" if len(found) == 1 else f"parity of {output}"
        about = {"name": name, "samples": agreement.positions, "dataset": str(dataset)}
        for metric in MEASURED:
            yield judge(about, metric, getattr(agreement, metric), asked.get(metric), path, agreement.scale)


def accuracy_checks(
    found: Mapping[str, float],
    source: Mapping[str, float],
    data: LabelledInputs,
    asked: Mapping[str, AskedCheck],
    path: str,
) -> Iterator[dict[str, Any]]:
    """`accuracy`, and by how much it is below the source's, for each output with labels; both are shares of the rows.

    Raises ConversionError, naming the file, for a limit that does not hold.
    """
    for output, value in found.items():
        name = "task accuracy" if len(found) == 1 else f"task accuracy of {output}"
        about = {"name": name, "samples": data.rows, "dataset": str(data.digest)}
        yield judge(about, "accuracy", value, asked.get("accuracy"), path)
        yield judge(about, "accuracy_loss", source[output] - value, asked.get("accuracy_loss"), path)


def judge(
    about: Mapping[str, Any],
    metric: str,
    value: float,
    asked: AskedCheck | None,
    path: str,
    scale: float = 1.0,
) -> dict[str, Any]:
    """One check; `info` where no limit was asked for. ConversionError where the limit does not hold."""
    check = {**about, "metric": metric, "value": rounded(value, metric)}
    if asked is None:
        return {**check, "verdict": "info"}
    limit = _limit(asked, scale)
    if not (value >= limit if metric in LEAST else value <= limit):
        least = "the least is" if metric in LEAST else "the limit is"
        got, stated = (f"{rounded(each, metric):.12g}" for each in (value, limit))
        raise ConversionError(
            f"{path} does not meet its recipe: {metric} is {got}, {least} {stated}",
            "nothing was published; look at the steps that made it, or state another limit",
        )
    return {**check, "limit": rounded(limit, metric), "verdict": "pass"}


def rounded(value: float, metric: str) -> float:
    """A figure as it is recorded: bytes as they are, all else with six significant digits."""
    return float(value if metric == "bytes" else f"{value:.6g}")


def _limit(asked: AskedCheck, scale: float) -> float:
    given = (
        next(value for value in (asked.min, asked.max) if value is not None)
        if asked.share is None
        else asked.share * scale
    )
    return float(given)
