"""What each graph gives on the sample: run once, and held against its parent and against the source.

Only positions that the input `attention_mask` leaves in count: what a graph gives for padding means nothing, and
differs by far more than what it means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import model_file, proof, samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.converters.tasks.task import Sample

ROWS = 32
"""Of labelled inputs in one run."""

Outputs = Sequence[Mapping[str, Any]]
"""Arrays by output name, one mapping for each run."""


@dataclass(frozen=True)
class Agreement:
    """How far one output is from another over `positions`: vectors along its last axis, or the numbers of a run together.

    `max_abs_diff` is in the output's units, `min_cosine` the lowest cosine of two vectors, `argmax_agreement` the share
    of positions with the same largest value; `scale` is the largest value to compare with, at least 1.
    """

    positions: int
    max_abs_diff: float
    min_cosine: float
    argmax_agreement: float
    scale: float


def run(path: Path, feeds: Sequence[Feed]) -> Outputs:
    """The outputs of an ONNX or ORT-format file in ONNX Runtime, on one thread.

    Raises ConversionError, naming the file, where it does not load or run.
    """
    return run_session(load_session(path), feeds, path.name)


def run_session(session: Any, feeds: Sequence[Feed], what: str) -> Outputs:
    """The same of a graph that is loaded (`onnxruntime.InferenceSession`); errors call it `what`."""
    return [proof.outputs(session, feed, what) for feed in feeds]


def fits(session: Any, feeds: Sequence[Feed]) -> bool:
    """Whether a graph that is loaded takes inputs of these names and shapes."""
    takes = {item.name: item.shape for item in session.get_inputs()}
    return all(
        feed.keys() == takes.keys() and all(map(_fits, feed.values(), map(takes.get, feed))) for feed in feeds
    )


def _fits(array: Any, shape: Any) -> bool:
    return len(array.shape) == len(shape) and all(
        not isinstance(asked, int) or asked == size for size, asked in zip(array.shape, shape, strict=True)
    )


def drawn_for(path: Path, parent: Path) -> tuple[Feed, ...]:
    """Inputs for a graph that takes other shapes than its parent; drawn to fit both."""
    return samples.draw(model_file.load(path), samples.index_bounds(model_file.load(parent)))


def accuracy(path: Path, data: LabelledInputs) -> dict[str, float]:
    """What a graph has right of labelled inputs, by output name.

    Raises ConversionError, naming the file, where it does not load or run, InputError where the labels do not fit.
    """
    session = load_session(path)
    rows = session.get_inputs()[0].shape[0]
    return data.accuracy(
        lambda feed: proof.outputs(session, feed, path.name), rows if isinstance(rows, int) else ROWS
    )


def counting(outputs: Outputs, sample: Sample) -> Outputs:
    """The positions that count, of each output that is per token; the others as they are."""
    return [
        {name: _counting(array, feed, name in sample.per_token) for name, array in found.items()}
        for found, feed in zip(outputs, sample.feeds, strict=True)
    ]


def _counting(array: Any, feed: Feed, per_token: bool) -> Any:
    mask = feed.get("attention_mask") if per_token else None
    return array if mask is None or array.shape[:2] != mask.shape else array[mask.astype(bool)]


def parity(
    expected: Outputs, got: Outputs, feeds: Sequence[Feed], what: str, tolerance: float | None
) -> dict[str, Any]:
    """The `parity` of a step's result: see `proof.compare`."""
    found = proof.compare(expected, got, what, tolerance)
    return {"samples": len(feeds), "dataset": str(samples.digest(feeds)), "outputs": found}


def agreement(expected: Outputs, got: Outputs, name: str) -> Agreement:
    """How far the output `name` is from what is expected; both finite and of one shape, as `parity` has seen."""
    import numpy as np

    sides = [[_vectors(found[name]) for found in side] for side in (expected, got)]
    pairs = list(zip(*sides, strict=True))
    same = [parent.argmax(axis=1) == child.argmax(axis=1) for parent, child in pairs]
    return Agreement(
        positions=sum(map(len, same)),
        max_abs_diff=max(float(np.abs(parent - child).max(initial=0.0)) for parent, child in pairs),
        min_cosine=min(float(_cosines(parent, child).min(initial=1.0)) for parent, child in pairs),
        argmax_agreement=float(np.concatenate(same).mean()),
        scale=max(1.0, *(float(np.abs(parent).max(initial=0.0)) for parent, _ in pairs)),
    )


def _cosines(parent: Any, child: Any) -> Any:
    """The cosine of each pair of rows; 1 where one is zero."""
    import numpy as np

    norms = np.linalg.norm(parent, axis=1) * np.linalg.norm(child, axis=1)
    return np.divide((parent * child).sum(axis=1), norms, out=np.ones(len(parent)), where=norms > 0)


def _vectors(array: Any) -> Any:
    """An array as float64 rows along its last axis; numbers without such an axis, one for each token, are one row."""
    import numpy as np

    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
    return rows.astype(np.float64)
