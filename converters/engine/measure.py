"""Measure each graph on the sample: run it once and compare it with its parent and with the source.

Only positions that the input `attention_mask` leaves in count: outputs for padding mean nothing, and differ
by far more than all others. A stated limit that does not hold ends the export.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import model_file, samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks.task import Sample
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import LEAST, RecipeCheck

Outputs = Sequence[Mapping[str, Any]]
"""Arrays by output name, one mapping for each run."""
MEASURED = ("max_abs_diff", "min_cosine", "argmax_agreement")


@dataclass(frozen=True)
class Agreement:
    """Distance of one output from another over `positions`: vectors along its last axis, or the numbers of a
    run.

    `max_abs_diff` is in the output's units, `min_cosine` the lowest cosine of two vectors, `argmax_agreement`
    the share of positions with the same largest value; `scale` is the largest value to compare with, at least
    1.
    """

    positions: int
    max_abs_diff: float
    min_cosine: float
    argmax_agreement: float
    scale: float


def run(path: Path, feeds: Sequence[Feed]) -> Outputs:
    """Run an ONNX or ORT-format file in ONNX Runtime on one thread; return its outputs.

    Raises ConversionError, naming the file, if it does not load or run.
    """
    return run_session(load_session(path), feeds, path.name)


def run_session(session: Any, feeds: Sequence[Feed], label: str) -> Outputs:
    """Run a loaded graph (`onnxruntime.InferenceSession`); errors call it `label`.

    The outputs are copies: an array of ONNX Runtime keeps all memory of its session's runs.

    Raises ConversionError if it does not run on all of them; if it runs on some, it has the size of an example in it.
    """
    results, errors = [], dict[str, ConversionError]()
    for feed in feeds:
        try:
            outputs = samples.outputs(session, feed, label)
            results.append({name: copy(value) for name, value in outputs.items()})
        except ConversionError as error:
            errors.setdefault(_shape(feed), error)
    if errors and results:
        fitting = sorted({_shape(feed) for feed in feeds} - errors.keys())
        raise ConversionError(
            f"{label} runs on inputs of the shape {' or '.join(fitting)}, and not of {', '.join(sorted(errors))}: "
            "the exporter wrote the length of its example into the graph",
            "in a recipe: OnnxConversion with use_dynamo_exporter: auto, or with dynamic: false for one fixed size",
        ) from next(iter(errors.values()))
    if errors:
        raise next(iter(errors.values()))
    return results


def _shape(feed: Feed) -> str:
    return str(list(next(iter(feed.values())).shape))


def can_run(session: Any, feeds: Sequence[Feed]) -> bool:
    """Tell if a loaded graph takes inputs of these names and shapes."""
    takes = {item.name: item.shape for item in session.get_inputs()}
    return all(
        feed.keys() == takes.keys()
        and all(
            len(array.shape) == len(takes[name])
            and all(
                size == axis or not isinstance(axis, int)
                for size, axis in zip(array.shape, takes[name], strict=True)
            )
            for name, array in feed.items()
        )
        for feed in feeds
    )


def drawn_for(path: Path, parent: Path) -> tuple[Feed, ...]:
    """Draw inputs that fit both a graph and a parent of other shapes."""
    return samples.draw(model_file.load(path), samples.index_bounds(model_file.load(parent)))


def counting(outputs: Outputs, sample: Sample) -> Outputs:
    """Select the positions that count of each output per token; return all others unchanged."""
    counted = []
    for arrays, feed in zip(outputs, sample.feeds, strict=True):
        mask: Any = feed.get("attention_mask")
        names = sample.per_token if mask is not None else ()
        masked = [name for name in names if name in arrays and arrays[name].shape[:2] == mask.shape]
        counted.append({**arrays, **{name: arrays[name][mask.astype(bool)] for name in masked}})
    return counted


def agreement(expected: Outputs, actual: Outputs, name: str) -> Agreement:
    """Compare the output `name` with the expected one; `parity` has checked that both are finite and of one
    shape. Runs without an element of it do not count.
    """
    import numpy as np

    sides = [
        [_vectors(outputs[name]) for outputs in side if outputs[name].size] for side in (expected, actual)
    ]
    pairs = list(zip(*sides, strict=True))
    if not pairs:
        return Agreement(0, 0.0, 1.0, 1.0, 1.0)
    same = [parent.argmax(axis=1) == child.argmax(axis=1) for parent, child in pairs]
    return Agreement(
        positions=sum(map(len, same)),
        max_abs_diff=max(float(np.abs(parent - child).max(initial=0.0)) for parent, child in pairs),
        min_cosine=min(float(_cosines(parent, child).min(initial=1.0)) for parent, child in pairs),
        argmax_agreement=float(np.concatenate(same).mean()),
        scale=max(1.0, *(float(np.abs(parent).max(initial=0.0)) for parent, _ in pairs)),
    )


def limits_of(checks: Sequence[RecipeCheck], path: str) -> dict[str, RecipeCheck]:
    """Map each metric to its check for the output at `path`; one that names the path wins over `*`."""
    defaults: dict[str, RecipeCheck] = {check.metric: check for check in checks if check.output == "*"}
    return defaults | {check.metric: check for check in checks if check.output == path}


def is_bounded(limits: Mapping[str, RecipeCheck]) -> bool:
    """Tell if an output may not be worse than chance: a recipe's own lower limit on the cosine takes the place of that."""
    limit = limits.get("min_cosine")
    return limit is None or limit.min is None or limit.min >= samples.MIN_COSINE


def refuse_unmeasured(limits: Mapping[str, RecipeCheck], on_sample: bool, path: str) -> None:
    """Raise InputError for a limit on a metric that is not measured: it would always hold.

    Args:
        on_sample: True if the graph is run on inputs of the task, and gives floats.
    """
    measured = {"bytes", *(MEASURED if on_sample else ())}
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


def judge(
    subject: Mapping[str, Any],
    metric: str,
    value: float,
    bound: RecipeCheck | None,
    path: str,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Make one check; `info` without a limit. ConversionError if the limit does not hold."""
    limit = None
    if bound is not None:
        limit = bound.max if bound.min is None else bound.min
        limit = float(bound.share * scale if limit is None and bound.share is not None else limit or 0.0)
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


def _cosines(parent: Any, child: Any) -> Any:
    """Compute the cosine of each pair of rows; 1 if a row is zero."""
    import numpy as np

    norms = np.linalg.norm(parent, axis=1) * np.linalg.norm(child, axis=1)
    return np.divide((parent * child).sum(axis=1), norms, out=np.ones(len(parent)), where=norms > 0)


def _vectors(array: Any) -> Any:
    """Reshape an array to float64 rows along its last axis; one number per token makes a single row."""
    import numpy as np

    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
    return rows.astype(np.float64)
