"""Checks of an output; a stated limit that does not hold ends the export."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxreg.converters.engine.measure import Agreement
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import LABELLED, LEAST, RecipeCheck

MEASURED = ("max_abs_diff", "min_cosine", "argmax_agreement")


def limits_of(checks: Sequence[RecipeCheck], path: str) -> dict[str, RecipeCheck]:
    """Map each metric to its check for the output at `path`; one that names the path wins over `*`."""
    defaults: dict[str, RecipeCheck] = {check.metric: check for check in checks if check.output == "*"}
    return defaults | {check.metric: check for check in checks if check.output == path}


def refuse_unmeasured(limits: Mapping[str, RecipeCheck], on_sample: bool, on_labels: bool, path: str) -> None:
    """Raise InputError for a limit on a metric that is not measured: it would always hold.

    Args:
        on_sample: True if the graph is run on inputs of the task, and gives floats.
        on_labels: True if it is run on inputs whose class is known.
    """
    measured = {"bytes", *(MEASURED if on_sample else ()), *(LABELLED if on_labels else ())}
    if unmeasured := sorted(limits.keys() - measured):
        raise InputError(
            f"{path}: {unmeasured[0]} is not measured here, so no limit on it can be checked",
            f"limits may be on {', '.join(sorted(measured))}",
        )


def parity_checks(
    agreements: Mapping[str, Agreement], dataset: Digest, limits: Mapping[str, RecipeCheck], path: str
) -> Iterator[dict[str, Any]]:
    """Yield `manifest.Check` entries in JSON form, three for each output of a graph; see `rounded`.

    Raises ConversionError, naming the file, for a limit that does not hold.
    """
    for output, agreement in agreements.items():
        name = "parity" if len(agreements) == 1 else f"parity of {output}"
        subject = {"name": name, "samples": agreement.positions, "dataset": str(dataset)}
        for metric in MEASURED:
            yield judge(
                subject, metric, getattr(agreement, metric), limits.get(metric), path, agreement.scale
            )


def accuracy_checks(
    accuracies: Mapping[str, float],
    source: Mapping[str, float],
    data: LabelledInputs,
    limits: Mapping[str, RecipeCheck],
    path: str,
) -> Iterator[dict[str, Any]]:
    """Yield `accuracy` and its loss against the source, as shares of the rows, for each output with labels.

    Raises ConversionError, naming the file, for a limit that does not hold.
    """
    for output, value in accuracies.items():
        name = "task accuracy" if len(accuracies) == 1 else f"task accuracy of {output}"
        subject = {"name": name, "samples": data.rows, "dataset": str(data.digest)}
        yield judge(subject, "accuracy", value, limits.get("accuracy"), path)
        yield judge(subject, "accuracy_loss", source[output] - value, limits.get("accuracy_loss"), path)


def judge(
    subject: Mapping[str, Any],
    metric: str,
    value: float,
    bound: RecipeCheck | None,
    path: str,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Make one check; `info` without a limit. ConversionError if the limit does not hold."""
    limit = None if bound is None else _limit(bound, scale)
    check = make_check(subject, metric, value, limit, is_least=metric in LEAST)
    if check["verdict"] == "fail":
        least = "the least is" if metric in LEAST else "the limit is"
        value_text, limit_text = (f"{check[key]:.12g}" for key in ("value", "limit"))
        raise ConversionError(
            f"{path} does not meet its recipe: {metric} is {value_text}, {least} {limit_text}",
            "nothing was published; look at the steps that made it, or state another limit",
        )
    return check


def make_check(
    subject: Mapping[str, Any], metric: str, value: float, limit: float | None = None, is_least: bool = False
) -> dict[str, Any]:
    """Make one check with its verdict: `info` without a limit, else `pass` or `fail`.

    Args:
        is_least: True if the value must be at least the limit, not at most.
    """
    check = {**subject, "metric": metric, "value": rounded(value, metric)}
    if limit is None:
        return {**check, "verdict": "info"}
    holds = value >= limit if is_least else value <= limit
    return {**check, "limit": rounded(limit, metric), "verdict": "pass" if holds else "fail"}


def rounded(value: float, metric: str) -> float:
    """Round a figure as it is recorded: bytes exactly, all else to six significant digits."""
    return float(value if metric == "bytes" else f"{value:.6g}")


def _limit(bound: RecipeCheck, scale: float) -> float:
    number = (
        next(value for value in (bound.min, bound.max) if value is not None)
        if bound.share is None
        else bound.share * scale
    )
    return float(number)
